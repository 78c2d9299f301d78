"""Turns the source of a data set into the prepared arrays."""

from subjectdp.config.models import DataConfig
from subjectdp.data.prepare import prepare_dataset
from subjectdp.io.joblog import job_log

with job_log(snakemake.log[0]):
    data = DataConfig.model_validate_json(snakemake.params.data)
    prepare_dataset(data, snakemake.params.source, snakemake.params.folder)
