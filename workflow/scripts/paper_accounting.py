"""Accounts for what the papers claim, at their own settings."""

from subjectdp.analysis.paper_accounting import write_paper_accounting
from subjectdp.analysis.targets import read_targets
from subjectdp.io.joblog import job_log

with job_log(snakemake.log[0]):
    write_paper_accounting(
        read_targets(snakemake.input[0]), snakemake.output[0], cache_dir=snakemake.params.cache
    )
