"""Draws one figure of the scenario."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.figures.catalogue import make_figure
from subjectdp.io.job_log import job_log
from subjectdp.results.collect import FigureInputs

with job_log(snakemake.log[0]):
    tables = {name: Path(path) for name, path in snakemake.input.items() if name != "partitions"}
    partitions = tuple(Path(path).parent for path in snakemake.input.get("partitions", ()))
    inputs = FigureInputs(**tables, partitions=partitions)
    make_figure(snakemake.params.figure, inputs, Path(snakemake.output[0]).parent)
