"""Runs for the terminal: list, show and compare them, as plain objects and as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from subjectdp.analysis.collect import epsilon_of, read_rounds
from subjectdp.analysis.frames import read_json
from subjectdp.analysis.select import differing_keys
from subjectdp.analysis.style import format_epsilon
from subjectdp.errors import DataError, expected, unknown

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 8


def list_runs(results_dir: Path | str) -> list[dict[str, Any]]:
    """All runs below ``results_dir``/runs, by id: state (finished, unfinished, broken), label, last accuracy,
    ε.

    A run without manifest is unfinished: its progress is the last line of its log.
    """
    folder = Path(results_dir) / "runs"
    if not folder.is_dir():
        return []
    return [_listed(path) for path in sorted(folder.iterdir()) if path.is_dir()]


def show_run(results_dir: Path | str, run_id: str) -> dict[str, Any]:
    """One finished run: configuration, privacy statements, final metrics, cost and its rounds.

    Raises DataError for an unknown or unfinished run.
    """
    folder = _run_folder(results_dir, run_id)
    manifest, rounds = read_json(folder / "manifest.json"), read_rounds(folder)
    last = rounds.iloc[-1]
    return {
        "run_id": run_id,
        "label": manifest["algorithm"],
        "synthetic": bool(manifest["synthetic"]),
        "config": manifest["config"],
        "privacy": manifest["privacy"],
        "final": {
            name: float(last[name])
            for name in ("test_accuracy", "test_loss", "validation_accuracy", "validation_loss")
        },
        "rounds": [int(value) for value in rounds["round"]],
        "test_accuracy": [float(value) for value in rounds["test_accuracy"]],
        "test_loss": [float(value) for value in rounds["test_loss"]],
        "wall_seconds": manifest["wall_seconds"],
        "peak_memory_mb": manifest["peak_memory_mb"],
    }


def compare_runs(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two shown runs side by side: the settings they differ in, and final metrics, ε and cost of both."""
    keys = differing_keys(first["config"], second["config"])
    return {
        "runs": [first["run_id"], second["run_id"]],
        "labels": [first["label"], second["label"]],
        "settings": {key: [_dig(first["config"], key), _dig(second["config"], key)] for key in keys},
        "metrics": {name: [first["final"][name], second["final"][name]] for name in first["final"]},
        "epsilon": {name: [_epsilons(run)[name] for run in (first, second)] for name in _epsilons(first)},
        "wall_seconds": [first["wall_seconds"], second["wall_seconds"]],
    }


def format_list(runs: Sequence[dict[str, Any]]) -> str:
    """The runs as an aligned table."""
    if not runs:
        return "no runs"
    rows = [("run", "state", "algorithm", "round", "accuracy", "ε published*", "ε sound")]
    for run in runs:
        accuracy = run["test_accuracy"]
        rows.append(
            (
                run["run_id"],
                run["state"],
                run["label"] or "–",
                "–" if run["round"] is None else str(run["round"]),
                "–" if accuracy is None else f"{accuracy:.2%}",
                _word(run["epsilon_as_published"]),
                _word(run["epsilon_sound_subject"]),
            )
        )
    return f"{_aligned(rows)}\n* no guarantee; ε sound: subject level over all its silos"


def format_run(run: dict[str, Any]) -> str:
    """One shown run: label, metrics, what is guaranteed, and the accuracy over rounds as a curve."""
    final = run["final"]
    note = "  (synthetic data)" if run["synthetic"] else ""
    rows = [
        ("algorithm", run["label"] + note),
        ("test", f"accuracy {final['test_accuracy']:.2%}, loss {final['test_loss']:.4f}"),
        ("validation", f"accuracy {final['validation_accuracy']:.2%}, loss {final['validation_loss']:.4f}"),
        *[(f"ε {name}", _word(value)) for name, value in _epsilons(run).items()],
        ("cost", f"{run['wall_seconds']:.1f} s, {run['peak_memory_mb']:.0f} MB"),
    ]
    curve = terminal_curve(run["test_accuracy"], run["rounds"])
    return f"{run['run_id']}\n{_aligned(rows)}\n\ntest accuracy over rounds\n{curve}"


def format_comparison(comparison: dict[str, Any]) -> str:
    """Two runs side by side."""
    rows: list[tuple[str, ...]] = [("", *comparison["runs"]), ("algorithm", *comparison["labels"])]
    rows += [(key, *map(str, values)) for key, values in comparison["settings"].items()]
    rows += [(name, *(f"{value:.4f}" for value in values)) for name, values in comparison["metrics"].items()]
    rows += [
        (f"ε {name}", *(_word(value) for value in values)) for name, values in comparison["epsilon"].items()
    ]
    rows.append(("seconds", *(f"{value:.1f}" for value in comparison["wall_seconds"])))
    return _aligned(rows)


def terminal_curve(values: Sequence[float], rounds: Sequence[int], width: int = 64) -> str:
    """A curve of block characters, :data:`_HEIGHT` lines high, from 0 to the largest value.

    Gaps where not finite.
    """
    if len(values) != len(rounds) or not values:
        raise expected(
            "curve", (len(values), len(rounds)), "as many values as rounds, at least one", DataError
        )
    columns = [
        values[index * len(values) // min(width, len(values))] for index in range(min(width, len(values)))
    ]
    columns[-1] = values[-1]
    top = max((value for value in columns if math.isfinite(value)), default=0.0)
    levels = [_level(value, top) for value in columns]
    lines = []
    for line in range(_HEIGHT - 1, -1, -1):
        mark = f"{top * (line + 1) / _HEIGHT:8.3g} ┤"
        lines.append(mark + "".join(_BLOCKS[min(8, max(0, level - 8 * line))] for level in levels))
    foot = f"round {rounds[0]}".ljust(max(0, len(columns) - len(str(rounds[-1])))) + str(rounds[-1])
    return "\n".join([*lines, " " * 10 + foot])


def _level(value: float, top: float) -> int:
    if not math.isfinite(value) or top <= 0:
        return 0
    return round(max(0.0, value) / top * 8 * _HEIGHT)


def _listed(folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"run_id": folder.name, "state": "unfinished", "label": None, "round": None}
    row |= {
        "test_accuracy": None,
        "epsilon_as_published": None,
        "epsilon_sound_subject": None,
        "progress": None,
    }
    log = folder / "progress.log"
    if log.is_file():
        row["progress"] = next(iter(log.read_text(errors="replace").splitlines()[-1:]), None)
    if not (folder / "manifest.json").exists():
        return row
    try:
        run = show_run(folder.parents[1], folder.name)
    except (DataError, KeyError) as problem:
        return row | {"state": "broken", "progress": str(problem)}
    epsilons = _epsilons(run)
    return row | {
        "state": "finished",
        "label": run["label"],
        "round": run["rounds"][-1],
        "test_accuracy": run["final"]["test_accuracy"],
        "epsilon_as_published": epsilons["published, no guarantee"],
        "epsilon_sound_subject": epsilons["sound, subject"],
    }


def _run_folder(results_dir: Path | str, run_id: str) -> Path:
    runs = Path(results_dir) / "runs"
    known = [path.name for path in runs.iterdir() if path.is_dir()] if runs.is_dir() else []
    if run_id not in known:
        raise unknown("run", run_id, known, DataError)
    return runs / run_id


def _epsilons(run: dict[str, Any]) -> dict[str, float]:
    privacy = run["privacy"]
    sound = privacy.get("sound") or {}
    return {
        "published, no guarantee": epsilon_of(privacy.get("as_published")),
        "sound, item": epsilon_of(sound.get("item")),
        "sound, subject at one silo": epsilon_of(sound.get("subject_one_silo")),
        "sound, subject": epsilon_of(sound.get("subject")),
    }


def _word(value: float | None) -> str:
    return "–" if value is None else format_epsilon(value)


def _dig(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = config.get(name) if isinstance(config, dict) else None
    return config


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
    )
