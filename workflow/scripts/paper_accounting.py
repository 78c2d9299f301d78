"""Computes claimed and sound ε at the papers' own settings."""

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.accounting.calibration import kept_in
from subjectdp.io.job_log import job_log
from subjectdp.report.paper_accounting import write_paper_accounting
from subjectdp.report.targets import read_targets

with job_log(snakemake.log[0]), kept_in(snakemake.params.cache):
    write_paper_accounting(read_targets(snakemake.input[0]), snakemake.output[0])
