"""Audits the algorithms: Monte Carlo on a worst-case subject, one-run audits with canaries, leaks of the noise."""

import json
from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.accounting.calibration import kept_in
from subjectdp.auditing.suite import write_suite
from subjectdp.auditing.training_audit import prepared_setup
from subjectdp.io.job_log import job_log

with job_log(snakemake.log[0]), kept_in(snakemake.params.cache):
    prepared, partition = (Path(file).parent for file in snakemake.input)
    setup = prepared_setup(json.loads(snakemake.params.run), prepared, partition)
    write_suite(snakemake.params.size, snakemake.params.seed, setup, snakemake.output)
