"""``subjectdp bench``: runs the suite, prints and writes its tables, and judges the goals or the floors."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd

from subjectdp.benchmarks import goals, machine
from subjectdp.benchmarks.memory import unmeasurable
from subjectdp.benchmarks.methods import METHODS, check_names
from subjectdp.benchmarks.results import Measured, print_measured, write_tables
from subjectdp.benchmarks.suite import MALLOCS, WORKLOADS, Found, Options, run_suite
from subjectdp.errors import expected, unknown
from subjectdp.io.atomic import write_frame, write_json
from subjectdp.io.text import print_json

QUICK = (
    Options(
        ("cnn",),
        (64,),
        5,
        ("subjectdp_item", "subjectdp_higrad", "opacus_ghost"),
        ("tuned",),
        memory=("subjectdp_item",),
    ),
    Options(("small_lstm",), (32,), 5, ("subjectdp_item", "opacus_hooks"), ("tuned",), memory=False),
    Options(("calibration",), (4,), 3, ("subjectdp_pld",), ("tuned",), memory=False),
)
"""What the quick run measures."""

_MORE_ROUNDS = 3  # times as many for a second look at a missed floor


def run(options: argparse.Namespace) -> int:
    """Runs the command; 1 where a floor is broken or a step of this project is wrong."""
    about = machine.describe()
    if not options.json:
        print(about.line())
    if options.quick:
        parts, verdicts = quick(quiet=options.json)
    else:
        parts = run_suite(chosen(options), _keeper(Path(options.output), options.json))
        verdicts = goals.judge(goals.GOALS, parts)
    folder = Path(options.output) / "quick" if options.quick else Path(options.output)
    write(folder, parts, verdicts, about)
    report(options, parts, verdicts, about, folder)
    missed = options.quick and any(not verdict.met for verdict in verdicts)
    return int(missed or bool(wrong_steps(parts)))


def chosen(options: argparse.Namespace) -> Options:
    """The options of a full run.

    Raises:
        ConfigError: an unknown name, or a number that is not positive.
    """
    workloads = tuple(options.workload or [name for name in WORKLOADS if name != "small_lstm"])
    for name in workloads:
        if name not in WORKLOADS:
            raise unknown("--workload", name, WORKLOADS)
    check_names(options.methods or ())
    for key, numbers in (
        ("--batch", options.batch or ()),
        ("--rounds", [options.rounds]),
        ("--threads", [options.threads]),
    ):
        for number in numbers:
            if number < 1:
                raise expected(key, number, "at least 1")
    mallocs = MALLOCS if options.malloc == "both" else (options.malloc,)
    return Options(
        workloads,
        None if options.batch is None else tuple(options.batch),
        options.rounds,
        None if options.methods is None else tuple(options.methods),
        mallocs if machine.glibc() else ("default",),
        options.threads,
        not options.no_memory,
    )


def quick(quiet: bool = False) -> tuple[list[Measured], list[goals.Verdict]]:
    """The quick run and its floors; a missed floor is measured a second time, with more rounds.

    A floor that could not be measured is missed, but for peak memory where the machine does not tell it.
    """
    floors = [goal for goal in goals.FLOORS if not goal.of_memory or unmeasurable() is None]
    parts = _quick_parts(1, quiet)
    verdicts = goals.judge(floors, parts)
    if all(verdict.met for verdict in verdicts):
        return parts, verdicts
    if not quiet:
        print("\na floor is missed: measuring again with more rounds")
    parts = _quick_parts(_MORE_ROUNDS, quiet)
    return parts, goals.judge(floors, parts)


def _quick_parts(times: int, quiet: bool) -> list[Measured]:
    asked = [replace(options, rounds=times * options.rounds) for options in QUICK]
    if not machine.glibc():
        asked = [replace(options, mallocs=("default",)) for options in asked]
    return [part for options in asked for part in run_suite(options, _printer(quiet))]


def wrong_steps(parts: Sequence[Measured]) -> list[str]:
    """Methods of this project that the gate refused."""
    own = [name for name in METHODS if METHODS[name].ours] + ["subjectdp_pld"]
    rows = [row for part in parts for row in part.rows]
    return sorted({row.method for row in rows if row.status == "FAIL" and row.method in own})


def write(
    folder: Path, parts: Sequence[Measured], verdicts: Sequence[goals.Verdict], about: machine.Machine
) -> None:
    """Writes tables, goals.csv and machine.json."""
    write_tables(folder, parts)
    write_frame(folder / "goals.csv", pd.DataFrame(goals.records(verdicts)))
    write_json(folder / "machine.json", {**asdict(about), "load": machine.load()})


def report(
    options: argparse.Namespace,
    parts: Sequence[Measured],
    verdicts: Sequence[goals.Verdict],
    about: machine.Machine,
    folder: Path,
) -> None:
    """Prints what follows the tables, or everything as JSON."""
    if options.json:
        rows = [asdict(row) for part in parts for row in part.rows]
        print_json({"machine": asdict(about), "rows": rows, "goals": goals.records(verdicts)})
        return
    if (reason := unmeasurable()) is not None:
        print(f"\n{reason}")
    goals.print_verdicts("floors" if options.quick else "goals", verdicts)
    for name in wrong_steps(parts):
        print(f"\nFAIL: {name} does not compute what it should")
    print(f"\nwritten to {folder}; load now {machine.load():.1f}")


def _keeper(folder: Path, quiet: bool) -> Found:
    """Prints each table and writes what has been measured so far: a run of many minutes may be cut off."""
    parts: list[Measured] = []

    def keep(part: Measured) -> None:
        parts.append(part)
        _printer(quiet)(part)
        write_tables(folder, parts)

    return keep


def _printer(quiet: bool) -> Found:
    return (lambda _: None) if quiet else print_measured
