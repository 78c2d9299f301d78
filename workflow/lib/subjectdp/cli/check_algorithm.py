"""``subjectdp check-algorithm``: whether an algorithm's code does what its plan says."""

import argparse
from typing import Any

from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.auditing import conformance


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "check-algorithm",
        description="Runs the training loop on known gradients, with and without an item, a subject or a silo, and "
        "compares sensitivity, noise, divisor and sampling with each plan of the algorithm.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a registered algorithm (default: all of them)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints every check and returns 1 if one failed; ConfigError for an unknown name."""
    made = failed = 0
    for name in sorted(ALGORITHMS) if options.name is None else [options.name]:
        title = None
        for plan, check in conformance.checks(algorithm(name)):
            if plan != title:
                print(plan)
                title = plan
            print(f"  {'ok    ' if check.passed else 'FAILED'}  {check.text}")
            made, failed = made + 1, failed + (not check.passed)
    print(f"{made} checks, {failed} failed")
    return int(failed > 0)
