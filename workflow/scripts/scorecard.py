"""Judges the papers' numbers by the scenario's runs and tables."""

from pathlib import Path

from subjectdp.io.joblog import job_log
from subjectdp.report.report import write_html_table
from subjectdp.results.inputs import FigureInputs
from subjectdp.scorecard.scorecard import write_scorecard

with job_log(snakemake.log[0]):
    tables = {name: Path(path) for name, path in snakemake.input.items() if name != "targets" and path}
    write_scorecard(snakemake.input.targets, FigureInputs(**tables), snakemake.output[0])
    write_html_table(snakemake.output[0], snakemake.output[1], snakemake.params.title)
