"""Judges the papers' numbers by the scenario's runs and tables."""

from pathlib import Path

from subjectdp.io.atomic import write_frame
from subjectdp.io.joblog import job_log
from subjectdp.report.report import write_html_table
from subjectdp.results.inputs import FigureInputs
from subjectdp.scorecard.scorecard import build

with job_log(snakemake.log[0]):
    tables = {name: Path(path) for name, path in snakemake.input.items() if path}
    write_frame(snakemake.output[0], build(FigureInputs(**tables)))
    write_html_table(snakemake.output[0], snakemake.output[1], snakemake.params.title)
