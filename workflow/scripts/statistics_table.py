"""Puts the sampling statistics beside the papers' numbers."""

from subjectdp.io.joblog import job_log
from subjectdp.report.report import write_html_table
from subjectdp.report.tables import write_statistics_comparison

with job_log(snakemake.log[0]):
    write_statistics_comparison(snakemake.input[0], snakemake.output[0])
    write_html_table(snakemake.output[0], snakemake.output[1], snakemake.params.title)
