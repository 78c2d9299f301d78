"""Fetches, or generates, the source of a data set."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.config.sections import DataConfig
from subjectdp.data.prepare import fetch_sources
from subjectdp.io.job_log import job_log

with job_log(snakemake.log[0]):
    data = DataConfig.model_validate_json(snakemake.params.data)
    fetch_sources(data, Path(snakemake.output[0]).parent)
