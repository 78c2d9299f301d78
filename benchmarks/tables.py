"""The result tables: their rows, printed and written."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import machine
from benchmarks.thresholds import Interval
from benchmarks.timing import Outcome, ratio
from subjectdp.io.atomic import write_frame, write_json

NOISY = 0.25
"""A row is marked noisy if its interquartile range exceeds this part of its median."""
_SHOWN = ["method", "ratio", "ratio_low", "ratio_high", "cpu_ms", "wall_ms", "rounds", "peak_memory_mb"]
_SHOWN += ["peak_memory_ratio"]


@dataclass(frozen=True)
class Table:
    """The outcomes of a table's methods, and what they were measured on.

    Attributes:
        batch: items of the mini-batch; runs of the sweep for the workload ``dag``; ε for ``calibration``.
        base: the method that ratios are taken to.
        load: the machine's load average before the table was measured.
        by_wall: ratios are of wall times whatever the threads, since methods work in several processes.
    """

    workload: str
    batch: float
    base: str
    outcomes: dict[str, Outcome]
    malloc: str = "default"
    threads: int = 1
    subjects: int | None = None
    load: float = 0.0
    by_wall: bool = False

    @property
    def clock(self) -> str:
        """The time of the ratios: ``cpu`` with one thread unless ``by_wall``, else ``wall``."""
        return "cpu" if self.threads == 1 and not self.by_wall else "wall"

    def compare(self, method: str, base: str, clock: str) -> Interval:
        """Same-round ratio of two methods' times with quartiles; NaN if one was not timed."""
        times, base_times = (getattr(self.outcomes.get(name, Outcome()), clock) for name in (method, base))
        return ratio(times, base_times) if times and base_times else Interval(nan, nan, nan)

    def memory_ratio(self, method: str) -> float:
        """Peak memory over the base's; NaN if one was not measured."""
        memory, base = self.outcomes[method].memory, self.outcomes.get(self.base, Outcome()).memory
        return memory / base if memory and base else nan

    def rows(self) -> list[dict[str, Any]]:
        """One row a method; a number that was not measured is NaN."""
        return [self._row(name) for name in self.outcomes]

    def _row(self, name: str) -> dict[str, Any]:
        outcome = self.outcomes[name]
        ratios = {clock: self.compare(name, self.base, clock) for clock in ("cpu", "wall")}
        found = ratios[self.clock]
        return {
            "workload": self.workload,
            "method": name,
            "batch": self.batch,
            "subjects": self.subjects,
            "threads": self.threads,
            "malloc": self.malloc,
            "clock": self.clock,
            "rounds": len(outcome.wall),
            "ratio": found.value,  # median of the same-round ratios to the table's base, by its clock
            "ratio_low": found.low,  # quartiles
            "ratio_high": found.high,
            "noisy": found.high - found.low > NOISY * found.value,
            "cpu_ratio": ratios["cpu"].value,
            "wall_ratio": ratios["wall"].value,
            "cpu_ms": 1e3 * statistics.median(outcome.cpu or [nan]),
            "wall_ms": 1e3 * statistics.median(outcome.wall or [nan]),
            "peak_memory_mb": nan if outcome.memory is None else outcome.memory / 1e6,
            "peak_memory_ratio": self.memory_ratio(name),
            "value": nan if outcome.value is None else outcome.value,  # σ of a calibration
            "status": outcome.status,
            "note": outcome.note,
            "load": self.load,  # average before the table was measured
            "processor": machine.processor(),
        }


def print_table(table: Table) -> None:
    """Prints a table: methods, ratio with its quartiles, times, memory, remarks."""
    size = {"dag": "runs", "calibration": "epsilon"}.get(table.workload, "B")
    about = f"{table.workload}, {size}={table.batch:g}, {table.threads} thread, {table.malloc} malloc"
    print(f"\n{about}; ratio to {table.base} by {table.clock} time on {machine.processor()}")
    rows = table.rows()
    shown = pd.DataFrame(rows)[_SHOWN].assign(remark=[_remark(row) for row in rows])
    print(shown.to_string(index=False, na_rep="-", float_format="{:.2f}".format))


def _remark(row: dict[str, Any]) -> str:
    if row["status"] != "ok":
        return f"{row['status']}: {row['note']}"
    return "; ".join([row["note"]] * (row["workload"] == "calibration") + ["noisy"] * row["noisy"])


def write_tables(folder: Path, tables: Sequence[Table]) -> None:
    """Writes ``<workload>.csv`` with the rows and ``<workload>.json`` with the seconds of every round."""
    for workload in {table.workload for table in tables}:
        own = [table for table in tables if table.workload == workload]
        rows = [row for table in own for row in table.rows()]
        write_frame(folder / f"{workload}.csv", pd.DataFrame(rows, dtype=object))
        write_json(folder / f"{workload}.json", [_seconds(table) for table in own])


def _seconds(table: Table) -> dict[str, Any]:
    timed = {name: outcome for name, outcome in table.outcomes.items() if outcome.wall}
    seconds = {name: {"cpu": outcome.cpu, "wall": outcome.wall} for name, outcome in timed.items()}
    about = {name: value for name, value in vars(table).items() if name != "outcomes"}
    return {**about, "clock": table.clock, "seconds": seconds}
