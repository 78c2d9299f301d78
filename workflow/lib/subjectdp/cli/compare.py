"""Two finished runs side by side, for ``subjectdp show A B``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from subjectdp.cli.run_folders import epsilon_of
from subjectdp.io.printing import flattened, print_table

_METRICS = ("test_accuracy", "test_loss", "validation_accuracy", "validation_loss")
_UNITS = {
    "published, no guarantee": "as_published",
    "sound, one item": "item",
    "sound, one subject at one silo": "subject_one_silo",
    "sound, one subject at all its silos": "subject",
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
        "epsilon": {name: [epsilon_of(each, unit) for each in privacy] for name, unit in _UNITS.items()},
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
