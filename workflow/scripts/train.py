"""Trains one run."""

import json
from pathlib import Path

from subjectdp.io.job_log import job_log
from subjectdp.training.run import train_run

with job_log(snakemake.log[0]):
    prepared, partition = (Path(file).parent for file in snakemake.input)
    output = Path(snakemake.output[0]).parent
    run = json.loads(snakemake.params.run)
    train_run(run, prepared, partition, output, snakemake.params.cache)
