"""Gathers the runs of a scenario into its tables."""

from subjectdp.analysis.collect import collect_scenario
from subjectdp.io.joblog import job_log

with job_log(snakemake.log[0]):
    collect_scenario(snakemake.params.runs, snakemake.params.folder)
