"""``subjectdp select``: the ε of a scenario's private selection, and what was selected."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from subjectdp.cli.options import add_json, add_results
from subjectdp.config import load_scenario, paths
from subjectdp.errors import expected
from subjectdp.io.printing import print_json, print_table


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "select",
        help="the ε of a private selection, and its result",
        description="Prints the ε that a scenario's private_selection keeps, item and subject, and the largest "
        "privacy.epsilon of one run with which it keeps its target; after the runs also which run is released.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="scenario file; more are overlays")
    add_results(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints a line for each unit of each selection, and the table of repetitions where there is one."""
    scenario = load_scenario(options.files)
    if not scenario.private_selection.wanted:
        raise expected("private_selection.candidates", {}, "given in the scenario")
    from subjectdp.cli.select_rows import selection_rows  # here, to keep --help light

    records = selection_rows(scenario, options.results)
    if options.json:
        print_json(records)
        return
    for record in records:
        _print(record)
    table = Path(paths.table_file(scenario.name, "private_selection", options.results))
    if table.is_file():
        print(f"\n{table}\n{table.read_text()}", end="")


def _print(record: dict[str, Any]) -> None:
    print(f"{record['selection']} (federation from {record['federation']})")
    rows = [
        (unit, "none" if value is None else f"{value:.4g}", record["delta"])
        for unit, value in record["epsilon"].items()
    ]
    print_table(("unit", "ε of the selection", "δ"), rows)
    if record["reason"]:
        print(f"none: {record['reason']}")
    most = record["largest_epsilon_of_a_run"]
    if most is not None:
        print(
            f"target {record['target']:g} for the {record['unit']}: privacy.epsilon of each run may be at most "
            f"{most:.4g} (it is {record['epsilon_of_a_run']:g})"
        )
