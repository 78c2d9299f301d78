"""Measures the excess loss of a convex model beside the papers' bounds."""

import json
from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.accounting.calibration import kept_in
from subjectdp.io.job_log import job_log
from subjectdp.utility.excess_loss import write_utility

with job_log(snakemake.log[0]), kept_in(snakemake.params.cache):
    write_utility(json.loads(snakemake.params.run), Path(snakemake.input[0]).parent, snakemake.output[0])
