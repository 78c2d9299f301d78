"""Judges the project's own goals beyond the papers by the scenario's sound runs."""

from subjectdp.analysis.goals import write_goals
from subjectdp.analysis.report import write_html_table
from subjectdp.io.joblog import job_log

with job_log(snakemake.log[0]):
    write_goals(snakemake.input.goals, snakemake.input.runs, snakemake.output[0])
    write_html_table(snakemake.output[0], snakemake.output[1], snakemake.params.title)
