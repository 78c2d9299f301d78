"""Goals of the project and floors of the quick run: what was reached, met or missed by how much."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from subjectdp.benchmarks.harness import Ratio
from subjectdp.benchmarks.results import Measured
from subjectdp.io.text import print_table

ITEM, SGD = "subjectdp_item", "sgd"


@dataclass(frozen=True)
class Goal:
    """A bound on one measured number.

    Attributes:
        limit: the bound; ``at_least`` turns it round.
        measure: the number from a table, None where that table does not tell.
    """

    name: str
    limit: float
    measure: Callable[[Measured], Ratio | None]
    at_least: bool = False
    of_memory: bool = False  # needs what ``memory.unmeasurable`` asks for


@dataclass(frozen=True)
class Verdict:
    """A goal beside what was reached.

    Attributes:
        reached: None where it was not measured.
        missed_by: how far beyond the limit, as a part of it; 0 where the goal is met.
    """

    goal: str
    limit: str
    reached: float | None
    low: float | None
    high: float | None
    missed_by: float | None

    @property
    def met(self) -> bool:
        """Whether it was measured and lies within the limit."""
        return self.missed_by == 0.0


def judge(goals: Iterable[Goal], parts: Sequence[Measured]) -> list[Verdict]:
    """Each goal against the first table that tells, those with tuned malloc first."""
    ordered = sorted(parts, key=lambda part: part.table.malloc != "tuned")
    return [_judge(goal, ordered) for goal in goals]


def _judge(goal: Goal, parts: Sequence[Measured]) -> Verdict:
    limit = f"{'≥' if goal.at_least else '≤'} {goal.limit:g}"
    found = next((r for r in map(goal.measure, parts) if r is not None), None)
    if found is None:
        return Verdict(goal.name, limit, None, None, None, None)
    excess = found.median / goal.limit - 1 if not goal.at_least else 1 - found.median / goal.limit
    return Verdict(goal.name, limit, found.median, found.low, found.high, max(0.0, excess))


def print_verdicts(title: str, verdicts: Sequence[Verdict]) -> None:
    """Prints those that were measured as a table, and how many were not."""
    told = [verdict for verdict in verdicts if verdict.reached is not None]
    print(f"\n{title}")
    if told:
        print_table(("goal", "limit", "reached", "quartiles", ""), [_cells(verdict) for verdict in told])
    if len(told) < len(verdicts):
        print(f"not measured: {len(verdicts) - len(told)} of {len(verdicts)}")


def _cells(verdict: Verdict) -> tuple[Any, ...]:
    said = "met" if verdict.met else f"missed by {100 * (verdict.missed_by or 0):.0f} %"
    quartiles = f"{verdict.low:.2f}-{verdict.high:.2f}"
    return verdict.goal, verdict.limit, f"{verdict.reached:.2f}", quartiles, said


def records(verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """The goals for JSON and CSV."""
    return [{**asdict(verdict), "met": verdict.met} for verdict in verdicts]


# ---- what a table tells ---------------------------------------------------------------------------------------
def _of(workload: str, batch: float, method: str, base: str) -> Callable[[Measured], Ratio | None]:
    def measure(part: Measured) -> Ratio | None:
        if (part.table.workload, part.table.batch) != (workload, batch):
            return None
        return part.compare(method, base)

    return measure


def _against_opacus(workload: str, batch: float) -> Callable[[Measured], Ratio | None]:
    """How many times Opacus' fastest mode of the table takes as long as item clipping here."""

    def measure(part: Measured) -> Ratio | None:
        if (part.table.workload, part.table.batch) != (workload, batch):
            return None
        modes = [name for name in part.samples if name.startswith("opacus_")]
        ratios = [r for r in (part.compare(mode, ITEM) for mode in modes) if r is not None]
        return min(ratios, key=lambda r: r.median, default=None)

    return measure


def _memory(workload: str, batch: float, method: str = ITEM) -> Callable[[Measured], Ratio | None]:
    def measure(part: Measured) -> Ratio | None:
        row = part.row(method)
        if (part.table.workload, part.table.batch) != (workload, batch) or row is None:
            return None
        reached = row.peak_memory_ratio
        return None if reached is None else Ratio(reached, reached, reached)

    return measure


def _seconds(workload: str, batch: float, method: str) -> Callable[[Measured], Ratio | None]:
    """Median and range of the seconds of a method, by CPU time."""

    def measure(part: Measured) -> Ratio | None:
        if (part.table.workload, part.table.batch) != (workload, batch) or method not in part.samples:
            return None
        times = sorted(part.samples[method].cpu)
        return Ratio(times[len(times) // 2], times[0], times[-1])

    return measure


_CNN_BATCHES = (32, 64, 256, 512)
_SUBJECT_BATCHES = (64, 256)

GOALS: tuple[Goal, ...] = (
    *(
        Goal(f"CNN, B={batch}: private step over plain SGD", limit, _of("cnn", batch, ITEM, SGD))
        for batch, limit in ((512, 1.15), (256, 1.20), (64, 1.35))
    ),
    *(
        Goal(f"CNN, B={batch}: times faster than Opacus' best", 2.0, _against_opacus("cnn", batch), True)
        for batch in _CNN_BATCHES
    ),
    Goal("LSTM, B=100: private step over plain SGD", 1.3, _of("lstm", 100, ITEM, SGD)),
    Goal("LSTM, B=100: times faster than Opacus' best", 7.0, _against_opacus("lstm", 100), True),
    *(
        Goal(
            f"CNN, B={batch}: HiGradAvgDP over item clipping",
            1.10,
            _of("cnn", batch, "subjectdp_higrad", ITEM),
        )
        for batch in _CNN_BATCHES
    ),
    Goal("LSTM, B=100: HiGradAvgDP over item clipping", 1.10, _of("lstm", 100, "subjectdp_higrad", ITEM)),
    *(
        Goal(
            f"CNN, B={batch}: clipping by subject over item clipping",
            1.10,
            _of("subjects", batch, "subjectdp_subject", ITEM),
        )
        for batch in _SUBJECT_BATCHES
    ),
    *(
        Goal(f"CNN, B={batch}: peak memory over plain SGD", 1.2, _memory("cnn", batch), of_memory=True)
        for batch in _CNN_BATCHES
    ),
    Goal("LSTM, B=100: peak memory over plain SGD", 1.2, _memory("lstm", 100), of_memory=True),
    Goal("CNN, B=64: round loop over bare steps", 1.05, _of("round", 64, "subjectdp_round", "bare_steps")),
    *(
        Goal(
            f"ε={epsilon}: CPU seconds to calibrate σ", 0.5, _seconds("calibration", epsilon, "subjectdp_pld")
        )
        for epsilon in (1, 4, 8)
    ),
    Goal("dry run of 2,000 runs: CPU seconds", 10.0, _seconds("dag", 2000, "dry_run")),
)
"""The goals that the full run measures, with tuned malloc; those of a GPU are not among them."""

FLOORS: tuple[Goal, ...] = (
    Goal("CNN, B=64: private step over plain SGD", 1.7, _of("cnn", 64, ITEM, SGD)),
    Goal("CNN, B=64: times faster than Opacus ghost", 1.5, _against_opacus("cnn", 64), True),
    Goal("CNN, B=64: HiGradAvgDP over item clipping", 1.3, _of("cnn", 64, "subjectdp_higrad", ITEM)),
    Goal("CNN, B=64: peak memory over plain SGD", 1.8, _memory("cnn", 64), of_memory=True),
    Goal("small LSTM, B=32: private step over plain SGD", 3.5, _of("small_lstm", 32, ITEM, SGD)),
    Goal("small LSTM, B=32: times faster than Opacus", 3.0, _against_opacus("small_lstm", 32), True),
    Goal("ε=4: CPU seconds to calibrate σ", 2.0, _seconds("calibration", 4, "subjectdp_pld")),
)
"""Loose bounds of the quick run: a machine under load keeps them, a broken engine does not."""
