"""Rows of the result tables: their columns, how they are made from outcomes, printed and written."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subjectdp.benchmarks.harness import Ratio, ratio
from subjectdp.io.atomic import write_json, write_text
from subjectdp.io.text import print_table

if TYPE_CHECKING:
    from subjectdp.benchmarks.harness import Samples
    from subjectdp.benchmarks.steps import Outcome


@dataclass(frozen=True)
class Table:
    """Where a group of rows was measured.

    Attributes:
        batch: items of the mini-batch; runs of the sweep for the workload ``dag``; ε for ``calibration``.
        base: the method that ratios are taken to.
        clock: ``cpu`` or ``wall``, of the ratio.
    """

    workload: str
    batch: float
    threads: int
    malloc: str
    base: str
    clock: str
    subjects: int | None = None


@dataclass(frozen=True)
class Row:
    """One line of a result file; numbers are None where nothing was measured.

    Attributes:
        ratio: median of the same-round ratios to the table's base, by its clock; low and high are quartiles.
        cpu_ms: median CPU time; wall_ms likewise.
        peak_memory_mb: memory of the steps above what the built method holds, in MB (1e6 bytes).
        peak_memory_ratio: the same over the base's.
        noisy: whether the spread of the ratio is above a quarter of it.
        value: σ of a calibration.
        load: the machine's load average when the table was measured.
    """

    workload: str
    method: str
    batch: float
    subjects: int | None
    threads: int
    malloc: str
    clock: str
    rounds: int
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    noisy: bool
    cpu_ratio: float | None
    wall_ratio: float | None
    cpu_ms: float | None
    wall_ms: float | None
    peak_memory_mb: float | None
    peak_memory_ratio: float | None
    value: float | None
    status: str
    note: str
    load: float


COLUMNS = tuple(field.name for field in fields(Row))


@dataclass(frozen=True)
class Measured:
    """A table's rows with the times behind them."""

    table: Table
    rows: tuple[Row, ...]
    samples: Mapping[str, Samples]

    def compare(self, method: str, base: str) -> Ratio | None:
        """Same-round ratio of any two methods of the table, None where one was not timed."""
        if method not in self.samples or base not in self.samples:
            return None
        clock = self.table.clock
        return ratio(self.samples[method].of(clock), self.samples[base].of(clock))

    def row(self, method: str) -> Row | None:
        """The row of a method, None where there is none."""
        return next((row for row in self.rows if row.method == method), None)


def measured(table: Table, outcomes: Mapping[str, Outcome], load: float) -> Measured:
    """Rows of a table from the outcomes of its methods."""
    samples = {name: outcome.samples for name, outcome in outcomes.items() if outcome.samples is not None}
    base = samples.get(table.base)
    base_memory = outcomes[table.base].memory if table.base in outcomes else None
    rows = tuple(_row(table, name, outcome, base, base_memory, load) for name, outcome in outcomes.items())
    return Measured(table, rows, samples)


def _row(
    table: Table, name: str, outcome: Outcome, base: Samples | None, base_memory: int | None, load: float
) -> Row:
    times, ratios = outcome.samples, {}
    if times is not None and base is not None:
        ratios = {clock: ratio(times.of(clock), base.of(clock)) for clock in ("cpu", "wall")}
    main = ratios.get(table.clock)
    return Row(
        workload=table.workload,
        method=name,
        batch=table.batch,
        subjects=table.subjects,
        threads=table.threads,
        malloc=table.malloc,
        clock=table.clock,
        rounds=0 if times is None else len(times.wall),
        ratio=None if main is None else main.median,
        ratio_low=None if main is None else main.low,
        ratio_high=None if main is None else main.high,
        noisy=main is not None and main.noisy,
        cpu_ratio=ratios["cpu"].median if ratios else None,
        wall_ratio=ratios["wall"].median if ratios else None,
        cpu_ms=None if times is None else 1e3 * statistics.median(times.cpu),
        wall_ms=None if times is None else 1e3 * statistics.median(times.wall),
        peak_memory_mb=None if outcome.memory is None else outcome.memory / 1e6,
        peak_memory_ratio=outcome.memory / base_memory
        if outcome.memory is not None and base_memory
        else None,
        value=outcome.value,
        status=outcome.status,
        note=outcome.note,
        load=load,
    )


def print_measured(part: Measured) -> None:
    """Prints a table: methods, ratio with its quartiles, times, memory."""
    table = part.table
    size = {"dag": "runs", "calibration": "epsilon"}.get(table.workload, "B")
    about = f"{table.workload}, {size}={table.batch:g}, {table.threads} thread, {table.malloc} malloc"
    print(f"\n{about}; ratio to {table.base} by {table.clock} time")
    print_table(
        ("method", "ratio", "quartiles", "cpu ms", "wall ms", "rounds", "memory", "memory ratio", ""),
        [_cells(row) for row in part.rows],
    )


def _cells(row: Row) -> tuple[Any, ...]:
    quartiles = None if row.ratio_low is None else f"{row.ratio_low:.2f}-{row.ratio_high:.2f}"
    remarks = [] if row.status == "ok" else [f"{row.status}: {row.note}"]
    if row.status == "ok" and row.value is not None:
        remarks.append(row.note)
    if row.noisy:
        remarks.append("noisy")
    return (
        row.method,
        _fixed(row.ratio, 2),
        quartiles,
        _fixed(row.cpu_ms, 1),
        _fixed(row.wall_ms, 1),
        row.rounds or None,
        None if row.peak_memory_mb is None else f"{row.peak_memory_mb:.0f} MB",
        _fixed(row.peak_memory_ratio, 2),
        "; ".join(remarks),
    )


def _fixed(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def write_tables(folder: Path, parts: Sequence[Measured]) -> list[Path]:
    """Writes for each workload ``<workload>.csv`` with its rows and ``.json`` with the seconds of every round."""
    written = []
    for workload in dict.fromkeys(part.table.workload for part in parts):
        own = [part for part in parts if part.table.workload == workload]
        written += [folder / f"{workload}.csv", folder / f"{workload}.json"]
        write_text(written[-2], csv_text(row for part in own for row in part.rows))
        write_json(written[-1], [samples_record(part) for part in own])
    return written


def csv_text(rows: Iterable[Row]) -> str:
    """The rows as CSV with the columns of :class:`Row`; None is an empty field."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return stream.getvalue()


def samples_record(part: Measured) -> dict[str, Any]:
    """A table with the seconds of every round, for JSON."""
    return {**asdict(part.table), "seconds": {name: asdict(times) for name, times in part.samples.items()}}
