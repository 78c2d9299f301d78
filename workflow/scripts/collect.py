"""Collects runs into the tables that figures and tables are made from."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.io.job_log import job_log
from subjectdp.results.collect import collect_scenario

with job_log(snakemake.log[0]):
    collect_scenario([Path(manifest).parent for manifest in snakemake.input], Path(snakemake.output[0]).parent)
