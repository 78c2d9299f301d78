"""The scorecard: each printed number of the papers, ours with its interval, the ε of the same runs, and a verdict.

One row per target, in the order of the targets' file; targets that nothing in the scenario measures come last. The rule
is :func:`subjectdp.scorecard.verdicts.judge`, described in docs/findings.md.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from subjectdp.accounting import table1
from subjectdp.results.inputs import FigureInputs
from subjectdp.scorecard import run_measures, table_measures
from subjectdp.scorecard.paper_accounting import COLUMNS as ACCOUNTING_COLUMNS
from subjectdp.scorecard.paper_accounting import is_accounted
from subjectdp.scorecard.targets import Kind, Target, read_targets
from subjectdp.scorecard.verdicts import Measured, Verdict, judge
from subjectdp.utility import EXCESS_COLUMNS

COLUMNS = (
    *("target", "paper", "place", "statement", "verdict", "reason", "unit", "printed", "tolerance"),
    *("ours", "low", "high", "seeds", "epsilon_as_published", "epsilon_sound", "epsilon_sound_subject"),
    *("scale", "note", "evidence", "counted"),
)
_LEADS = {"test_loss": "nats ahead", "test_accuracy": "points ahead", "printed_bound": "nats above"}


@dataclass(frozen=True)
class Evidence:
    """The tables of a scenario that targets are measured by; None for a table that it does not make."""

    runs: pd.DataFrame
    rounds: pd.DataFrame
    table1: pd.DataFrame
    accounting: pd.DataFrame | None = None
    statistics: pd.DataFrame | None = None
    utility: pd.DataFrame | None = None

    def measure(self, target: Target) -> Measured | None:
        """Ours for one target; None if nothing here measures it."""
        if target.metric in run_measures.TRAINED:
            return run_measures.measure_run_target(target, self.runs, self.rounds)
        if target.metric == "rounds_to_equal_accuracy":
            return run_measures.measure_rounds(target, self.runs, self.rounds)
        if target.metric in table_measures.ON_CONVEX_LOSS:
            return _measured(table_measures.measure_bound, target, self.utility)
        if target.metric in table_measures.SAMPLED:
            return _measured(table_measures.measure_sampling, target, self.statistics)
        if is_accounted(target):
            return _measured(table_measures.measure_accounting, target, self.accounting)
        if target.metric in ("epsilon", "noise_multiplier"):
            return table_measures.measure_table1(target, self.table1)
        return None


def _measured(
    measure: Callable[[Target, pd.DataFrame], Measured | None], target: Target, table: pd.DataFrame | None
) -> Measured | None:
    return None if table is None else measure(target, table)


def scorecard(targets: Sequence[Target], evidence: Evidence) -> pd.DataFrame:
    """A row (:data:`COLUMNS`) per target; those not run come last."""
    rows = [_row(target, evidence.measure(target)) for target in targets]
    rows.sort(key=lambda row: row["verdict"] == Verdict.NOT_RUN.value)  # stable: the targets' order otherwise
    return pd.DataFrame(rows, columns=list(COLUMNS))


def build(inputs: FigureInputs) -> pd.DataFrame:
    """The scorecard of a scenario's collected tables, by the targets that ``inputs`` names.

    Raises ConfigError for a wrong file of targets, DataError for a damaged table.
    """
    evidence = Evidence(
        runs=inputs.read_runs(),
        rounds=inputs.read_rounds(),
        table1=pd.DataFrame(table1.rows()),
        accounting=None if inputs.accounting is None else inputs.read("accounting", ACCOUNTING_COLUMNS),
        statistics=None if inputs.statistics is None else inputs.read_statistics(),
        utility=None if inputs.utility is None else inputs.read("utility", EXCESS_COLUMNS),
    )
    return scorecard(read_targets(inputs.path("targets")), evidence)


def _row(target: Target, measured: Measured | None) -> dict[str, Any]:
    verdict, reason = judge(target, measured)
    # of an order its lead, of a bound the loss above it
    unit = "nats above the bound" if target.kind is Kind.BOUND else target.unit
    unit = _LEADS[target.metric] if target.kind is Kind.ORDER else unit
    same = ("paper", "place", "statement", "printed", "tolerance")
    row: dict[str, Any] = {name: getattr(target, name) for name in same}
    row |= {"target": target.id, "verdict": verdict.value, "reason": reason, "unit": unit}
    row |= {"evidence": target.evidence.value, "counted": not target.not_counted}
    if measured is None:
        return row
    numbers = {"ours": "mean", "low": "low", "high": "high", "epsilon_as_published": "epsilon_published"}
    numbers |= {name: name for name in ("epsilon_sound", "epsilon_sound_subject")}
    # six significant digits: further ones differ between machines
    row |= {column: float(f"{getattr(measured, name):.6g}") for column, name in numbers.items()}
    seeds = measured.seeds if measured.seeds > 0 else math.nan
    return row | {"seeds": seeds, "scale": measured.scale, "note": measured.note}
