"""Draws one figure of the scenario, and makes its page of the report."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.figures.catalogue import entry, make_figure
from subjectdp.io.job_log import job_log
from subjectdp.report.figure_page import write_figure_page
from subjectdp.results.inputs import FigureInputs

with job_log(snakemake.log[0]):
    tables = {name: Path(path) for name, path in snakemake.input.items() if name != "partitions"}
    partitions = tuple(Path(path).parent for path in snakemake.input.get("partitions", ()))
    inputs = FigureInputs(**tables, partitions=partitions)
    figure, folder = snakemake.params.figure, Path(snakemake.output[0]).parent
    make_figure(figure, inputs, folder)
    write_figure_page(figure, entry(figure).title, folder)
