"""``python -m benchmarks``: private steps against plain SGD and other libraries; the goals come last."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import goals
from benchmarks.methods import ours
from benchmarks.processes import unmeasurable
from benchmarks.scale import draw_scale
from benchmarks.suite import QUICK, WORKLOADS, Options, measure
from benchmarks.tables import Table, machine, print_table, write_tables
from subjectdp.cli.parser import Parser
from subjectdp.errors import SubjectDPError, expected, unknown
from subjectdp.io.atomic import write_frame, write_json

_MORE_ROUNDS = 3  # times as many when a missed floor is measured again


def main(arguments: list[str] | None = None) -> int:
    """Runs the suite; 1 where a floor is broken or a step is wrong, 2 for a wrong option."""
    parser = Parser(
        prog="python -m benchmarks",
        description="Times private steps, rounds, calibration and dry runs in interleaved rounds, each method first "
        "checked against a float64 loop; prints the tables and the goals and writes them as CSV.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="under a minute, against loose floors: exit 1 if one is broken")
    add("--workload", nargs="+", metavar="NAME", help=f"{', '.join(WORKLOADS)} (default: all but small_lstm)")
    add("--rounds", type=int, default=7, help="timed rounds (default: %(default)s)")
    add("--output", default="results/bench", help="folder (default: %(default)s)")
    try:
        return run(parser.parse_args(arguments))
    except SubjectDPError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2


def run(options: argparse.Namespace) -> int:
    """Runs the command; 1 if a floor is broken or a step of this project is wrong."""
    folder = Path(options.output) / "quick" if options.quick else Path(options.output)
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    if options.quick:
        tables, judged = quick(folder)
    else:
        tables = _measure(chosen(options), folder)
        judged = goals.judge(goals.read_goals("full"), tables)
    write_frame(folder / "goals.csv", pd.DataFrame(judged))
    write_json(folder / "machine.json", machine())
    if (reason := unmeasurable()) is not None:
        print(f"\n{reason}")
    goals.print_judged("floors" if options.quick else "goals", judged)
    outcomes = [item for table in tables for item in table.outcomes.items()]
    wrong = sorted({name for name, outcome in outcomes if outcome.status == "FAIL" and ours(name)})
    for name in wrong:
        print(f"\nFAIL: {name} does not compute what it should")
    print(f"\nwritten to {folder}")
    return int(bool(wrong) or (options.quick and not all(goal["verdict"] == goals.MET for goal in judged)))


def chosen(options: argparse.Namespace) -> list[Options]:
    """What a full run measures; ConfigError for an unknown workload or a number that is not positive."""
    workloads = options.workload or [name for name in WORKLOADS if name != "small_lstm"]
    for name in workloads:
        if name not in WORKLOADS:
            raise unknown("--workload", name, WORKLOADS)
    if options.rounds < 1:
        raise expected("--rounds", options.rounds, "at least 1")
    return [Options(name, rounds=options.rounds) for name in workloads]


def quick(folder: Path) -> tuple[list[Table], list[dict[str, Any]]]:
    """The quick run and its floors; if one is missed, everything is measured again with more rounds.

    A floor that was not measured is missed, except peak memory on a machine that does not report it.
    """
    floors = [goal for goal in goals.read_goals("quick") if goal["measure"] != "memory" or unmeasurable() is None]
    asked: Sequence[Options] = QUICK
    for look in range(2):
        tables = _measure(asked, folder)
        judged = goals.judge(floors, tables, by_median=True)
        if look == 1 or all(floor["verdict"] == goals.MET for floor in judged):
            break
        print("\na floor is missed: measuring again with more rounds")
        asked = [replace(options, rounds=_MORE_ROUNDS * options.rounds) for options in QUICK]
    return tables, judged


def _measure(asked: Iterable[Options], folder: Path) -> list[Table]:
    """Prints each table and writes all tables so far, since a run of many minutes may be cut off."""
    tables: list[Table] = []
    for options in asked:
        for table in measure(options):
            tables.append(table)
            write_tables(folder, tables)
            print_table(table)
        if options.workload == "scale":
            draw_scale(pd.read_csv(folder / "scale.csv"), folder / "scale.png")
    return tables


if __name__ == "__main__":
    sys.exit(main())
