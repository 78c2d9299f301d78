"""Selects one of the repetitions of a private selection."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.config import load_scenario_from_layers
from subjectdp.io.atomic import write_frame, write_json
from subjectdp.io.job_log import job_log
from subjectdp.report.page import write_html_table
from subjectdp.utility.private_selection import select

with job_log(snakemake.log[0]):
    scenario = load_scenario_from_layers(snakemake.params.scenario)
    csv, page, record = snakemake.output
    results = str(Path(record).parents[1])  # of results/NAME/private_selection.json
    table, statements = select(scenario, results, Path(snakemake.params.cache))
    write_frame(csv, table)
    write_html_table(csv, page, f"Private selection: {scenario.name}")
    write_json(record, statements)
