"""Turns the source of a data set into the prepared arrays."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.config.sections import DataConfig
from subjectdp.data.prepare import prepare_dataset
from subjectdp.io.job_log import job_log

with job_log(snakemake.log[0]):
    data = DataConfig.model_validate_json(snakemake.params.data)
    source, prepared = Path(snakemake.input[0]).parent, Path(snakemake.output[0]).parent
    input_fingerprint = {"content": snakemake.params.content, "code": snakemake.params.code}
    prepare_dataset(data, source, prepared, input_fingerprint)
