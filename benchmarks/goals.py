"""Goals of the full run and floors of the quick run (goals.csv): met, undecided, or missed by how much.

Floors are loose: a machine under load keeps them, a broken engine does not.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from math import isnan, nan
from pathlib import Path
from typing import Any

from benchmarks.tables import Table
from benchmarks.thresholds import Direction, Interval, Threshold, Verdict
from subjectdp.io import printing

_FILE = Path(__file__).with_name("goals.csv")
_SIGN = {Direction.AT_LEAST: "≥", Direction.AT_MOST: "≤", Direction.MORE_THAN: ">"}


Goal = dict[str, str]
"""A row of goals.csv: ``measure`` is the ``ratio`` of two methods' times, peak ``memory`` over the base's, or CPU
``seconds``; ``method`` is a name or a pattern, of which the fastest counts."""


def read_goals(run: str) -> list[Goal]:
    """The goals of the ``full`` run or the floors of the ``quick`` run."""
    with _FILE.open(newline="", encoding="utf-8") as stream:
        return [row for row in csv.DictReader(stream) if row["run"] == run]


def threshold(goal: Goal) -> Threshold:
    """The goal's limit."""
    return Threshold(float(goal["limit"]), Direction(goal["direction"]))


def _reached(goal: Goal, table: Table) -> Interval | None:
    """The number with its quartiles (ratio) or range (seconds); None if the table does not have it."""
    if (table.workload, table.batch) != (goal["workload"], float(goal["batch"])):
        return None
    found = [_measured(goal, table, name) for name in table.outcomes if fnmatch(name, goal["method"])]
    known = [interval for interval in found if not isnan(interval.value)]
    return min(known, key=lambda interval: interval.value, default=None)


def _measured(goal: Goal, table: Table, method: str) -> Interval:
    if goal["measure"] == "ratio":
        return table.compare(method, goal["base"], table.clock)
    if goal["measure"] == "memory":
        reached = table.memory_ratio(method)
        return Interval(reached, reached, reached)
    seconds = table.outcomes[method].cpu or [nan]
    return Interval(statistics.median(seconds), min(seconds), max(seconds))


def judge(goals: Iterable[Goal], tables: Sequence[Table], by_median: bool = False) -> list[dict[str, Any]]:
    """One record a goal, by the first table that has its number, tables with tuned malloc first.

    A goal is judged by the whole interval; ``by_median`` leaves nothing undecided.
    """
    ordered = sorted(tables, key=lambda table: table.malloc != "tuned")
    return [_judge(goal, ordered, by_median) for goal in goals]


def _judge(goal: Goal, tables: Sequence[Table], by_median: bool) -> dict[str, Any]:
    found = next((interval for table in tables if (interval := _reached(goal, table)) is not None), None)
    limit, verdict = threshold(goal), Verdict.NOT_RUN
    if found is not None:
        decisive = Interval(found.value, found.value, found.value) if by_median else found
        verdict, _ = limit.judge(decisive)
    return {
        "goal": goal["goal"],
        "limit": f"{_SIGN[limit.direction]} {limit.limit:g}",
        "reached": found and found.value,
        "low": found and found.low,
        "high": found and found.high,
        "missed_by": found and limit.shortfall(found.value),  # as a part of the limit; 0 within it
        "verdict": verdict,
        "met": verdict is Verdict.MET,
    }


def print_judged(title: str, judged: Sequence[dict[str, Any]]) -> None:
    """Prints the goals that were measured as a table, and how many were not."""
    rows = [_cells(goal) for goal in judged if goal["verdict"] is not Verdict.NOT_RUN]
    print(f"\n{title}")
    if rows:
        printing.print_table(("goal", "limit", "reached", "quartiles", ""), rows)
    if len(rows) < len(judged):
        print(f"not measured: {len(judged) - len(rows)} of {len(judged)}")


def _cells(goal: dict[str, Any]) -> tuple[Any, ...]:
    by = f" by {100 * goal['missed_by']:.0f} %" if goal["verdict"] is Verdict.MISSED else ""
    quartiles = f"{goal['low']:.3g}-{goal['high']:.3g}"
    return goal["goal"], goal["limit"], f"{goal['reached']:.3g}", quartiles, f"{goal['verdict']}{by}"
