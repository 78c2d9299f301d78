"""``python -m benchmarks``: private steps against plain SGD and other libraries; the goals come last."""

from __future__ import annotations

import argparse
import sys

from benchmarks.command import run
from subjectdp.cli.parser import Parser
from subjectdp.errors import SubjectDPError


def main(arguments: list[str] | None = None) -> int:
    """Runs the suite; 1 where a floor is broken or a step is wrong, 2 for a wrong option."""
    parser = Parser(
        prog="python -m benchmarks",
        description="Times private steps, rounds, calibration and dry runs in interleaved rounds, each method first "
        "checked against a float64 loop; prints the tables and the goals and writes them as CSV.",
    )
    _add_what_is_timed(parser)
    parser.add_argument("--threads", type=int, default=1, help="threads of a step (default: %(default)s)")
    parser.add_argument("--no-memory", action="store_true", help="leave out the peak memory")
    parser.add_argument("--output", default="results/bench", help="folder (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    try:
        return run(parser.parse_args(arguments))
    except SubjectDPError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2


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


if __name__ == "__main__":
    sys.exit(main())
