"""Configuration: scenarios, runs and ids. Imports pydantic, yaml and the standard library only."""

from subjectdp.config.fingerprint import fingerprint
from subjectdp.config.resolve import data_key
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.scenario import Scenario, given_values, load_scenario, load_scenario_from_mapping
from subjectdp.config.sections import DataConfig

__all__ = [
    "DataConfig",
    "RunConfig",
    "Scenario",
    "data_key",
    "fingerprint",
    "given_values",
    "load_run",
    "load_scenario",
    "load_scenario_from_mapping",
]
