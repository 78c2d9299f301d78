"""Selects one of the repetitions of a private selection."""

from pathlib import Path

from subjectdp.config import load_scenario_from_layers
from subjectdp.io.job_log import job_log
from subjectdp.report.private_selection import write_selection

with job_log(snakemake.log[0]):
    scenario = load_scenario_from_layers(snakemake.params.scenario)
    features = Path(snakemake.params.cache)
    write_selection(scenario, snakemake.params.results, features, snakemake.output)
