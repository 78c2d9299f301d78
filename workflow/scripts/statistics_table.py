"""Puts the sampling statistics beside the papers' numbers."""

from subjectdp.analysis.report import write_html_table
from subjectdp.analysis.tables import write_statistics_comparison
from subjectdp.io.joblog import job_log

with job_log(snakemake.log[0]):
    write_statistics_comparison(snakemake.input[0], snakemake.output[0])
    write_html_table(snakemake.output[0], snakemake.output[1], snakemake.params.title)
