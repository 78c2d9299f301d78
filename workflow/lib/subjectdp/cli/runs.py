"""``subjectdp runs`` lists the runs of a results folder or a scenario; ``show``: one of them, or two.

Runs are as their folders tell of them: what has been run, how far it is, and how long it will take.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from subjectdp.accounting.privacy_report import UNITS
from subjectdp.algorithms.registry import ALGORITHMS, algorithm, label
from subjectdp.cli.parser import add_json, add_results
from subjectdp.config.run import RunConfig, settings_apart, settings_read
from subjectdp.config.scenario import load_scenario
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import ConfigError, DataError, SubjectDPError, expected, in_words, unknown
from subjectdp.forecast.before_start import replaced_runs
from subjectdp.io.atomic import read_sealed
from subjectdp.io.locks import holder
from subjectdp.io.printing import clock, flattened, print_json, print_pairs, print_table
from subjectdp.places import PROGRESS
from subjectdp.results.shown_runs import CONDITIONAL_MARK, CONDITIONAL_NOTE, differing_keys, run_label

_LISTED = 8  # runs in a message


class State(StrEnum):
    DONE = "done"
    TRAINING = "training"  # a process holds its folder
    STOPPED = "stopped"  # begun, and nobody is at it
    OPEN = "open"  # nothing there yet
    BROKEN = "broken"  # a manifest that cannot be read, or was changed


@dataclass(frozen=True)
class RunFolder:
    """One run; what is not known of it is None."""

    run_id: str
    state: State
    label: str | None = None
    config: dict[str, Any] | None = None
    final: dict[str, Any] | None = None  # metrics of the last evaluated round
    rounds_done: int | None = None
    rounds: int | None = None
    test_accuracy: float | None = None
    wall_seconds: float | None = None
    seconds_left: int | None = None
    epsilon_published: float | None = None
    epsilon_sound_subject: float | None = None
    conditional: bool = False  # that ε rests on a bound that was read from the data
    note: str | None = None  # who trains it, or what is wrong with it


_KINDS: dict[Any, tuple[str, ...]] = {
    dict: ("config.algorithm", "config.data"),
    str: ("config.algorithm.name", "config.data.dataset"),
    (int, float): ("progress.test_accuracy", "progress.seconds_left"),
}
"""The kinds of what commands read of a run that has begun, where it is there; sections before what they hold."""


def _check_kinds(path: Path, content: Any) -> None:
    """DataError for files of other kinds, which no seal guards, as after one was damaged or written by hand."""
    for kind, keys in _KINDS.items():
        for key in keys:
            value: Any = content
            for part in key.split("."):
                value = value.get(part) if value else None
            if value is not None and not isinstance(value, kind):
                raise DataError(f"{path} is damaged ({key}: {in_words(value)}). Remove it and run the workflow again.")


def recorded_runs(results: Path) -> Iterator[RunFolder]:
    """All runs below ``results``, by id; DataError where there is no folder of runs."""
    folder = results / "runs"
    if not folder.is_dir():
        raise DataError(f"Expected {folder} to be a folder of runs; has anything been run (or use --results)?")
    for run in sorted(path for path in folder.iterdir() if path.is_dir()):
        yield read_run_folder(run)


def find_run(results: Path, text: str) -> Path:
    """The folder of the run whose id is ``text`` or, if only one does, begins with it; ConfigError otherwise."""
    folder = results / "runs"
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    matching = [name for name in names if name.startswith(text)]
    if text in names:
        return folder / text
    if not matching:
        raise expected("RUN_ID", text, f"the id of a run in {folder} (see subjectdp runs)")
    if len(matching) > 1:
        configs = {name: config for name in matching if (config := read_run_folder(folder / name).config) is not None}
        settings = settings_apart(configs)
        lines = [f"  {name}  {settings.get(name, '')}".rstrip() for name in matching[:_LISTED]]
        lines += ["  ..."] if len(matching) > _LISTED else []
        wrong = f"Expected RUN_ID to fit one run, got {text!r}, which fits {len(matching)}:"
        raise ConfigError("\n".join([wrong, *lines]))
    return folder / matching[0]


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished run; DataError where it is not finished, or its manifest damaged or changed."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise DataError(f"Expected run {folder.name} to be finished: there is no manifest.json in {folder}.")
    return read_sealed(path, "Remove it and run the workflow again.")


def read_run_folder(folder: Path) -> RunFolder:
    """What the folder of a run holds; a folder that is not there is a run to be made."""
    if not folder.is_dir():
        return RunFolder(folder.name, State.OPEN)
    try:
        return _finished(folder) if (folder / "manifest.json").is_file() else _begun(folder)
    except SubjectDPError as problem:
        return RunFolder(folder.name, State.BROKEN, note=str(problem))


def scenario_run(run: RunConfig, results: Path) -> RunFolder:
    """What there is of a scenario's run; its label and settings also where it has not begun."""
    found = read_run_folder(results / "runs" / run.run_id)
    if found.config is not None:
        return found
    label = run_label(run.algorithm.label, run.privacy.predicted_subjects)
    return replace(found, label=label, config=run.model_dump(mode="json"))


def _finished(folder: Path) -> RunFolder:
    manifest = read_manifest(folder)
    final, privacy, rounds = manifest["final"], manifest["privacy"], manifest["rounds_executed"]
    return RunFolder(
        folder.name,
        State.DONE,
        label=run_label(manifest["algorithm"], (privacy["predicted"] or {}).get("subjects")),
        config=manifest["config"],
        final=final,
        rounds_done=rounds,
        rounds=rounds,
        test_accuracy=final["test_accuracy"],
        wall_seconds=manifest["wall_seconds"],
        epsilon_published=epsilon_of(privacy, "as_published"),
        epsilon_sound_subject=epsilon_of(privacy, "subject"),
        conditional=privacy["sound"]["subject"]["guarantee"] == "conditional",
    )


def _begun(folder: Path) -> RunFolder:
    owner = holder(folder / ".lock")
    config = _json(folder / "config.json")
    progress = _json(folder / PROGRESS) or {}
    _check_kinds(folder, {"config": config, "progress": progress})
    return RunFolder(
        folder.name,
        State.STOPPED if owner is None else State.TRAINING,
        label=None if config is None else label_of(config),
        config=config,
        rounds_done=progress.get("round"),
        rounds=progress.get("rounds"),
        test_accuracy=progress.get("test_accuracy"),
        seconds_left=None if owner is None else progress.get("seconds_left"),
        note=None if owner is None else f"by {owner}",
    )


def epsilon_of(privacy: dict[str, Any], unit: str) -> float | None:
    """ε that a manifest states: ``as_published``, or the sound one of a unit; None where none is stated, and of a
    subject where nothing says whose an item is.
    """
    epsilon: float | None = statement_of(privacy, unit)["epsilon"]
    return None if unit in UNITS and unit not in stated_units([privacy]) else epsilon


def statement_of(privacy: Mapping[str, Any], unit: str) -> Mapping[str, Any]:
    """What a manifest states: ``as_published``, or of a unit, as can be proven."""
    statement: Mapping[str, Any] = privacy[unit] if unit == "as_published" else privacy["sound"][unit]
    return statement


def stated_units(privacy: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """:data:`UNITS`, or items alone where nothing says whose they are: a subject's ε is that of an item."""
    alone = any(each["own_subjects"] for each in privacy)
    return {key: words for key, words in UNITS.items() if key == "item" or not alone}


def label_of(config: dict[str, Any]) -> str | None:
    """The algorithm's name in figures; None where the configuration is not one of this version's."""
    try:
        name = label(config["algorithm"]["name"], config["algorithm"].get("variant"))
        return run_label(name, (config.get("privacy") or {}).get("predicted_subjects"))
    except (SubjectDPError, KeyError, TypeError, AttributeError):
        return None


def count_states(runs: Iterable[RunFolder]) -> str:
    """How many runs are in each state that occurs: ``2 done, 1 stopped``."""
    states = [run.state for run in runs]
    return ", ".join(f"{states.count(state)} {state}" for state in State if state in states)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


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
    counts = count_states(runs)
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
    rounds = None if run.rounds_done is None else f"{run.rounds_done}/{run.rounds}"
    left = None if run.seconds_left is None else clock(run.seconds_left)
    epsilons = (run.epsilon_published, ""), (run.epsilon_sound_subject, CONDITIONAL_MARK * run.conditional)
    rounded = (None if epsilon is None else f"{epsilon:.4g}{mark}" for epsilon, mark in epsilons)
    seconds = None if run.wall_seconds is None else f"{run.wall_seconds:.1f}"
    return run.run_id, run.label, run.state, rounds, accuracy, *rounded, seconds, left


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
    folders = [find_run(Path(options.results), name) for name in names]
    manifests = [read_manifest(folder) for folder in folders]
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
    return None if epsilon_of(privacy, unit) is None else statement_of(privacy, unit)["guarantee"]


def _print_comparison(comparison: Mapping[str, Any]) -> None:
    print_table(("", "A", "B"), [("run", *comparison["runs"]), ("algorithm", *comparison["algorithms"])])
    for part, (title, otherwise) in _PARTS.items():
        print(f"\n{title}")
        if rows := comparison[part]:
            print_table(("", "A", "B"), [(name, *pair) for name, pair in rows.items()])
        else:
            print(otherwise)
