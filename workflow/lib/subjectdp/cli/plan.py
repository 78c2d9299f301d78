"""``subjectdp plan``: what a scenario will cost and guarantee, before it is run."""

import argparse
import sys

from subjectdp.cli.parser import Line, add_json, add_results
from subjectdp.config import load_scenario
from subjectdp.forecast.before_start import figures_to_mend, replaced_runs
from subjectdp.forecast.plan_report import plan_scenario
from subjectdp.io.printing import print_json


def plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="scenario file; more are overlays")
    add_results(parser)
    add_json(parser, "print JSON, a row for runs that differ only in their seed")


def plan(options: argparse.Namespace) -> int:
    """Predicts what the runs of scenario files will guarantee and cost, without fetching, preparing or training
    anything, and writes plan.csv and plan.txt into the scenario's results. Exit code 1 if a run will not start.
    """
    scenario = load_scenario(options.files)
    line = Line(sys.stderr)
    frame, text = plan_scenario(scenario, options.results, lambda done, of: line.show(f"{done} of {of} rows planned"))
    line.end("")
    if options.json:
        print_json(frame.to_dict("records"))
    else:
        print(text, end="")
    for told in replaced_runs(scenario, options.results):
        print(told, file=sys.stderr)
    return 1 if frame["problem"].notna().any() or any(figures_to_mend(scenario)[0]) else 0
