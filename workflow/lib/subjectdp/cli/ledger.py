"""``subjectdp ledger``: what runs on the same people give away together."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from subjectdp.cli.options import add_json, add_results
from subjectdp.cli.run_folders import find_run, read_manifest
from subjectdp.config import load_scenario
from subjectdp.errors import expected
from subjectdp.io.printing import print_json, print_table


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "ledger",
        help="compose the ε of runs on the same people",
        description="Composes the ε of finished runs that share subjects, unit by unit: each run alone, all together. "
        "Name every run that was made on these data, also those of other seeds and those that chose hyperparameters: "
        "a run that is left out is not counted. JSON files"
        " of SubjectPrivacyEngine (report().to_dict(), state_dict()) are taken too, on the people of the runs.",
    )
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="id of a finished run, or the beginning of it; or a JSON file"
    )
    parser.add_argument("--scenario", nargs="+", metavar="FILE", help="all runs of these files as well")
    parser.add_argument("--delta", type=float, help="δ of all runs together (default: the largest of a run)")
    add_results(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints each run's largest ε and that of all runs, for each data set and unit."""
    results = Path(options.results)
    files = [Path(name) for name in options.runs if name.endswith(".json")]
    folders = [find_run(results, name) for name in options.runs if not name.endswith(".json")]
    scenario = load_scenario(options.scenario) if options.scenario else None
    if scenario is not None:
        folders += [results / "runs" / each.run_id for each in scenario.runs]
    if not folders and not files:
        raise expected("runs", "none", "at least one RUN or --scenario FILE")
    manifests = {folder.name: read_manifest(folder) for folder in folders}
    from subjectdp.cli.ledger_rows import ledger_rows, recorded_manifests  # here, to keep --help light

    runs = [*manifests.values(), *recorded_manifests(files, list(manifests.values()))]
    rows = list(ledger_rows(runs, options.delta))
    if options.json:
        print_json(rows)
    else:
        _print(rows)


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    shown = [
        (
            row["data"],
            row["unit"],
            row["runs"],
            _epsilon(row["each_run"]),
            _epsilon(row["together"]) + ("†" if row["conditional"] and row["together"] is not None else ""),
            row["delta"],
        )
        for row in rows
    ]
    print_table(("data", "unit", "runs", "ε of each run, at most", "ε of all together", "δ"), shown)
    for reason in dict.fromkeys(row["reason"] for row in rows if row["reason"]):
        print(f"none: {reason}")
    if any(row["conditional"] for row in rows):
        print("† conditional: a bound that it rests on was read from the data")
    print("\nRuns that are not named are not counted: tuning runs and other seeds give away as much.")


def _epsilon(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
