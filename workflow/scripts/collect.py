"""Collects runs into the tables that figures and tables are made from."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.io.job_log import job_log
from subjectdp.places import FINISHED
from subjectdp.results.collect import collect_scenario

with job_log(snakemake.log[0]):
    runs = [Path(manifest).parent for manifest in snakemake.input]
    collect_scenario(runs, Path(snakemake.output[0]).parent)
    for run in runs:
        (run / FINISHED).unlink(missing_ok=True)
