"""Trains one run."""

import json
from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.accounting.calibration import kept_in
from subjectdp.io.job_log import job_log
from subjectdp.training.run import train_run

# The log is the run's own progress.log, which a resumed run continues and train_run writes its report to.
with job_log(snakemake.log[0], mode="a"), kept_in(snakemake.params.cache):
    prepared, partition = (Path(file).parent for file in snakemake.input)
    output = Path(snakemake.output[0]).parent
    run = json.loads(snakemake.params.run)
    train_run(run, prepared, partition, output, report=lambda line: None)
