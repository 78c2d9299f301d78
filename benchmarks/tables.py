"""The result tables: their rows, printed and written, and the machine that they were measured on."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.timing import Interval, Outcome, ratio
from subjectdp.io.atomic import write_frame, write_json

NOISY = 0.25
"""A row is marked noisy if its interquartile range exceeds this part of its median."""
_SHOWN = ["method", "ratio", "ratio_low", "ratio_high", "cpu_ms", "wall_ms", "rounds", "peak_memory_mb"]
_PACKAGES = ("torch", "opacus", "dp-accounting", "snakemake")
_CPUINFO = Path("/proc/cpuinfo")


def machine() -> dict[str, Any]:
    """Processor, cores, load of the last minute, operating system, Python, versions of the measured packages."""
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or "unknown processor",
        "cores": os.cpu_count() or 1,
        "load": round(os.getloadavg()[0], 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _PACKAGES},
    }


@dataclass(frozen=True)
class Table:
    """The outcomes of a table's methods.

    Attributes:
        batch: items of the mini-batch; runs of the sweep for the workload ``dag``; ε for ``calibration``.
        base: the method that ratios are taken to.
        clock: of the ratios: ``cpu``, or ``wall`` where methods work in several processes.
    """

    workload: str
    batch: float
    base: str
    outcomes: dict[str, Outcome]
    clock: str = "cpu"

    def compare(self, method: str, base: str) -> Interval:
        """Same-round ratio of two methods' times with quartiles; NaN if one was not timed."""
        times, base_times = (getattr(self.outcomes.get(name, Outcome()), self.clock) for name in (method, base))
        return ratio(times, base_times) if times and base_times else Interval(nan, nan, nan)

    def memory_ratio(self, method: str) -> float:
        """Peak memory over the base's; NaN if one was not measured."""
        memory, base = self.outcomes[method].memory, self.outcomes.get(self.base, Outcome()).memory
        return memory / base if memory and base else nan

    def rows(self) -> list[dict[str, Any]]:
        """One row a method; a number that was not measured is NaN."""
        return [self._row(name) for name in self.outcomes]

    def _row(self, name: str) -> dict[str, Any]:
        outcome, found = self.outcomes[name], self.compare(name, self.base)
        return {
            "workload": self.workload,
            "method": name,
            "batch": self.batch,
            "clock": self.clock,
            "rounds": len(outcome.wall),
            "ratio": found.value,  # median of the same-round ratios to the table's base
            "ratio_low": found.low,  # quartiles
            "ratio_high": found.high,
            "noisy": found.high - found.low > NOISY * found.value,
            "cpu_ms": 1e3 * statistics.median(outcome.cpu or [nan]),
            "wall_ms": 1e3 * statistics.median(outcome.wall or [nan]),
            "peak_memory_mb": nan if outcome.memory is None else outcome.memory / 1e6,
            "peak_memory_ratio": self.memory_ratio(name),
            "status": outcome.status,
            "note": outcome.note,
        }


def print_table(table: Table) -> None:
    """Prints a table: methods, ratio with its quartiles, times, memory, remarks."""
    size = {"dag": "runs", "calibration": "epsilon"}.get(table.workload, "B")
    print(f"\n{table.workload}, {size}={table.batch:g}; ratio to {table.base} by {table.clock} time")
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
        write_frame(folder / f"{workload}.csv", pd.DataFrame([row for table in own for row in table.rows()]))
        seconds = [
            {"batch": table.batch, "method": name, "cpu": outcome.cpu, "wall": outcome.wall}
            for table in own
            for name, outcome in table.outcomes.items()
        ]
        write_json(folder / f"{workload}.json", seconds)
