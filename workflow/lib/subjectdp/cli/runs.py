"""``subjectdp runs`` lists the runs of a results folder or a scenario; ``show``: one of them, or two."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.cli import run_folders
from subjectdp.cli.parser import add_json, add_results
from subjectdp.cli.run_folders import UNITS, RunFolder, State, epsilon_of, recorded_runs, scenario_run
from subjectdp.config.run import RunConfig, settings_apart, settings_read
from subjectdp.config.scenario import load_scenario
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import unknown
from subjectdp.forecast.before_start import replaced_runs
from subjectdp.io.printing import clock, flattened, print_json, print_pairs, print_table
from subjectdp.results.shown_runs import CONDITIONAL_MARK, CONDITIONAL_NOTE, differing_keys

_COLUMNS = (
    *("run", "label", "state", "rounds", "test accuracy (%)", "ε published*", "ε sound, subject"),
    *("seconds", "left", "settings"),
)


def runs_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenario", nargs="+", metavar="FILE", help="runs of these files, done or not")
    parser.add_argument("--dataset", choices=tuple(DATASETS), help="only runs on this data set")
    parser.add_argument("--algorithm", metavar="NAME", help="only runs of this algorithm, e.g. higrad_avg_dp:v1")
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
    results, scenario = Path(options.results), load_scenario(options.scenario) if options.scenario else None
    found = recorded_runs(results) if scenario is None else (scenario_run(run, results) for run in scenario.runs)
    for told in () if scenario is None else replaced_runs(scenario, options.results):
        print(told, file=sys.stderr)
    listed = [run for run in found if _fits(run, options)]
    if options.json:
        print_json([vars(run) for run in listed])
    else:
        _print(listed)
    return int(any(run.state is State.BROKEN for run in listed))


def _print(runs: list[RunFolder]) -> None:
    settings = settings_apart({run.run_id: run.config for run in runs if run.config is not None})
    print_table(_COLUMNS, [(*_row(run), settings.get(run.run_id) or None) for run in runs])
    counts = run_folders.count_states(runs)
    print(f"\n{len(runs)} run{'' if len(runs) == 1 else 's'}{': ' if counts else ''}{counts}")
    print("* what the paper claims: no guarantee")
    if any(run.conditional for run in runs):
        print(CONDITIONAL_NOTE)
    for run in runs:
        if run.note is not None:
            print(f"{run.run_id}: {run.note}")


def _row(run: RunFolder) -> tuple[Any, ...]:
    numbers = ((run.config or {}).get("data") or {}).get("task") == "regression"
    accuracy = None if run.test_accuracy is None else f"{100 * run.test_accuracy:.2f}{' (R²)' * numbers}"
    left = None if run.seconds_left is None else clock(run.seconds_left)
    epsilons = (run.epsilon_published, ""), (run.epsilon_sound_subject, CONDITIONAL_MARK * run.conditional)
    rounded = (None if epsilon is None else f"{epsilon:.4g}{mark}" for epsilon, mark in epsilons)
    seconds = None if run.wall_seconds is None else f"{run.wall_seconds:.1f}"
    return run.run_id, run.label, run.state, run.progress, accuracy, *rounded, seconds, left


def _fits(run: RunFolder, options: argparse.Namespace) -> bool:
    data, chosen = ((run.config or {}).get(key) or {} for key in ("data", "algorithm"))
    of_dataset = options.dataset in (None, data.get("dataset"))
    name = chosen.get("name", "")
    fits = of_dataset and options.algorithm in (None, name, f"{name}:{chosen.get('variant')}")
    return fits or run.state is State.BROKEN  # of which nobody knows


_METRICS = ("test_accuracy", "test_loss", "validation_accuracy", "validation_loss")
_COSTS = ("rounds_executed", "wall_seconds", "peak_memory_mb")
_MADE_WITH = ("code_fingerprint", "environment")
_PARTS = {  # of a comparison: heading, and what is said of nothing
    "settings": ("Settings that differ", "the settings are the same"),
    "metrics": ("Metrics of the last round (accuracies from 0 to 1)", ""),
    "epsilon": ("ε of the whole run", ""),
    "guarantee": ("Guarantee of each ε (conditional: rests on bounds that are read from the data)", ""),
    "cost": ("Cost", ""),
    "made_with": ("Code and machine that differ", "code and machine are the same"),
}


def show_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="RUN_ID", help="id of the run, or the beginning of it")
    parser.add_argument("other", metavar="OTHER", nargs="?", help="a run to compare it with")
    add_results(parser)
    add_json(parser)


def show(options: argparse.Namespace) -> None:
    """Shows a finished run: its settings, what it guarantees, and how accurate the model is. Of two runs: the settings
    in which they differ, accuracy, guarantee, cost, and whether code and machine differ.
    """
    names = [name for name in (options.run_id, options.other) if name is not None]
    folders = [run_folders.find_run(Path(options.results), name) for name in names]
    manifests = [run_folders.read_manifest(folder) for folder in folders]
    shown = manifests[0] if options.other is None else compare(*manifests)
    if options.json:
        print_json(shown)
    elif options.other is None:
        _print_run(folders[0], shown)
    else:
        _print_comparison(shown)


def _print_run(folder: Path, manifest: Mapping[str, Any]) -> None:
    print_pairs(_head(folder, manifest))
    curves = list(_curves(folder))
    if curves:
        print("\nRounds")
        print_pairs(curves, indent="  ")
    print("\n".join(["", *manifest["privacy"]["card"]]))
    print("\nSettings that differ from the defaults")
    usual = dict(flattened(RunConfig().model_dump(mode="json")))
    settings = flattened(manifest["config"])
    print_pairs([(key, value) for key, value in settings if usual.get(key, ...) != value], indent="  ")


def _head(folder: Path, manifest: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    final = manifest["final"]
    accuracy = final["test_accuracy"]
    yield "run", folder.name
    yield "algorithm", manifest["algorithm"]
    yield "data", "synthetic" if manifest["synthetic"] else "real"
    yield "rounds executed", manifest["rounds_executed"]
    numbers = manifest["config"]["data"].get("task") == "regression"
    shown = None if accuracy is None else f"{100 * accuracy:.2f} %"
    yield "variance explained (R²)" if numbers else "test accuracy", shown
    yield "test loss", final["test_loss"]
    yield "wall seconds", manifest["wall_seconds"]
    yield "peak memory (MB)", manifest["peak_memory_mb"]


def _curves(folder: Path) -> Iterator[tuple[str, str]]:
    path = folder / "rounds.parquet"
    if not path.is_file():
        return
    from subjectdp.results.collect import read_frame  # here, to keep --help light

    names = ("test_accuracy", "validation_accuracy")
    rounds = read_frame(path, ("round", *names)).sort_values("round")
    for name in names:
        values = [float(value) for value in rounds[name].dropna()]
        if values:
            ends = f"{100 * values[0]:.1f} to {100 * values[-1]:.1f} %, best {100 * max(values):.1f} %"
            yield name.replace("_", " "), ends


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The comparison of two manifests; each entry is a pair.

    ``settings`` has the dotted keys that differ (None: not read), ``epsilon`` is at each run's own δ, ``made_with``
    has the differences in code and machine: if it is empty, only the settings explain different results.
    """
    runs = (first, second)
    finals, privacy, configs = ([run[key] for run in runs] for key in ("final", "privacy", "config"))
    read = [settings_read(config) for config in configs]
    made = [dict(flattened({key: run[key] for key in _MADE_WITH})) for run in runs]
    stated = {"published, no guarantee": "as_published", **{f"sound, {words}": unit for unit, words in UNITS.items()}}
    return {
        "runs": [run["run_id"] for run in runs],
        "algorithms": [run["algorithm"] for run in runs],
        "settings": {key: [each.get(key) for each in read] for key in differing_keys(*configs)},
        "metrics": {name: [final[name] for final in finals] for name in _METRICS},
        "epsilon": {name: [epsilon_of(each, unit) for each in privacy] for name, unit in stated.items()},
        "guarantee": {name: [_guarantee(each, unit) for each in privacy] for name, unit in stated.items()},
        "cost": {name: [run[name] for run in runs] for name in _COSTS},
        "made_with": {key: [each.get(key) for each in made] for key in differing_keys(*made)},
    }


def _guarantee(privacy: dict[str, Any], unit: str) -> Any:
    """True or ``conditional`` of a sound ε that is stated, False of a published one; else None."""
    return None if epsilon_of(privacy, unit) is None else run_folders.statement_of(privacy, unit)["guarantee"]


def _print_comparison(comparison: Mapping[str, Any]) -> None:
    print_table(("", "A", "B"), [("run", *comparison["runs"]), ("algorithm", *comparison["algorithms"])])
    for part, (title, otherwise) in _PARTS.items():
        print(f"\n{title}")
        if rows := comparison[part]:
            print_table(("", "A", "B"), [(name, *pair) for name, pair in rows.items()])
        else:
            print(otherwise)
