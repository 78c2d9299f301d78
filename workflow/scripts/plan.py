"""Plans a scenario; the plan is printed as well."""

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.config.scenario import load_scenario_from_mapping
from subjectdp.forecast.plan_report import plan_scenario
from subjectdp.io.job_log import job_log

with job_log(snakemake.log[0]):
    scenario = load_scenario_from_mapping(*snakemake.params.scenario)
    _, text = plan_scenario(scenario, snakemake.params.results)

print(text, end="", flush=True)
