"""Chooses the best setting of each point of a searched scenario."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.config import load_scenario_from_layers
from subjectdp.config.paths import FINISHED
from subjectdp.io.atomic import write_frame, write_text
from subjectdp.io.job_log import job_log
from subjectdp.utility.tuning import tune

with job_log(snakemake.log[0]):
    scenario = load_scenario_from_layers(snakemake.params.scenario)
    csv, tuned = snakemake.output
    table, text = tune(scenario, str(Path(tuned).parents[1]))  # of results/NAME/tuned.yaml
    write_frame(csv, table)
    write_text(tuned, text)
    for manifest in snakemake.input:
        Path(manifest).with_name(FINISHED).unlink(missing_ok=True)
