"""``subjectdp bench``: private steps against plain SGD and other libraries."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from subjectdp.cli.options import add_json
from subjectdp.errors import ConfigError
from subjectdp.places import CHECKOUT


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "bench",
        help="time private steps against plain SGD and other libraries",
        description="Times private steps, rounds, calibration and dry runs in interleaved rounds, each method first "
        "checked against a float64 loop; prints the tables and the goals and writes them as CSV. Needs a checkout of "
        "the project.",
    )
    _add_what_is_timed(parser)
    parser.add_argument("--threads", type=int, default=1, help="threads of a step (default: %(default)s)")
    parser.add_argument("--no-memory", action="store_true", help="leave out the peak memory")
    parser.add_argument("--output", default="results/bench", help="folder (default: %(default)s)")
    add_json(parser, "print JSON instead of tables")
    parser.set_defaults(run=run)


def _add_what_is_timed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="under a minute, against loose floors: exit 1 if one is broken"
    )
    parser.add_argument(
        "--workload",
        nargs="+",
        metavar="NAME",
        help="cnn, lstm, subjects, head, round, light_round, calibration, dag or small_lstm "
        "(default: all but the last)",
    )
    parser.add_argument(
        "--batch",
        nargs="+",
        type=int,
        metavar="N",
        help="batch sizes; ε for calibration, runs for dag (default: each workload's own)",
    )
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds (default: %(default)s)")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="methods beside the base (default: all)")
    parser.add_argument(
        "--malloc",
        choices=("both", "tuned", "default"),
        default="both",
        help="settings of glibc's malloc (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the suite of the checkout's folder ``benchmarks``; ConfigError without a checkout."""
    if not (CHECKOUT / "benchmarks" / "command.py").is_file():
        raise ConfigError(
            "Expected a checkout of the project for subjectdp bench: the installed package has no benchmarks."
        )
    sys.path.insert(0, str(CHECKOUT))
    from benchmarks.command import run as run_benchmarks  # no part of the package

    return run_benchmarks(options)
