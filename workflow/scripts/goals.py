"""Judges the project's own goals beyond the papers by the scenario's sound runs."""

from subjectdp.io.joblog import job_log
from subjectdp.report.report import write_html_table
from subjectdp.scorecard.goals import write_goals

with job_log(snakemake.log[0]):
    write_goals(snakemake.input.goals, snakemake.input.runs, snakemake.output[0])
    write_html_table(snakemake.output[0], snakemake.output[1], snakemake.params.title)
