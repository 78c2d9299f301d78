"""Fetches, or generates, the source of a data set."""

from pathlib import Path

from subjectdp.config.sections import DataConfig
from subjectdp.data.prepare import fetch_sources
from subjectdp.io.job_log import job_log

with job_log(snakemake.log[0]):
    data = DataConfig.model_validate_json(snakemake.params.data)
    fetch_sources(data, Path(snakemake.output[0]).parent)
