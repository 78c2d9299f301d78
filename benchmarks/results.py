"""Rows of the result tables: made from outcomes, printed and written."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import machine
from benchmarks.steps import Outcome
from benchmarks.timing import Ratio, Samples, ratio
from subjectdp.io.atomic import write_frame, write_json
from subjectdp.io.printing import print_table


@dataclass(frozen=True)
class Table:
    """What a table of rows was measured on.

    Attributes:
        batch: items of the mini-batch; runs of the sweep for the workload ``dag``; ε for ``calibration``.
        base: the method that ratios are taken to.
        clock: ``cpu`` or ``wall``, of the ratio.
        load: the machine's load average before the table was measured.
    """

    workload: str
    batch: float
    threads: int
    malloc: str
    base: str
    clock: str
    subjects: int | None = None
    load: float = 0.0


COLUMNS = (
    "workload",
    "method",
    "batch",
    "subjects",
    "threads",
    "malloc",
    "clock",
    "rounds",
    "ratio",  # median of the same-round ratios to the table's base, by its clock
    "ratio_low",  # quartiles
    "ratio_high",
    "noisy",  # the quartiles are further apart than a quarter of the median
    "cpu_ratio",
    "wall_ratio",
    "cpu_ms",  # median
    "wall_ms",
    "peak_memory_mb",  # of the steps above that of the built method, in 1e6 bytes
    "peak_memory_ratio",  # to the base's
    "value",  # σ of a calibration
    "status",
    "note",
    "load",  # average before the table was measured
    "processor",
)
"""Columns of a result file; a number that was not measured is empty."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """A table's rows with the times behind them."""

    table: Table
    rows: tuple[Row, ...]
    samples: Mapping[str, Samples]

    def compare(self, method: str, base: str) -> Ratio | None:
        """Same-round ratio of any two methods of the table, None if one was not timed."""
        if method not in self.samples or base not in self.samples:
            return None
        clock = self.table.clock
        return ratio(self.samples[method].of(clock), self.samples[base].of(clock))

    def row(self, method: str) -> Row | None:
        """The row of a method, None if there is none."""
        return next((row for row in self.rows if row["method"] == method), None)


def measured(table: Table, outcomes: Mapping[str, Outcome]) -> Measured:
    """Rows of a table from the outcomes of its methods."""
    samples = {name: outcome.samples for name, outcome in outcomes.items() if outcome.samples is not None}
    base = outcomes.get(table.base)
    rows = tuple(_row(table, name, outcome, base) for name, outcome in outcomes.items())
    return Measured(table, rows, samples)


def _row(table: Table, name: str, outcome: Outcome, base: Outcome | None) -> Row:
    row = dict.fromkeys(COLUMNS) | {"method": name, "rounds": 0, "noisy": False}
    row |= {key: value for key, value in asdict(table).items() if key in COLUMNS}
    row |= {"value": outcome.value, "status": outcome.status, "note": outcome.note}
    row["processor"] = machine.processor()
    if outcome.memory is not None:
        row["peak_memory_mb"] = outcome.memory / 1e6
        if base is not None and base.memory:
            row["peak_memory_ratio"] = outcome.memory / base.memory
    if outcome.samples is not None:
        row |= _times(outcome.samples)
        if base is not None and base.samples is not None:
            row |= _ratios(table.clock, outcome.samples, base.samples)
    return row


def _times(times: Samples) -> Row:
    return {
        "rounds": len(times.wall),
        "cpu_ms": 1e3 * statistics.median(times.cpu),
        "wall_ms": 1e3 * statistics.median(times.wall),
    }


def _ratios(clock: str, times: Samples, base: Samples) -> Row:
    found = {name: ratio(times.of(name), base.of(name)) for name in ("cpu", "wall")}
    main = found[clock]
    return {
        "ratio": main.median,
        "ratio_low": main.low,
        "ratio_high": main.high,
        "noisy": main.noisy,
        "cpu_ratio": found["cpu"].median,
        "wall_ratio": found["wall"].median,
    }


def print_measured(part: Measured) -> None:
    """Prints a table: methods, ratio with its quartiles, times, memory."""
    table = part.table
    size = {"dag": "runs", "calibration": "epsilon"}.get(table.workload, "B")
    about = f"{table.workload}, {size}={table.batch:g}, {table.threads} thread, {table.malloc} malloc"
    print(f"\n{about}; ratio to {table.base} by {table.clock} time on {machine.processor()}")
    print_table(
        ("method", "ratio", "quartiles", "cpu ms", "wall ms", "rounds", "memory", "memory ratio", ""),
        [_cells(row) for row in part.rows],
    )


def _cells(row: Row) -> tuple[Any, ...]:
    remarks = [] if row["status"] == "ok" else [f"{row['status']}: {row['note']}"]
    if row["status"] == "ok" and row["value"] is not None:
        remarks.append(row["note"])
    if row["noisy"]:
        remarks.append("noisy")
    return (
        row["method"],
        _fixed(row["ratio"], 2),
        None if row["ratio"] is None else f"{row['ratio_low']:.2f}-{row['ratio_high']:.2f}",
        _fixed(row["cpu_ms"], 1),
        _fixed(row["wall_ms"], 1),
        row["rounds"] or None,
        None if row["peak_memory_mb"] is None else f"{row['peak_memory_mb']:.0f} MB",
        _fixed(row["peak_memory_ratio"], 2),
        "; ".join(remarks),
    )


def _fixed(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def write_tables(folder: Path, parts: Sequence[Measured]) -> None:
    """Writes ``<workload>.csv`` with the rows and ``<workload>.json`` with the seconds of every round."""
    for workload in dict.fromkeys(part.table.workload for part in parts):
        own = [part for part in parts if part.table.workload == workload]
        rows = [row for part in own for row in part.rows]
        write_frame(folder / f"{workload}.csv", pd.DataFrame(rows, columns=list(COLUMNS), dtype=object))
        write_json(folder / f"{workload}.json", [_seconds(part) for part in own])


def _seconds(part: Measured) -> Row:
    return {**asdict(part.table), "seconds": {name: asdict(times) for name, times in part.samples.items()}}
