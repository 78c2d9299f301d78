"""Splits a prepared data set and deals its training items over the silos."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.config.run import RunConfig
from subjectdp.data.partition import make_partition
from subjectdp.io.job_log import job_log

with job_log(snakemake.log[0]):
    run = RunConfig.model_validate_json(snakemake.params.run)
    make_partition(Path(snakemake.input[0]).parent, Path(snakemake.output[0]).parent, run)
