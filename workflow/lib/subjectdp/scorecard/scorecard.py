"""The scorecard: each printed number of the papers, ours with its interval, the ε of the very same runs, a verdict.

A row a target, in the order of the targets' file, those that nothing in the scenario measures last. The rule is
:func:`subjectdp.scorecard.verdicts.judge`; docs/scorecard.md states it for people.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from subjectdp.io.atomic import write_frame
from subjectdp.results.inputs import FigureInputs
from subjectdp.scorecard import run_measures, table_measures
from subjectdp.scorecard.paper_accounting import is_accounted
from subjectdp.scorecard.targets import Kind, Target, read_targets
from subjectdp.scorecard.verdicts import Measured, Verdict, judge

COLUMNS = (
    "target",
    "paper",
    "place",
    "statement",
    "verdict",
    "reason",
    "unit",
    "printed",
    "tolerance",
    "ours",
    "low",
    "high",
    "seeds",
    "epsilon_as_published",
    "epsilon_sound",
    "epsilon_sound_subject",
    "scale",
    "note",
)
_LEADS = {"test_loss": "nats ahead", "test_accuracy": "points ahead"}


@dataclass(frozen=True)
class Evidence:
    """What a scenario has to measure targets by; a table that it does not make is None."""

    runs: pd.DataFrame
    rounds: pd.DataFrame
    table1: pd.DataFrame
    accounting: pd.DataFrame | None = None
    statistics: pd.DataFrame | None = None
    utility: pd.DataFrame | None = None

    def measure(self, target: Target) -> Measured | None:
        """Ours for one target, None where nothing here measures it."""
        if target.metric in run_measures.TRAINED:
            return run_measures.measure_run_target(target, self.runs, self.rounds)
        if target.kind is Kind.BOUND:
            return None if self.utility is None else table_measures.measure_bound(target, self.utility)
        if target.metric in table_measures.SAMPLED:
            return (
                None if self.statistics is None else table_measures.measure_sampling(target, self.statistics)
            )
        if is_accounted(target):
            return (
                None
                if self.accounting is None
                else table_measures.measure_accounting(target, self.accounting)
            )
        if target.metric in ("epsilon", "noise_multiplier"):
            return table_measures.measure_table1(target, self.table1)
        return None


def scorecard(targets: Sequence[Target], evidence: Evidence) -> pd.DataFrame:
    """A row (:data:`COLUMNS`) for each target; those not run come last."""
    rows = [_row(target, evidence.measure(target)) for target in targets]
    rows.sort(key=lambda row: row["verdict"] == Verdict.NOT_RUN.value)  # stable: the targets' order otherwise
    return pd.DataFrame(rows, columns=list(COLUMNS))


def write_scorecard(targets_csv: Path | str, inputs: FigureInputs, target_csv: Path | str) -> pd.DataFrame:
    """Judges the targets of a file by a scenario's collected tables; writes and returns the scorecard.

    ``inputs``: runs and rounds, and accounting, statistics and utility where the scenario has them. Raises
    ConfigError for a wrong file of targets, DataError for a broken table.
    """
    from subjectdp.accounting.table1 import rows_as_dicts

    targets = read_targets(targets_csv)
    evidence = Evidence(
        runs=inputs.read_runs(),
        rounds=inputs.read_rounds(),
        table1=pd.DataFrame(rows_as_dicts()),
        accounting=None if inputs.accounting is None else inputs.read_accounting(),
        statistics=None if inputs.statistics is None else inputs.read_statistics(),
        utility=None if inputs.utility is None else inputs.read_utility(),
    )
    table = scorecard(targets, evidence)
    write_frame(target_csv, table)
    return table


def _row(target: Target, measured: Measured | None) -> dict[str, Any]:
    verdict, reason = judge(target, measured)
    row: dict[str, Any] = {
        "target": target.id,
        "paper": target.paper,
        "place": target.place,
        "statement": target.statement,
        "verdict": verdict.value,
        "reason": reason,
        "unit": _unit(target),
        "printed": target.printed,
        "tolerance": target.tolerance,
    }
    if measured is None:
        return row
    return row | {
        "ours": _rounded(measured.mean),
        "low": _rounded(measured.low),
        "high": _rounded(measured.high),
        "seeds": measured.seeds if measured.seeds > 0 else math.nan,
        "epsilon_as_published": _rounded(measured.epsilon_published),
        "epsilon_sound": _rounded(measured.epsilon_sound),
        "epsilon_sound_subject": _rounded(measured.epsilon_sound_subject),
        "scale": measured.scale,
        "note": measured.note,
    }


def _unit(target: Target) -> str:
    """What ``ours`` is in: an order has its lead, a bound the loss above it, the others the target's unit."""
    if target.kind is Kind.ORDER:
        return _LEADS[target.metric]
    return "nats above the bound" if target.kind is Kind.BOUND else target.unit


def _rounded(value: float) -> float:
    """Six figures: more are no information, and the last ones differ between machines."""
    return value if math.isnan(value) or math.isinf(value) else float(f"{value:.6g}")
