"""Writes the page of the scenario's results."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.io.job_log import job_log
from subjectdp.report.results_page import ResultSources, write_results_page

with job_log(snakemake.log[0]):
    tables, params = (Path(path) for path in snakemake.input[:2]), snakemake.params
    runs = tuple(Path(params.run_folders) / run for run in params.runs)
    sources = ResultSources(*tables, runs, Path(params.benchmarks), frozenset(params.jobs))
    write_results_page(sources, snakemake.config, params.figures, params.tables, snakemake.output[0])
