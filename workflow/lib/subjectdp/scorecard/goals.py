"""The project's own goals beyond the papers, judged by rule on the sound runs of a scenario: config/goals.csv.

A goal is about SubjectRelease on subjects that lie evenly over all silos, at one ε and one number of subjects whose
noise is added; :mod:`subjectdp.scorecard.leads` gives what is compared.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd

from subjectdp.algorithms.registry import label
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import ConfigError, expected
from subjectdp.io.atomic import write_frame
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
from subjectdp.scorecard.leads import REFERENCE, leads

COLUMNS = ["goal", "statement", "kind", "dataset", "noise_subjects", "epsilon", "versus", "limit"]
"""Columns of the file, in their order."""


Rows = dict[str, dict[Hashable, Any]]  # of the leads, by algorithm


class Kind(StrEnum):
    """What is compared with a goal's limit."""

    ACCURACY = "accuracy"  # test accuracy in per cent: at least
    GAP = "gap"  # points below the algorithm without privacy: at most
    LEAD = "lead"  # points above every algorithm of ``versus``: more than


class Reached(StrEnum):
    """What can be said of a goal."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Goal:
    """One goal; ``versus`` holds labels as figures have them, FedAvg alone for a gap, none for an accuracy."""

    name: str
    statement: str
    kind: Kind
    dataset: str
    noise_subjects: int
    epsilon: float
    versus: tuple[str, ...]
    limit: float


def read_goals(path: Path | str) -> list[Goal]:
    """The goals of a CSV with :data:`COLUMNS`; ConfigError names the row, the column, the value and what is allowed."""
    return [_goal(row, where) for where, row in read_rows(Path(path), "goals", COLUMNS)]


def judge_goals(goals: Iterable[Goal], runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each goal: verdict, reason, ours with its 95 % interval, seeds, and who decided.

    A goal is met where the whole interval lies on its side of the limit, missed where the whole interval lies on the
    other, undecided else, with one seed, and on generated data. Against several algorithms the one with the least lead
    decides.
    """
    table = leads(runs)
    made = {str(name) for name, part in runs.groupby("dataset") if part["synthetic"].any()}
    return pd.DataFrame([_judged(goal, table, goal.dataset in made) for goal in goals])


def write_goals(goals_csv: Path | str, runs_parquet: Path | str, target: Path | str) -> pd.DataFrame:
    """Writes :func:`judge_goals` of a runs.parquet as CSV."""
    table = judge_goals(read_goals(goals_csv), read_frame(runs_parquet, RUN_COLUMNS))
    write_frame(target, table)
    return table


def _goal(row: dict[str, str], where: str) -> Goal:
    kind = Kind(one_of(row["kind"], [kind.value for kind in Kind], f"{where}, kind"))
    names = [known_algorithm(name, where) for name in row["versus"].split()]
    wrong = {
        Kind.ACCURACY: ("empty (accuracy)", bool(names)),
        Kind.GAP: ("fed_avg (gap)", names != ["fed_avg"]),
        Kind.LEAD: ("one algorithm or more, and not fed_avg (lead)", not names or "fed_avg" in names),
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
        subjects,
        epsilon,
        tuple(_label(name) for name in names),
        limit,
    )


def _label(name: str) -> str:
    plain, _, variant = name.partition(":")
    return label(plain, variant or None)


def _judged(goal: Goal, table: pd.DataFrame, synthetic: bool) -> dict[str, object]:
    at = table["noise_subjects"].eq(goal.noise_subjects) & table["epsilon"].eq(goal.epsilon)
    shown = table[at & table["dataset"].eq(goal.dataset)]
    rows: Rows = {str(row["algorithm"]): row for row in shown.to_dict("records")}
    missing = [name for name in (REFERENCE, *goal.versus) if name not in rows]
    found, decided_by, seeds = [math.nan] * 3, "", 0
    if not missing:
        found, decided_by, seeds = _found(goal, rows)
    verdict, reason = _verdict(goal, found, missing, synthetic)
    ours, low, high = (round(value, 3) for value in found)
    return {
        "goal": goal.name,
        "statement": goal.statement,
        "verdict": verdict.value,
        "reason": reason,
        "limit": goal.limit,
        "ours": ours,
        "low": low,
        "high": high,
        "seeds": seeds,
        "decided_by": decided_by,
        "dataset": goal.dataset,
        "noise_subjects": goal.noise_subjects,
        "epsilon": goal.epsilon,
        "epsilon_own_subject": math.nan if missing else rows[REFERENCE]["epsilon_own_subject"],
    }


def _found(goal: Goal, rows: Rows) -> tuple[list[float], str, int]:
    """Ours with its interval, the algorithm that decides, and the seeds."""
    own = rows[REFERENCE]
    if goal.kind is Kind.ACCURACY:
        mean, half = float(own["test_accuracy_percent"]), float(own["test_accuracy_half_width"])
        return [mean, mean - half, mean + half], REFERENCE, int(own["seeds"])
    closest = min(goal.versus, key=lambda name: _or_least(rows[name]["lead_low"]))
    lead = [float(rows[closest][name]) for name in ("lead", "lead_low", "lead_high")]
    seeds = int(min(own["seeds"], rows[closest]["seeds"]))
    return ([-lead[0], -lead[2], -lead[1]] if goal.kind is Kind.GAP else lead), closest, seeds


def _or_least(value: float) -> float:
    """An interval that there is not decides against the goal."""
    return -math.inf if math.isnan(value) else value


def _verdict(
    goal: Goal, found: Sequence[float], missing: Sequence[str], synthetic: bool
) -> tuple[Reached, str]:
    if missing:
        return Reached.NOT_RUN, f"no sound runs of {', '.join(missing)} at this ε and number of subjects"
    if synthetic:
        return Reached.UNDECIDED, "generated data"
    _, low, high = found
    if math.isnan(low) or math.isnan(high):
        return Reached.UNDECIDED, "one seed gives no interval"
    if goal.kind is Kind.GAP:
        low, high, limit = -high, -low, -goal.limit
    else:
        limit = goal.limit
    if low > limit or (low == limit and goal.kind is not Kind.LEAD):
        return Reached.MET, "the whole interval is on the goal's side"
    if high < limit:
        return Reached.MISSED, "the whole interval is on the other side"
    return Reached.UNDECIDED, "the interval holds the limit"
