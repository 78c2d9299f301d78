"""Goals of the full run and floors of the quick run (goals.csv): met, undecided, or missed by how much.

Floors are loose: a machine under load keeps them, a broken engine does not.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks.results import Measured
from subjectdp.io.printing import print_table
from subjectdp.scorecard.thresholds import Direction, Interval, Threshold, Verdict

_FILE = Path(__file__).with_name("goals.csv")
_SIGN = {Direction.AT_LEAST: "≥", Direction.AT_MOST: "≤", Direction.MORE_THAN: ">"}


@dataclass(frozen=True)
class Goal:
    """A threshold of one measured number.

    Attributes:
        workload, batch: the table that has the number.
        measure: ``ratio`` of two methods' times, peak ``memory`` over the base's, or CPU ``seconds``.
        method: a name, or a pattern; the fastest method that fits it counts.
    """

    name: str
    workload: str
    batch: float
    measure: str
    method: str
    base: str
    threshold: Threshold

    @property
    def text(self) -> str:
        """The threshold for people: ``≤ 1.2``."""
        return f"{_SIGN[self.threshold.direction]} {self.threshold.limit:g}"

    def of(self, part: Measured) -> Interval | None:
        """The number with its quartiles (ratio) or range (seconds); None if the table does not have it."""
        if (part.table.workload, part.table.batch) != (self.workload, self.batch):
            return None
        names = [row["method"] for row in part.rows if fnmatch(row["method"], self.method)]
        measure = {"ratio": self._ratio, "memory": self._memory, "seconds": self._seconds}[self.measure]
        found = [interval for name in names if (interval := measure(part, name)) is not None]
        return min(found, key=lambda interval: interval.value, default=None)

    def _ratio(self, part: Measured, method: str) -> Interval | None:
        found = part.compare(method, self.base)
        return None if found is None else Interval(found.median, found.low, found.high)

    def _memory(self, part: Measured, method: str) -> Interval | None:
        row = part.row(method)
        reached = None if row is None else row["peak_memory_ratio"]
        return None if reached is None else Interval(reached, reached, reached)

    def _seconds(self, part: Measured, method: str) -> Interval | None:
        samples = part.samples.get(method)
        if samples is None:
            return None
        return Interval(statistics.median(samples.cpu), min(samples.cpu), max(samples.cpu))


@dataclass(frozen=True)
class Judged:
    """A goal with the number that was reached, None if not measured.

    Attributes:
        missed_by: how far the number is beyond the limit, as a part of it; 0 within the limit.
    """

    goal: str
    limit: str
    reached: float | None
    low: float | None
    high: float | None
    missed_by: float | None
    verdict: Verdict

    @property
    def met(self) -> bool:
        """Whether the goal is met."""
        return self.verdict is Verdict.MET


def read_goals(run: str) -> list[Goal]:
    """The goals of the ``full`` run or the floors of the ``quick`` run."""
    with _FILE.open(newline="", encoding="utf-8") as stream:
        return [_goal(row) for row in csv.DictReader(stream) if row["run"] == run]


def _goal(row: dict[str, str]) -> Goal:
    threshold = Threshold(float(row["limit"]), Direction(row["direction"]))
    names = (row["measure"], row["method"], row["base"])
    return Goal(row["goal"], row["workload"], float(row["batch"]), *names, threshold)


def judge(goals: Iterable[Goal], parts: Sequence[Measured], by_median: bool = False) -> list[Judged]:
    """Each goal by the first table that has its number, tables with tuned malloc first.

    A goal is judged by the whole interval; ``by_median`` leaves nothing undecided.
    """
    ordered = sorted(parts, key=lambda part: part.table.malloc != "tuned")
    return [_judge(goal, ordered, by_median) for goal in goals]


def _judge(goal: Goal, parts: Sequence[Measured], by_median: bool) -> Judged:
    found = next((interval for part in parts if (interval := goal.of(part)) is not None), None)
    if found is None:
        return Judged(goal.name, goal.text, None, None, None, None, Verdict.NOT_RUN)
    decisive = Interval(found.value, found.value, found.value) if by_median else found
    verdict, _ = goal.threshold.judge(decisive)
    missed_by = goal.threshold.shortfall(found.value)
    return Judged(goal.name, goal.text, found.value, found.low, found.high, missed_by, verdict)


def print_judged(title: str, judged: Sequence[Judged]) -> None:
    """Prints the goals that were measured as a table, and how many were not."""
    rows = [_cells(goal) for goal in judged if goal.verdict is not Verdict.NOT_RUN]
    print(f"\n{title}")
    if rows:
        print_table(("goal", "limit", "reached", "quartiles", ""), rows)
    if len(rows) < len(judged):
        print(f"not measured: {len(judged) - len(rows)} of {len(judged)}")


def _cells(goal: Judged) -> tuple[Any, ...]:
    by = f" by {100 * (goal.missed_by or 0):.0f} %" if goal.verdict is Verdict.MISSED else ""
    quartiles = f"{goal.low:.2f}-{goal.high:.2f}"
    return goal.goal, goal.limit, f"{goal.reached:.2f}", quartiles, f"{goal.verdict}{by}"


def records(judged: Iterable[Judged]) -> list[dict[str, Any]]:
    """The goals for JSON and CSV."""
    return [{**asdict(goal), "met": goal.met} for goal in judged]
