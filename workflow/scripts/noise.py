"""Measures the noise on the averaged gradient of each algorithm of the scenario, beside what its plan says."""

import json
from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.accounting.calibration import kept_in
from subjectdp.io.job_log import job_log
from subjectdp.utility.measured_noise import write_noise

with job_log(snakemake.log[0]), kept_in(snakemake.params.cache):
    prepared = [Path(path).parent for path in snakemake.input.prepared]
    partitions = [Path(path).parent for path in snakemake.input.partitions]
    configs = [json.loads(text) for text in snakemake.params.runs]
    write_noise(zip(configs, prepared, partitions, strict=True), snakemake.output[0])
