"""Writes the opening page of the report."""

from pathlib import Path

from subjectdp.io.joblog import job_log
from subjectdp.report.opening import write_opening

with job_log(snakemake.log[0]):
    files = snakemake.input
    write_opening(
        files.template,
        files.runs,
        files.scorecard,
        Path(snakemake.params.run_folders),
        snakemake.params.figures,
        snakemake.output[0],
        files.goals or None,
    )
