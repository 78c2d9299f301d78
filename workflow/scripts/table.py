"""Makes one table of the scenario, and its page of the report."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.io.job_log import job_log
from subjectdp.report.make_table import make_table
from subjectdp.results.collect import FigureInputs

with job_log(snakemake.log[0]):
    inputs = FigureInputs(**{name: Path(path) for name, path in snakemake.input.items() if path})
    make_table(snakemake.params.table, inputs, snakemake.params.title, *snakemake.output)
