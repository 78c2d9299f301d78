"""Packs the scenario's results into an RO-Crate."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.io.job_log import job_log
from subjectdp.report.crate import write_crate

with job_log(snakemake.log[0]):
    place, lock = Path(snakemake.output[0]).parents[1], Path(snakemake.params.lock)  # RESULTS/NAME/crate.zip
    results = [(str(Path(file).relative_to(place)), Path(file)) for file in snakemake.input]
    write_crate(Path(snakemake.output[0]), snakemake.params.about, [*results, (lock.name, lock)])
