"""Puts the sound algorithms of a scenario side by side: accuracy, lead, gap to no privacy."""

from subjectdp.io.joblog import job_log
from subjectdp.report.report import write_html_table
from subjectdp.scorecard.leads import write_leads

with job_log(snakemake.log[0]):
    write_leads(snakemake.input[0], snakemake.output[0])
    write_html_table(snakemake.output[0], snakemake.output[1], snakemake.params.title)
