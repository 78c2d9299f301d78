"""What ``subjectdp select`` prints of each selection."""

from __future__ import annotations

from typing import Any

from subjectdp.accounting.private_selection import run_epsilon
from subjectdp.accounting.selection_promise import UNITS, group_plans, promise
from subjectdp.config import Scenario
from subjectdp.forecast.federations import federation_of


def selection_rows(scenario: Scenario, results: str) -> list[dict[str, Any]]:
    """What each selection keeps, on its partition or the one that is expected."""
    selection, records = scenario.private_selection, []
    for group in scenario.selection_groups:
        partition, source = federation_of(group.candidates[0], results)
        plans = group_plans(group, partition)
        found = promise(plans, selection)
        most = (
            None
            if found.promised is None
            else run_epsilon(plans, selection, UNITS[found.unit][0], found.delta)
        )
        records.append(
            {
                "selection": group.run.run_id,
                "federation": source,
                "epsilon": dict(found.epsilon),
                "delta": found.delta,
                "unit": found.unit,
                "target": selection.epsilon,
                "epsilon_of_a_run": group.run.privacy.epsilon,
                "largest_epsilon_of_a_run": most,
                "reason": found.reason,
            }
        )
    return records
