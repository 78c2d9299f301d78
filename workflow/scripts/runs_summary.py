"""Summarises the runs of a scenario over their seeds."""

from subjectdp.io.joblog import job_log
from subjectdp.report.report import write_html_table
from subjectdp.report.tables import write_runs_summary

with job_log(snakemake.log[0]):
    write_runs_summary(snakemake.input[0], snakemake.output[0])
    write_html_table(snakemake.output[0], snakemake.output[1], snakemake.params.title)
