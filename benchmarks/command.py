"""Runs the suite, prints and writes its tables, and judges the goals or, in a quick run, the floors."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from benchmarks import goals, machine
from benchmarks.memory import unmeasurable
from benchmarks.methods import METHODS, check_names
from benchmarks.results import Measured, print_measured, write_tables
from benchmarks.suite import MALLOCS, WORKLOADS, Options, Report, run_suite
from subjectdp.errors import expected, unknown
from subjectdp.io.atomic import write_frame, write_json
from subjectdp.io.printing import print_json

_CNN = ("subjectdp_item", "subjectdp_higrad", "opacus_ghost")
QUICK = (
    Options(("cnn",), (64,), 5, _CNN, ("tuned",), memory=("subjectdp_item",)),
    Options(("small_lstm",), (32,), 5, ("subjectdp_item", "opacus_hooks"), ("tuned",), memory=False),
    Options(("calibration",), (4,), 3, ("subjectdp_pld",), ("tuned",), memory=False),
)
"""What the quick run measures."""

_MORE_ROUNDS = 3  # times as many when a missed floor is measured again


def run(options: argparse.Namespace) -> int:
    """Runs the command; 1 if a floor is broken or a step of this project is wrong."""
    folder = Path(options.output) / "quick" if options.quick else Path(options.output)
    if not options.json:
        print(machine.line())
    if options.quick:
        parts, judged = quick(quiet=options.json)
    else:
        parts = run_suite(chosen(options), _keeper(folder, options.json))
        judged = goals.judge(goals.read_goals("full"), parts)
    _write(folder, parts, judged)
    if options.json:
        _print_json(parts, judged)
    else:
        _print_end("floors" if options.quick else "goals", parts, judged)
        print(f"\nwritten to {folder}; load now {machine.load():.1f}")
    missed = options.quick and any(not goal.met for goal in judged)
    return int(missed or bool(wrong_steps(parts)))


def chosen(options: argparse.Namespace) -> Options:
    """The options of a full run; ConfigError for an unknown name or a number that is not positive."""
    workloads = tuple(options.workload or [name for name in WORKLOADS if name != "small_lstm"])
    for name in workloads:
        if name not in WORKLOADS:
            raise unknown("--workload", name, WORKLOADS)
    check_names(options.methods or ())
    numbers = [("--batch", number) for number in options.batch or ()]
    for key, number in (*numbers, ("--rounds", options.rounds), ("--threads", options.threads)):
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


def quick(quiet: bool = False) -> tuple[list[Measured], list[goals.Judged]]:
    """The quick run and its floors; if one is missed, everything is measured again with more rounds.

    A floor that was not measured is missed, except peak memory on a machine that does not report it.
    """
    floors = [
        goal for goal in goals.read_goals("quick") if goal.measure != "memory" or unmeasurable() is None
    ]
    parts = _quick_parts(1, quiet)
    judged = goals.judge(floors, parts, by_median=True)
    if all(floor.met for floor in judged):
        return parts, judged
    if not quiet:
        print("\na floor is missed: measuring again with more rounds")
    parts = _quick_parts(_MORE_ROUNDS, quiet)
    return parts, goals.judge(floors, parts, by_median=True)


def _quick_parts(times: int, quiet: bool) -> list[Measured]:
    mallocs = QUICK[0].mallocs if machine.glibc() else ("default",)
    asked = [replace(options, rounds=times * options.rounds, mallocs=mallocs) for options in QUICK]
    return [part for options in asked for part in run_suite(options, _printer(quiet))]


def wrong_steps(parts: Sequence[Measured]) -> list[str]:
    """Methods of this project that failed the gate."""
    own = [name for name in METHODS if METHODS[name].ours] + ["subjectdp_pld"]
    rows = [row for part in parts for row in part.rows]
    return sorted({row["method"] for row in rows if row["status"] == "FAIL" and row["method"] in own})


def _write(folder: Path, parts: Sequence[Measured], judged: Sequence[goals.Judged]) -> None:
    write_tables(folder, parts)
    write_frame(folder / "goals.csv", pd.DataFrame(goals.records(judged)))
    write_json(folder / "machine.json", {**machine.describe(), "load": machine.load()})


def _print_json(parts: Sequence[Measured], judged: Sequence[goals.Judged]) -> None:
    rows = [row for part in parts for row in part.rows]
    print_json({"machine": machine.describe(), "rows": rows, "goals": goals.records(judged)})


def _print_end(title: str, parts: Sequence[Measured], judged: Sequence[goals.Judged]) -> None:
    if (reason := unmeasurable()) is not None:
        print(f"\n{reason}")
    goals.print_judged(title, judged)
    for name in wrong_steps(parts):
        print(f"\nFAIL: {name} does not compute what it should")


def _keeper(folder: Path, quiet: bool) -> Report:
    """Prints each table and writes all tables so far, since a run of many minutes may be cut off."""
    parts: list[Measured] = []

    def keep(part: Measured) -> None:
        parts.append(part)
        _printer(quiet)(part)
        write_tables(folder, parts)

    return keep


def _printer(quiet: bool) -> Report:
    return (lambda _: None) if quiet else print_measured
