"""``subjectdp doctor``: whether this machine is ready for a run."""

from __future__ import annotations

import argparse
from typing import Any


def add_parsers(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "doctor",
        help="check environment, devices, data, disk and Slurm",
        description="Checks Python and packages against the lock, devices, configuration files, data that scenarios "
        "name, disk and memory, the results folder and Slurm. Exit code 1 where something will not work; a "
        "warning alone is exit code 0.",
    )
    parser.add_argument("--scenario", nargs="+", metavar="FILE", help="check the data of these files")
    parser.add_argument("--results", default="results", help="results folder (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from pathlib import Path

    from subjectdp.cli.doctor import Finding, Level, examine
    from subjectdp.io.printing import print_json, print_table

    findings = examine(Path(options.results), options.scenario)
    failed = sum(finding.level is Level.FAIL for finding in findings)
    warned = sum(finding.level is Level.WARNING for finding in findings)
    if options.json:
        print_json({"failed": failed, "warned": warned, "findings": [vars(each) for each in findings]})
        return 1 if failed else 0

    def row(finding: Finding) -> tuple[str, str, str]:
        return finding.level.value, finding.check, finding.detail

    print_table(("", "check", "found"), [row(finding) for finding in findings])
    advice = [f"{each.check}: {each.advice}" for each in findings if each.advice]
    if advice:
        print("\nWhat to do")
        for line in advice:
            print(f"  - {line}")
    print(f"\n{failed} failed, {warned} warnings, {len(findings) - failed - warned} good")
    return 1 if failed else 0
