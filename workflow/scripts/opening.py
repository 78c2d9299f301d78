"""Writes the front page of the results and the opening page of Snakemake's report."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.io.job_log import job_log
from subjectdp.report.front import FrontSources, write_front
from subjectdp.report.opening import OpeningSources, write_opening

with job_log(snakemake.log[0]):
    files = {name: Path(path) for name, path in snakemake.input.items() if path and name != "figure"}
    shown = files.pop("shown", files["runs"])
    template, run_folders = Path(snakemake.params.template), Path(snakemake.params.run_folders)
    sources = OpeningSources(**files, template=template, run_folders=run_folders)
    write_opening(sources, snakemake.params.figures, snakemake.output[0])
    front = FrontSources(
        **snakemake.params.about, runs=files["runs"], shown=shown, scorecard=files["scorecard"]
    )
    write_front(front, snakemake.params.figures, snakemake.params.tables, snakemake.output[1])
