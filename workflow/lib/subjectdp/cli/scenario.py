"""``subjectdp scenario``: checks a scenario and lists its runs."""

import argparse
from collections import Counter
from typing import Any

from subjectdp.cli.parser import add_json, add_results
from subjectdp.config import RunConfig, Scenario, load_scenario
from subjectdp.config.run import settings_apart
from subjectdp.errors import unknown
from subjectdp.forecast.before_start import check_before_start
from subjectdp.io.printing import print_json, print_pairs, print_table


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "scenario",
        description="Checks scenario files (several are overlays, later over earlier) and lists the runs "
        "they stand for, without running anything.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="scenario file; more are overlays")
    parser.add_argument("--figure", help="only the runs that this figure shows")
    add_results(parser)
    add_json(parser, "print JSON, with each run's whole configuration")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Checks the scenario and prints its runs."""
    scenario = load_scenario(options.files)
    check_before_start(scenario, options.results, options.files)
    if options.figure is not None and options.figure not in scenario.figures:
        raise unknown("figure of this scenario", options.figure, scenario.figures)
    runs = scenario.runs if options.figure is None else scenario.runs_of_figure(options.figure)
    if options.json:
        print_json(_as_json(scenario, runs))
    else:
        _print(scenario, runs)


def _as_json(scenario: Scenario, runs: tuple[RunConfig, ...]) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "description": scenario.description,
        "figures": scenario.figures,
        "data": {key: data.model_dump() for key, data in scenario.datasets_by_key.items()},
        "partitions": list(scenario.partitions_by_id),
        "runs": [
            {
                "run_id": run.run_id,
                "label": run.algorithm.label,
                "data_key": run.data_key,
                "partition_id": run.partition_id,
                "config": run.model_dump(),
            }
            for run in runs
        ],
    }


def _print(scenario: Scenario, runs: tuple[RunConfig, ...]) -> None:
    labels = Counter(run.algorithm.label for run in runs)
    print_pairs(
        [
            ("scenario", scenario.name),
            ("description", scenario.description or None),
            ("runs", len(runs)),
            ("data sets", ", ".join(scenario.datasets_by_key)),
            ("partitions", len(scenario.partitions_by_id)),
            ("algorithms", ", ".join(f"{label} {count}" for label, count in labels.items())),
            ("figures", ", ".join(scenario.figures) or None),
        ]
    )
    print()
    apart = settings_apart({run.run_id: run.model_dump(mode="json") for run in runs})
    print_table(("run", "settings"), [(run.run_id, apart[run.run_id]) for run in runs])
