"""Writes the opening page of the report."""

from pathlib import Path

from subjectdp.io.job_log import job_log
from subjectdp.report.opening import OpeningSources, write_opening

with job_log(snakemake.log[0]):
    files = {name: Path(path) for name, path in snakemake.input.items() if path}
    template, run_folders = Path(snakemake.params.template), Path(snakemake.params.run_folders)
    sources = OpeningSources(**files, template=template, run_folders=run_folders)
    write_opening(sources, snakemake.params.figures, snakemake.output[0])
