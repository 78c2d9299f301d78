"""``subjectdp runs``, ``show`` and ``compare``: what has been run, and how runs came out."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from subjectdp.cli.run_folders import (
    RunFolder,
    State,
    clock,
    count_states,
    find_run,
    read_manifest,
    read_run_folder,
    recorded_runs,
)
from subjectdp.config.differences import settings_apart
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import unknown
from subjectdp.io.printing import print_json, print_table
from subjectdp.results.labels import run_label

_COLUMNS = (
    *("run", "label", "state", "rounds", "test accuracy (%)", "ε published*", "ε sound, subject"),
    *("seconds", "left", "settings"),
)


def add_parsers(commands: Any) -> None:
    """Adds the three commands."""
    _add_runs(commands)
    show = commands.add_parser(
        "show",
        help="show one run: settings, privacy, accuracy",
        description="Shows a finished run: what was run, what it guarantees, and how accurate the model is.",
    )
    show.add_argument("run_id", metavar="RUN_ID", help="id of the run, or the beginning of it")
    _common(show)
    show.set_defaults(run=_show)
    compare = commands.add_parser(
        "compare",
        help="compare two runs: settings, accuracy, ε, cost",
        description="Shows two finished runs side by side: the settings they differ in, their metrics, what they "
        "guarantee, what they cost, and whether code and machine were the same.",
    )
    compare.add_argument("first", metavar="A", help="id of a run, or the beginning of it")
    compare.add_argument("second", metavar="B", help="id of the other run")
    _common(compare)
    compare.set_defaults(run=_compare)


def _add_runs(commands: Any) -> None:
    runs = commands.add_parser(
        "runs",
        help="list runs: results, progress, time left",
        description="Lists the runs in the results folder, or those of a scenario: how far each is, when it will be "
        "done, its test accuracy and ε, and what tells it from other runs of its data set and algorithm. Exit code 1 "
        "where a run is broken.",
    )
    runs.add_argument("--scenario", nargs="+", metavar="FILE", help="runs of these files, done or not")
    runs.add_argument("--dataset", choices=tuple(DATASETS), help="only runs on this data set")
    runs.add_argument(
        "--algorithm", metavar="NAME", help="only runs of this algorithm, e.g. higrad_avg_dp:v1"
    )
    runs.add_argument("--seed", type=int, help="only runs of this seed")
    runs.add_argument("--state", choices=tuple(State), help="only runs in this state")
    _common(runs)
    runs.set_defaults(run=_runs)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", default="results", help="results folder (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _runs(options: argparse.Namespace) -> int:
    results = Path(options.results)
    if options.algorithm is not None:
        _require_algorithm(options.algorithm)
    found = _scenario_runs(options.scenario, results) if options.scenario else recorded_runs(results)
    listed = [run for run in found if _fits(run, options)]
    broken = [run for run in listed if run.state is State.BROKEN]
    if options.json:
        print_json([run.as_dict() for run in listed])
        return 1 if broken else 0
    settings = settings_apart({run.run_id: run.config for run in listed if run.config is not None})
    print_table(_COLUMNS, [(*_row(run), settings.get(run.run_id) or None) for run in listed])
    counts = ", ".join(f"{count} {state}" for state, count in count_states(listed).items())
    print(f"\n{len(listed)} run{'' if len(listed) == 1 else 's'}{': ' if counts else ''}{counts}")
    print("* what the paper claims: no guarantee")
    for run in listed:
        if run.note is not None:
            print(f"{run.run_id}: {run.note}")
    return 1 if broken else 0


def _row(run: RunFolder) -> tuple[Any, ...]:
    accuracy = None if run.test_accuracy is None else f"{100 * run.test_accuracy:.2f}"
    left = None if run.seconds_left is None else clock(run.seconds_left)
    epsilons = (run.epsilon_published, run.epsilon_sound_subject)
    rounded = (None if epsilon is None else f"{epsilon:.4g}" for epsilon in epsilons)
    seconds = None if run.wall_seconds is None else f"{run.wall_seconds:.1f}"
    return run.run_id, run.label, run.state, run.progress, accuracy, *rounded, seconds, left


def _require_algorithm(name: str) -> None:
    """A name that no run can have is a mistake, not an empty list."""
    from subjectdp.algorithms.registry import ALGORITHMS, algorithm

    variants = {known: algorithm(known).variants for known in ALGORITHMS}
    names = {*variants, *(f"{known}:{each}" for known, found in variants.items() for each in found if each)}
    if name not in names:
        raise unknown("algorithm", name, names)


def _fits(run: RunFolder, options: argparse.Namespace) -> bool:
    if options.state is not None and run.state != options.state:
        return False
    if options.dataset is None and options.algorithm is None and options.seed is None:
        return True
    if run.config is None:
        return False
    algorithm = run.config["algorithm"]
    names = (algorithm["name"], f"{algorithm['name']}:{algorithm['variant']}")
    return (
        (options.dataset is None or run.config["data"]["dataset"] == options.dataset)
        and (options.algorithm is None or options.algorithm in names)
        and (options.seed is None or run.config["seed"] == options.seed)
    )


def _scenario_runs(files: list[str], results: Path) -> Iterator[RunFolder]:
    from subjectdp.config import load_scenario

    for run in load_scenario(files).runs:
        found = read_run_folder(results / "runs" / run.run_id)
        if found.config is None:
            found = replace(
                found,
                label=run_label(run.algorithm.label, run.privacy.predicted_subjects),
                config=run.model_dump(mode="json"),
            )
        yield found


def _show(options: argparse.Namespace) -> None:
    folder = find_run(Path(options.results), options.run_id)
    manifest = read_manifest(folder)
    if options.json:
        print_json(manifest)
        return
    from subjectdp.cli.run_report import print_run

    print_run(folder, manifest)


def _compare(options: argparse.Namespace) -> None:
    from subjectdp.cli.comparison import compare, print_comparison

    names = (options.first, options.second)
    manifests = [read_manifest(find_run(Path(options.results), name)) for name in names]
    comparison = compare(manifests[0], manifests[1])
    if options.json:
        print_json(comparison)
    else:
        print_comparison(comparison)
