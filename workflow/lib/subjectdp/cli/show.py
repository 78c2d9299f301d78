"""``subjectdp show``: one finished run, its accuracy curve, its privacy and its settings."""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from subjectdp.cli.parser import add_json, add_results
from subjectdp.cli.run_folders import UNITS, epsilon_of, find_run, read_manifest
from subjectdp.config import RunConfig
from subjectdp.io.printing import flattened, print_json, print_pairs, print_table

_BLOCKS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 60


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "show",
        description="Shows a finished run: its settings, what it guarantees, and how accurate the model is. Of two "
        "runs: the settings in which they differ, accuracy, guarantee, cost, and whether code and machine differ.",
    )
    parser.add_argument("run_id", metavar="RUN_ID", help="id of the run, or the beginning of it")
    parser.add_argument("other", metavar="OTHER", nargs="?", help="a run to compare it with")
    add_results(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints a finished run, or two side by side."""
    folder = find_run(Path(options.results), options.run_id)
    manifest = read_manifest(folder)
    if options.other is not None:
        comparison = compare(manifest, read_manifest(find_run(Path(options.results), options.other)))
        if options.json:
            print_json(comparison)
        else:
            print_comparison(comparison)
    elif options.json:
        print_json(manifest)
    else:
        _print_run(folder, manifest)


def _print_run(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Prints the manifest, and the curve if there is a rounds.parquet."""
    print_pairs(_head(folder, manifest))
    curves = list(_curves(folder))
    if curves:
        print("\nRounds")
        print_pairs(curves, indent="  ")
    privacy = manifest.get("privacy") or {}
    if privacy:
        print("\nPrivacy")
        print_pairs(_privacy(privacy), indent="  ")
        assumptions = _assumptions(privacy)
        _print_list("Assumptions of the sound statements", assumptions)
        _print_list("Not covered", (privacy.get("excluded") or []) if assumptions else [])
    print("\nSettings that differ from the defaults")
    print_pairs(_settings(manifest.get("config") or {}), indent="  ")


def sparkline(values: list[float], width: int = _CURVE_WIDTH) -> str:
    """``values`` as blocks between their minimum and maximum, thinned out to ``width``."""
    if len(values) > width:
        values = [values[round(i * (len(values) - 1) / (width - 1))] for i in range(width)]
    low, high = min(values), max(values)
    span = high - low
    if span == 0:
        return _BLOCKS[0] * len(values)
    return "".join(_BLOCKS[round((value - low) / span * (len(_BLOCKS) - 1))] for value in values)


def _head(folder: Path, manifest: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    final = manifest.get("final") or {}
    accuracy = final.get("test_accuracy")
    yield "run", folder.name
    yield "algorithm", manifest.get("algorithm")
    yield "data", "synthetic" if manifest.get("synthetic") else "real"
    yield "rounds executed", manifest.get("rounds_executed")
    numbers = (manifest.get("config") or {}).get("data", {}).get("task") == "regression"
    yield (
        "variance explained (R²)" if numbers else "test accuracy",
        None if accuracy is None else f"{100 * accuracy:.2f} %",
    )
    yield "test loss", final.get("test_loss")
    yield "wall seconds", manifest.get("wall_seconds")
    yield "peak memory (MB)", manifest.get("peak_memory_mb")


def _curves(folder: Path) -> Iterator[tuple[str, str]]:
    path = folder / "rounds.parquet"
    if not path.is_file():
        return
    from subjectdp.results.inputs import read_frame  # here, to keep --help light

    names = ("test_accuracy", "validation_accuracy")
    rounds = read_frame(path, ("round", *names)).sort_values("round")
    for name in names:
        values = [float(value) for value in rounds[name].dropna()]
        if values:
            ends = f"{100 * values[0]:.1f} to {100 * values[-1]:.1f} %, best {100 * max(values):.1f} %"
            yield name.replace("_", " "), f"{sparkline(values)}  {ends}"


def _privacy(privacy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    predicted = privacy.get("predicted")
    if predicted is not None:
        wanted, present = f"{predicted['subjects']:,}", f"{predicted['present']:,}"
        theirs = f"{wanted} subjects would get {_epsilon(predicted)}; this run has {present}"
        yield "PREDICTED NOISE (an experiment)", theirs
    published = privacy.get("as_published") or {}
    if published.get("epsilon") is not None:
        claim = f"{_epsilon(published)}, {published.get('unit', '?')} level"
        yield "as published (no guarantee)", claim
    for key, unit in UNITS.items():
        record = (privacy.get("sound") or {}).get(key)
        if record is not None:
            yield f"sound, {unit}", _epsilon(record)


def _epsilon(record: Mapping[str, Any]) -> str:
    epsilon, delta = record.get("epsilon"), record.get("delta")
    if epsilon is None:
        return f"none: {record.get('reason') or 'no finite epsilon can be stated'}"
    return f"epsilon {epsilon:.4g} at delta {delta:g}" if delta is not None else f"epsilon {epsilon:.4g}"


def _assumptions(privacy: Mapping[str, Any]) -> list[str]:
    """The assumptions of the statements that give an ε, each once."""
    records = [record for record in (privacy.get("sound") or {}).values() if isinstance(record, Mapping)]
    stated = [record for record in records if record.get("epsilon") is not None]
    return list(dict.fromkeys(text for record in stated for text in record.get("assumptions") or []))


def _settings(config: Mapping[str, Any]) -> list[tuple[str, Any]]:
    defaults = dict(flattened(RunConfig().model_dump(mode="json")))
    return [(key, value) for key, value in flattened(dict(config)) if key not in defaults or defaults[key] != value]


def _print_list(title: str, lines: Iterable[str]) -> None:
    listed = list(lines)
    if listed:
        print(f"\n{title}")
        for line in listed:
            print(f"  - {line}")


_METRICS = ("test_accuracy", "test_loss", "validation_accuracy", "validation_loss")
_STATED = {"published, no guarantee": "as_published"} | {
    f"sound, {words.replace(', at', ' at')}": unit for unit, words in UNITS.items()
}
_COSTS = ("rounds_executed", "wall_seconds", "peak_memory_mb")


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The comparison of two manifests; each entry is a pair, None if a run's manifest does not have it.

    ``settings`` has the dotted keys that differ, ``epsilon`` is at each run's own δ, ``made_with`` has the differences
    in code and machine: if it is empty, only the settings explain different results.
    """
    runs = (first, second)
    ids, labels = ([run.get(key) for run in runs] for key in ("run_id", "algorithm"))
    finals = [run.get("final") or {} for run in runs]
    privacy = [run.get("privacy") or {} for run in runs]
    return {
        "runs": ids,
        "algorithms": labels,
        "settings": dict(_differing(first.get("config") or {}, second.get("config") or {})),
        "metrics": {name: [final.get(name) for final in finals] for name in _METRICS},
        "epsilon": {name: [epsilon_of(each, unit) for each in privacy] for name, unit in _STATED.items()},
        "cost": {name: [run.get(name) for run in runs] for name in _COSTS},
        "made_with": dict(_differing(_making(first), _making(second))),
    }


def print_comparison(comparison: Mapping[str, Any]) -> None:
    print_table(("", "A", "B"), [("run", *comparison["runs"]), ("algorithm", *comparison["algorithms"])])
    _print("Settings that differ", comparison["settings"], "the settings are the same")
    _print("Metrics of the last round", dict(map(_in_percent, comparison["metrics"].items())), "")
    _print("ε of the whole run", comparison["epsilon"], "")
    _print("Cost", comparison["cost"], "")
    _print("Code and machine that differ", comparison["made_with"], "code and machine are the same")


def _print(title: str, rows: Mapping[str, list[Any]], otherwise: str) -> None:
    print(f"\n{title}")
    if rows:
        print_table(("", "A", "B"), [(name, *pair) for name, pair in rows.items()])
    else:
        print(otherwise)


def _in_percent(metric: tuple[str, list[Any]]) -> tuple[str, list[Any]]:
    """Accuracies in per cent, as every command prints them; losses as they are."""
    name, values = metric
    if not name.endswith("accuracy"):
        return metric
    return f"{name} (%)", [None if value is None else f"{100 * value:.2f}" for value in values]


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    left, right = dict(flattened(dict(first))), dict(flattened(dict(second)))
    for key in sorted(left | right):
        if left.get(key) != right.get(key):
            yield key, [left.get(key), right.get(key)]


def _making(manifest: Mapping[str, Any]) -> dict[str, Any]:
    environment = manifest.get("environment") or {}
    return {
        "code": manifest.get("code_fingerprint"),
        "commit": environment.get("git_commit"),
        "device": environment.get("device_name"),
        "threads": environment.get("threads"),
        "python": environment.get("python"),
        "packages": environment.get("packages") or {},
    }
