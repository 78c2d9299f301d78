"""The project's own goals beyond the papers (config/goals.csv), judged by rule on the sound runs of a scenario.

A goal is about SubjectRelease on subjects spread evenly over some or all silos, at one ε and with the noise of one
number of subjects. :mod:`subjectdp.scorecard.leads` computes the numbers that are compared, and
:mod:`subjectdp.scorecard.selected` those of private selections.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd

from subjectdp.algorithms.registry import label
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import ConfigError, expected
from subjectdp.io.atomic import write_frame
from subjectdp.models.catalogue import MODELS
from subjectdp.results.collect import RUN_COLUMNS
from subjectdp.results.frames import read_frame
from subjectdp.scorecard.csv_fields import (
    known_algorithm,
    needed,
    number,
    one_of,
    positive,
    read_rows,
    whole_number,
)
from subjectdp.scorecard.leads import COLUMNS as LEADS
from subjectdp.scorecard.leads import REFERENCE, leads
from subjectdp.scorecard.selected import selected
from subjectdp.scorecard.thresholds import Direction, Interval, Threshold, Verdict

COLUMNS = ["goal", "statement", "kind", "dataset", "model", "noise_subjects", "epsilon", "silos_per_subject"]
COLUMNS += ["versus", "limit"]
"""Columns of the file, in order."""
Rows = dict[str, dict[Hashable, Any]]  # of the leads, by algorithm


class Kind(StrEnum):
    """What is compared with a goal's limit."""

    ACCURACY = "accuracy"  # test accuracy in per cent: at least
    GAP = "gap"  # points below the algorithm without privacy: at most
    LEAD = "lead"  # points above every algorithm of ``versus``: more than
    SELECTION = "selection"  # test accuracy in per cent of what private selections release: at least


_DIRECTIONS = {
    Kind.ACCURACY: Direction.AT_LEAST,
    Kind.GAP: Direction.AT_MOST,
    Kind.LEAD: Direction.MORE_THAN,
    Kind.SELECTION: Direction.AT_LEAST,
}


@dataclass(frozen=True)
class Goal:
    """One goal; ``versus`` holds labels as figures have them, FedAvg alone for a gap, none for accuracies.

    ``epsilon`` of a selection is that of the whole selection.
    """

    name: str
    statement: str
    kind: Kind
    dataset: str
    model: str | None  # None: any
    noise_subjects: int
    epsilon: float
    silos_per_subject: int | None  # None: all
    versus: tuple[str, ...]
    limit: float


def read_goals(path: Path | str) -> list[Goal]:
    """The goals of a CSV with :data:`COLUMNS`; ConfigError names the row, the column, the value and what is allowed."""
    return [_goal(row, where) for where, row in read_rows(Path(path), "goals", COLUMNS)]


def judge_goals(
    goals: Sequence[Goal], runs: pd.DataFrame, selections: Sequence[Mapping[str, Any]] = ()
) -> pd.DataFrame:
    """A row for each goal: verdict, reason, ours with its 95 % interval, seeds, and the algorithm that decided.

    Goals are judged by :mod:`subjectdp.scorecard.thresholds`; one seed and generated data leave a goal undecided.
    Against several algorithms the one with the smallest lead decides. ``selections``: the scenario's private
    selections, whose repetitions are not judged as runs of their own.
    """
    made = {str(name) for name, part in runs.groupby("dataset") if part["synthetic"].any()}
    compared = {(goal.kind is Kind.SELECTION, goal.model) for goal in goals}
    tables = {which: _table(*which, runs, selections) for which in compared}
    return pd.DataFrame(
        [
            _judged(goal, tables[goal.kind is Kind.SELECTION, goal.model], goal.dataset in made)
            for goal in goals
        ]
    )


def write_goals(goals_csv: Path | str, runs_parquet: Path | str, target: Path | str) -> pd.DataFrame:
    """Writes :func:`judge_goals` of a runs.parquet as CSV."""
    table = judge_goals(read_goals(goals_csv), read_frame(runs_parquet, RUN_COLUMNS))
    write_frame(target, table)
    return table


def _table(
    released: bool, model: str | None, runs: pd.DataFrame, selections: Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
    """The numbers that goals are about: of what selections released, or of all runs where there are no selections."""
    shown = runs if model is None else runs[runs["model"] == model]
    if released:
        return selected(shown, selections)
    return pd.DataFrame(columns=list(LEADS)) if selections or shown.empty else leads(shown)


def _goal(row: dict[str, str], where: str) -> Goal:
    kind = Kind(one_of(row["kind"], [kind.value for kind in Kind], f"{where}, kind"))
    names = [known_algorithm(name, where) for name in row["versus"].split()]
    wrong = {
        Kind.ACCURACY: ("empty (accuracy)", bool(names)),
        Kind.GAP: ("fed_avg (gap)", names != ["fed_avg"]),
        Kind.LEAD: ("one algorithm or more, and not fed_avg (lead)", not names or "fed_avg" in names),
        Kind.SELECTION: ("empty (selection)", bool(names)),
    }
    if wrong[kind][1]:
        raise expected(f"{where}, versus", row["versus"], wrong[kind][0], ConfigError)
    subjects = whole_number(row["noise_subjects"], f"{where}, noise_subjects")
    epsilon, limit = positive(row["epsilon"], f"{where}, epsilon"), number(row["limit"], f"{where}, limit")
    if subjects is None or epsilon is None or not math.isfinite(limit):
        allowed = "numbers, none of them empty"
        raise expected(
            f"{where}, noise_subjects, epsilon and limit", (subjects, epsilon, limit), allowed, ConfigError
        )
    return Goal(
        needed(row, "goal", where),
        needed(row, "statement", where),
        kind,
        one_of(row["dataset"], list(DATASETS), f"{where}, dataset"),
        one_of(row["model"], ["", *MODELS], f"{where}, model") or None,
        subjects,
        epsilon,
        whole_number(row["silos_per_subject"], f"{where}, silos_per_subject"),
        tuple(_label(name) for name in names),
        limit,
    )


def _label(name: str) -> str:
    plain, _, variant = name.partition(":")
    return label(plain, variant or None)


def _judged(goal: Goal, table: pd.DataFrame, synthetic: bool) -> dict[str, object]:
    silos = table["silos"] if goal.silos_per_subject is None else goal.silos_per_subject
    at = table["noise_subjects"].eq(goal.noise_subjects) & table["epsilon"].eq(goal.epsilon)
    at &= table["silos_per_subject"].eq(silos)
    shown = table[at & table["dataset"].eq(goal.dataset)]
    rows: Rows = {str(row["algorithm"]): row for row in shown.to_dict("records")}
    missing = [name for name in (REFERENCE, *goal.versus) if name not in rows]
    found = _NOTHING if missing else _found(goal, rows)
    verdict, reason = Threshold(goal.limit, _DIRECTIONS[goal.kind]).judge(found.interval)
    if missing:
        verdict = Verdict.NOT_RUN
        reason = f"no sound runs of {', '.join(missing)} at this ε and these numbers of subjects and silos"
    elif synthetic:
        verdict, reason = Verdict.UNDECIDED, "generated data"
    return {
        "goal": goal.name,
        "statement": goal.statement,
        "verdict": verdict.value,
        "reason": reason,
        "limit": goal.limit,
        "ours": round(found.interval.value, 3),
        "low": round(found.interval.low, 3),
        "high": round(found.interval.high, 3),
        "seeds": found.seeds,
        "decided_by": found.decided_by,
        "dataset": goal.dataset,
        "noise_subjects": goal.noise_subjects,
        "epsilon": goal.epsilon,
        "epsilon_own_subject": math.nan if missing else rows[REFERENCE]["epsilon_own_subject"],
    }


@dataclass(frozen=True)
class _Found:
    """Ours, the algorithm that decides, and the seeds."""

    interval: Interval
    decided_by: str
    seeds: int


_NOTHING = _Found(Interval(math.nan, math.nan, math.nan), "", 0)


def _found(goal: Goal, rows: Rows) -> _Found:
    own = rows[REFERENCE]
    if not goal.versus:
        mean, half = float(own["test_accuracy_percent"]), float(own["test_accuracy_half_width"])
        return _Found(Interval(mean, mean - half, mean + half), REFERENCE, int(own["seeds"]))
    closest = min(goal.versus, key=lambda name: _or_least(rows[name]["lead_low"]))
    lead, low, high = (float(rows[closest][name]) for name in ("lead", "lead_low", "lead_high"))
    interval = Interval(-lead, -high, -low) if goal.kind is Kind.GAP else Interval(lead, low, high)
    return _Found(interval, closest, int(min(own["seeds"], rows[closest]["seeds"])))


def _or_least(value: float) -> float:
    """A missing interval decides against the goal."""
    return -math.inf if math.isnan(value) else value
