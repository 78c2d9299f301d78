"""Draws one figure of the scenario."""

from pathlib import Path

from subjectdp.analysis.inputs import FigureInputs
from subjectdp.analysis.registry import make_figure
from subjectdp.io.joblog import job_log

with job_log(snakemake.log[0]):
    tables = {name: Path(path) for name, path in snakemake.input.items() if name != "partitions"}
    partitions = tuple(Path(path).parent for path in snakemake.input.get("partitions", ()))
    inputs = FigureInputs(**tables, partitions=partitions)
    make_figure(snakemake.params.figure, inputs, Path(snakemake.output[0]).parent)
