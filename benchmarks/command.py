"""Runs the suite, prints and writes its tables, and judges the goals or, in a quick run, the floors."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import goals, machine
from benchmarks.calibrations import CALIBRATIONS
from benchmarks.memory import unmeasurable
from benchmarks.methods import METHODS, ours
from benchmarks.suite import MALLOCS, WORKLOADS, Options, measure
from benchmarks.tables import Table, print_table, write_tables
from subjectdp.errors import expected, unknown
from subjectdp.io.atomic import write_frame, write_json
from subjectdp.io.printing import print_json

_CNN = ("subjectdp_item", "subjectdp_higrad", "opacus_ghost")
QUICK = (
    Options(("cnn",), (64,), 5, _CNN, ("tuned",), memory=("subjectdp_item",)),
    Options(("small_lstm",), (32,), 5, ("subjectdp_item", "opacus_hooks"), ("tuned",), memory=()),
    Options(("calibration",), (4,), 3, ("subjectdp_pld",), ("tuned",)),
)
"""What the quick run measures."""

_MORE_ROUNDS = 3  # times as many when a missed floor is measured again


def run(options: argparse.Namespace) -> int:
    """Runs the command; 1 if a floor is broken or a step of this project is wrong."""
    folder = Path(options.output) / "quick" if options.quick else Path(options.output)
    if not options.json:
        print(machine.line())
    if options.quick:
        tables, judged = quick(folder, options.json)
    else:
        tables = _measure([chosen(options)], folder, options.json)
        judged = goals.judge(goals.read_goals("full"), tables)
    write_frame(folder / "goals.csv", pd.DataFrame(judged))
    write_json(folder / "machine.json", {**machine.describe(), "load": machine.load()})
    wrong = wrong_steps(tables)
    if options.json:
        rows = [row for table in tables for row in table.rows()]
        print_json({"machine": machine.describe(), "rows": rows, "goals": judged})
    else:
        _print_end("floors" if options.quick else "goals", judged, wrong)
        print(f"\nwritten to {folder}; load now {machine.load():.1f}")
    missed = options.quick and not all(goal["met"] for goal in judged)
    return int(missed or bool(wrong))


def chosen(options: argparse.Namespace) -> Options:
    """The options of a full run; ConfigError for an unknown name or a number that is not positive."""
    workloads = tuple(options.workload or [name for name in WORKLOADS if name != "small_lstm"])
    known = {"--workload": tuple(WORKLOADS), "--methods": (*METHODS, *CALIBRATIONS)}
    for key, names in (("--workload", workloads), ("--methods", options.methods or ())):
        for name in names:
            if name not in known[key]:
                raise unknown(key, name, known[key])
    numbers = [("--batch", number) for number in options.batch or ()]
    for key, number in (*numbers, ("--rounds", options.rounds), ("--threads", options.threads)):
        if number < 1:
            raise expected(key, number, "at least 1")
    return Options(
        workloads,
        options.batch and tuple(options.batch),
        options.rounds,
        options.methods and tuple(options.methods),
        MALLOCS if options.malloc == "both" else (options.malloc,),
        options.threads,
        () if options.no_memory else tuple(METHODS),
    )


def quick(folder: Path, quiet: bool) -> tuple[list[Table], list[dict[str, Any]]]:
    """The quick run and its floors; if one is missed, everything is measured again with more rounds.

    A floor that was not measured is missed, except peak memory on a machine that does not report it.
    """
    floors = goals.read_goals("quick")
    if unmeasurable() is not None:
        floors = [goal for goal in floors if goal["measure"] != "memory"]
    tables = _measure(QUICK, folder, quiet)
    judged = goals.judge(floors, tables, by_median=True)
    if not all(floor["met"] for floor in judged):
        if not quiet:
            print("\na floor is missed: measuring again with more rounds")
        more = [replace(options, rounds=_MORE_ROUNDS * options.rounds) for options in QUICK]
        tables = _measure(more, folder, quiet)
        judged = goals.judge(floors, tables, by_median=True)
    return tables, judged


def _measure(asked: Iterable[Options], folder: Path, quiet: bool) -> list[Table]:
    """Prints each table and writes all tables so far, since a run of many minutes may be cut off."""
    tables: list[Table] = []
    for options in asked:
        for table in measure(options if machine.glibc() else replace(options, mallocs=("default",))):
            tables.append(table)
            write_tables(folder, tables)
            if not quiet:
                print_table(table)
    return tables


def wrong_steps(tables: Sequence[Table]) -> list[str]:
    """Methods of this project whose results are wrong."""
    outcomes = [item for table in tables for item in table.outcomes.items()]
    return sorted({name for name, outcome in outcomes if outcome.status == "FAIL" and ours(name)})


def _print_end(title: str, judged: Sequence[dict[str, Any]], wrong: Sequence[str]) -> None:
    if (reason := unmeasurable()) is not None:
        print(f"\n{reason}")
    goals.print_judged(title, judged)
    for name in wrong:
        print(f"\nFAIL: {name} does not compute what it should")
