"""``subjectdp plan``: what a scenario will cost and guarantee, before it is run."""

import argparse
import sys
from typing import Any

from subjectdp.cli.parser import Line, add_json, add_results
from subjectdp.config import load_scenario
from subjectdp.forecast.before_start import undrawable_figures
from subjectdp.forecast.plan_report import plan_scenario
from subjectdp.io.printing import print_json


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "plan",
        description="Predicts what the runs of scenario files will guarantee and cost, without fetching, preparing or "
        "training anything, and writes plan.csv and plan.txt into the scenario's results. Exit code 1 if a run will "
        "not start.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="scenario file; more are overlays")
    add_results(parser)
    add_json(parser, "print JSON, a row for runs that differ only in their seed")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints and writes the plan; 1 if a run will not start, or a figure cannot be drawn."""
    scenario = load_scenario(options.files)
    line = Line(sys.stderr)
    frame, text = plan_scenario(
        scenario, options.results, lambda done, rows: line.show(f"{done} of {rows} rows planned")
    )
    line.end("")
    if options.json:
        print_json(frame.to_dict("records"))
    else:
        print(text, end="")
    return 1 if frame["problem"].notna().any() or any(undrawable_figures(scenario)) else 0
