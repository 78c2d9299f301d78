"""Trains one run."""

import json

from subjectdp.io.joblog import job_log
from subjectdp.training.run import train_run

with job_log(snakemake.log[0]):
    run = json.loads(snakemake.params.run)
    train_run(run, snakemake.params.prepared, snakemake.params.partition, snakemake.params.folder)
