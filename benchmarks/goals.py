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
from benchmarks.timing import Interval
from subjectdp.io import printing

_FILE = Path(__file__).with_name("goals.csv")
MET, MISSED, UNDECIDED, NOT_RUN = "met", "missed", "undecided", "not run"

Goal = dict[str, str]
"""A row of goals.csv: ``measure`` is the ``ratio`` of two methods' times, peak ``memory`` over the base's, or CPU
``seconds``; ``method`` is a name or a pattern, of which the fastest counts."""


def read_goals(run: str) -> list[Goal]:
    """The goals of the ``full`` run or the floors of the ``quick`` run."""
    with _FILE.open(newline="", encoding="utf-8") as stream:
        return [row for row in csv.DictReader(stream) if row["run"] == run]


def judge(goals: Iterable[Goal], tables: Sequence[Table], by_median: bool = False) -> list[dict[str, Any]]:
    """One record a goal, by the first table that has its number.

    A goal is judged by the whole interval; ``by_median`` leaves nothing undecided.
    """
    judged = []
    for goal in goals:
        found = next((interval for table in tables if (interval := _reached(goal, table)) is not None), None)
        limit, most = float(goal["limit"]), goal["direction"] == "at most"
        record: dict[str, Any] = {
            "goal": goal["goal"],
            "limit": f"{'≤' if most else '≥'} {limit:g}",
            "verdict": NOT_RUN,
        }
        if found is not None:
            decisive = Interval(*[found.value] * 3) if by_median else found
            excess = (found.value / limit - 1) * (1 if most else -1)
            record |= {**found._asdict(), "missed_by": max(0.0, excess), "verdict": verdict(decisive, limit, most)}
        judged.append(record)
    return judged


def verdict(measured: Interval, limit: float, most: bool) -> str:
    """Met or missed if the whole interval is on one side of the limit, which belongs to the goal; else undecided."""
    worst, best = (measured.high, measured.low) if most else (-measured.low, -measured.high)
    limit = limit if most else -limit
    return MET if worst <= limit else MISSED if best > limit else UNDECIDED


def _reached(goal: Goal, table: Table) -> Interval | None:
    """The number with its quartiles (ratio) or range (seconds); None if the table does not have it."""
    if (table.workload, table.batch) != (goal["workload"], float(goal["batch"])):
        return None
    found = [_measured(goal, table, name) for name in table.outcomes if fnmatch(name, goal["method"])]
    return min((interval for interval in found if not isnan(interval.value)), default=None)


def _measured(goal: Goal, table: Table, method: str) -> Interval:
    if goal["measure"] == "ratio":
        return table.compare(method, goal["base"])
    if goal["measure"] == "memory":
        return Interval(*[table.memory_ratio(method)] * 3)
    seconds = table.outcomes[method].cpu or [nan]
    return Interval(statistics.median(seconds), min(seconds), max(seconds))


def print_judged(title: str, judged: Sequence[dict[str, Any]]) -> None:
    """Prints the goals that were measured as a table, and how many were not."""
    rows = [_cells(goal) for goal in judged if goal["verdict"] != NOT_RUN]
    print(f"\n{title}")
    if rows:
        printing.print_table(("goal", "limit", "reached", "quartiles", ""), rows)
    if len(rows) < len(judged):
        print(f"not measured: {len(judged) - len(rows)} of {len(judged)}")


def _cells(goal: dict[str, Any]) -> tuple[Any, ...]:
    by = f" by {100 * goal['missed_by']:.0f} %" if goal["verdict"] == MISSED else ""
    quartiles = f"{goal['low']:.3g}-{goal['high']:.3g}"
    return goal["goal"], goal["limit"], f"{goal['value']:.3g}", quartiles, f"{goal['verdict']}{by}"
