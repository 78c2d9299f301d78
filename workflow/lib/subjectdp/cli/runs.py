"""``subjectdp scenario`` lists the runs of a scenario, ``runs`` those of a results folder with results or progress."""

import argparse
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.cli.parser import add_json, add_results, values_of
from subjectdp.cli.run_folders import RunFolder, State, count_states, recorded_runs, scenario_run
from subjectdp.config import RunConfig, Scenario, load_scenario
from subjectdp.config.run import settings_apart
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import unknown
from subjectdp.forecast.before_start import check_before_start
from subjectdp.io.printing import clock, print_json, print_pairs, print_table

_COLUMNS = (
    *("run", "label", "state", "rounds", "test accuracy (%)", "ε published*", "ε sound, subject"),
    *("seconds", "left", "settings"),
)
_SORTS: dict[str, Callable[[RunFolder], float | None]] = {
    "accuracy": lambda run: run.test_accuracy,
    "epsilon": lambda run: run.epsilon_sound_subject,
    "seconds": lambda run: run.wall_seconds,
    "left": lambda run: run.seconds_left,
}


def runs_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--scenario", nargs="+", metavar="FILE", help="runs of these files, done or not")
    parser.add_argument("--dataset", choices=tuple(DATASETS), help="only runs on this data set")
    parser.add_argument("--algorithm", metavar="NAME", help="only runs of this algorithm, e.g. higrad_avg_dp:v1")
    parser.add_argument("--seed", type=int, help="only runs of this seed")
    parser.add_argument("--sort", choices=tuple(_SORTS), help="largest first (default: as in the scenario, or by id)")
    parser.add_argument("--state", choices=values_of(State), help="only runs in this state")
    add_results(parser)
    add_json(parser)


def runs(options: argparse.Namespace) -> int:
    """Lists the runs in the results folder, or those of a scenario: the progress and time left of each, its test
    accuracy and ε, and the settings in which it differs from other runs of its data set and algorithm. Exit code 1 if a
    run is broken.
    """
    names = {*ALGORITHMS, *(f"{known}:{each}" for known in ALGORITHMS for each in algorithm(known).variants if each)}
    if options.algorithm not in (None, *names):  # a mistake, not an empty list
        raise unknown("algorithm", options.algorithm, names)
    listed = _listed(options, Path(options.results))
    if options.json:
        print_json([vars(run) for run in listed])
    else:
        _print(listed)
    return int(any(run.state is State.BROKEN for run in listed))


def _listed(options: argparse.Namespace, results: Path) -> list[RunFolder]:
    runs = load_scenario(options.scenario).runs if options.scenario else None
    found = recorded_runs(results) if runs is None else (scenario_run(run, results) for run in runs)
    listed = [run for run in found if _fits(run, options)]
    if options.sort is None:
        return listed
    value = _SORTS[options.sort]
    return sorted(listed, key=lambda run: -math.inf if value(run) is None else value(run) or 0.0, reverse=True)


def _print(runs: list[RunFolder]) -> None:
    settings = settings_apart({run.run_id: run.config for run in runs if run.config is not None})
    print_table(_COLUMNS, [(*_row(run), settings.get(run.run_id) or None) for run in runs])
    counts = count_states(runs)
    print(f"\n{len(runs)} run{'' if len(runs) == 1 else 's'}{': ' if counts else ''}{counts}")
    print("* what the paper claims: no guarantee")
    for run in runs:
        if run.note is not None:
            print(f"{run.run_id}: {run.note}")


def _row(run: RunFolder) -> tuple[Any, ...]:
    accuracy = None if run.test_accuracy is None else f"{100 * run.test_accuracy:.2f}"
    left = None if run.seconds_left is None else clock(run.seconds_left)
    epsilons = (run.epsilon_published, run.epsilon_sound_subject)
    rounded = (None if epsilon is None else f"{epsilon:.4g}" for epsilon in epsilons)
    seconds = None if run.wall_seconds is None else f"{run.wall_seconds:.1f}"
    return run.run_id, run.label, run.state, run.progress, accuracy, *rounded, seconds, left


def _fits(run: RunFolder, options: argparse.Namespace) -> bool:
    config = run.config or {"data": {}, "algorithm": {"name": "", "variant": ""}}
    name, variant = config["algorithm"]["name"], config["algorithm"]["variant"]
    return (
        options.state in (None, run.state)
        and options.dataset in (None, config["data"].get("dataset"))
        and options.algorithm in (None, name, f"{name}:{variant}")
        and options.seed in (None, config.get("seed"))
    )


def scenario_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="scenario file; more are overlays")
    parser.add_argument("--figure", help="only the runs that this figure shows")
    add_results(parser)
    add_json(parser, "print JSON, with each run's whole configuration")


def scenario(options: argparse.Namespace) -> None:
    """Checks scenario files (several are overlays, later over earlier) and lists the runs they stand for, without
    running anything.
    """
    scenario = load_scenario(options.files)
    check_before_start(scenario, options.results, options.files)
    if options.figure is not None and options.figure not in scenario.figures:
        raise unknown("figure of this scenario", options.figure, scenario.figures)
    runs = scenario.runs if options.figure is None else scenario.runs_of_figure(options.figure)
    if options.json:
        print_json(_as_json(scenario, runs))
    else:
        _print_scenario(scenario, runs)


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


def _print_scenario(scenario: Scenario, runs: tuple[RunConfig, ...]) -> None:
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
