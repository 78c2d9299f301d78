"""Collects finished runs into three tables: an index of runs, their rounds, and counts of their mini-batches.

A run with a missing, empty, truncated or foreign file is refused by name: no figure may silently show fewer rounds or
mini-batches than were computed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import sha256_of, write_frame
from subjectdp.io.checksummed_json import is_intact
from subjectdp.results.frames import concatenate, read_frame, read_json
from subjectdp.results.labels import predicted_label
from subjectdp.results.shown_runs import setting_columns

RUN_COLUMNS = [
    "run_id",
    "seed",
    "dataset",
    "source",
    "synthetic",
    "algorithm",
    "variant",
    "label",
    "mode",
    "horizontal",
    "alpha",
    "silos",
    "subjects",
    "train_items",
    "epsilon",
    "delta",
    "rounds",
    "rounds_executed",
    "batch_size",
    "model",
    "final_test_accuracy",
    "final_test_loss",
    "final_validation_accuracy",
    "most_frequent_class",
    "epsilon_as_published",
    "epsilon_sound_item",
    "epsilon_sound_subject_one_silo",
    "epsilon_sound_subject",
    "subject_guarantee",
    "subject_event",
    "epsilon_over_rounds",
    "predicted_subjects",
    "epsilon_predicted",
    "wall_seconds",
    "peak_memory_mb",
    "config",
]
ROUND_COLUMNS = [
    "run_id",
    "round",
    "test_accuracy",
    "test_loss",
    "validation_accuracy",
    "validation_loss",
    "train_seconds",
    "steps_done",
]
STEP_COLUMNS = [
    "run_id",
    "round",
    "silo",
    "step",
    "items",
    "subjects",
    "largest_group",
    "noise_multiplier",
    "clipped_fraction",
]
SUMMARY_COLUMNS = ["run_id", "quantity", "value", "minibatches"]
QUANTITIES = ("items", "subjects", "largest_group")
_GUARANTEES = {True: "yes", False: "no", "conditional": "conditional"}
_ADVICE = "Remove the run's manifest.json and run the workflow again."


def read_rounds(folder: Path | str) -> pd.DataFrame:
    """One run's rounds.parquet; DataError unless its rounds rise strictly and all belong to the run."""
    path = Path(folder) / "rounds.parquet"
    frame = read_frame(path, ROUND_COLUMNS)
    rounds = frame["round"].to_numpy()
    if rounds[0] < 1 or (rounds[1:] <= rounds[:-1]).any():
        raise expected(f"rounds of {path}", rounds.tolist()[:10], "strictly rising from 1", DataError)
    _same_run(path, frame)
    return frame


def read_run(folder: Path | str) -> dict[str, Any]:
    """One row of runs.parquet from a run folder's manifest and rounds.

    ``config`` and ``epsilon_over_rounds`` (the manifest's ``privacy.over_rounds``) are JSON text. Raises DataError if
    the manifest is another run's, a file differs from the one that it lists, or the rounds end before the plan's last.
    """
    folder = Path(folder)
    manifest = read_json(folder / "manifest.json")
    if manifest.get("run_id") != folder.name:
        raise expected(
            f"run_id of {folder / 'manifest.json'}", manifest.get("run_id"), repr(folder.name), DataError
        )
    _check_files(folder, manifest)
    rounds = read_rounds(folder)
    return _row(manifest, rounds, folder / "manifest.json")


def collect_runs(run_folders: Iterable[Path | str], target_parquet: Path | str) -> pd.DataFrame:
    """Writes and returns runs.parquet: one row per run folder with :data:`RUN_COLUMNS`."""
    rows = [read_run(folder) for folder in run_folders]
    if not rows:
        raise expected("runs to collect", [], "at least one run folder", DataError)
    table = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    if table["run_id"].duplicated().any():
        twice = table.loc[table["run_id"].duplicated(), "run_id"].tolist()
        raise expected("runs to collect", twice, "different run folders", DataError)
    write_frame(target_parquet, table)
    return table


def collect_rounds(run_folders: Iterable[Path | str], target_parquet: Path | str) -> pd.DataFrame:
    """Writes and returns the rounds of all runs, concatenated."""
    table = concatenate([read_rounds(folder) for folder in run_folders], "rounds to collect")
    write_frame(target_parquet, table)
    return table


def collect_steps_summary(run_folders: Iterable[Path | str], target_parquet: Path | str) -> pd.DataFrame:
    """Writes and returns the number of mini-batches of each run by value of items, subjects and largest_group.

    Columns: run_id, quantity (one of :data:`QUANTITIES`), value, minibatches. The steps themselves, 10^5 rows per run
    at the papers' scale, are read only here.
    """
    table = concatenate([_step_counts(Path(folder)) for folder in run_folders], "mini-batches to collect")
    write_frame(target_parquet, table)
    return table


def collect_scenario(run_folders: Sequence[Path | str], folder: Path | str) -> None:
    """Writes runs.parquet, rounds.parquet and steps.parquet (the summary) of a scenario into ``folder``."""
    folder = Path(folder)
    collect_rounds(run_folders, folder / "rounds.parquet")
    collect_steps_summary(run_folders, folder / "steps.parquet")
    collect_runs(run_folders, folder / "runs.parquet")


def _check_files(folder: Path, manifest: dict[str, Any]) -> None:
    """Refuses a changed manifest, files of another size than it lists, and tables of another hash."""
    if not is_intact(manifest):
        raise DataError(
            f"{folder / 'manifest.json'} was changed after the run (its seal is broken). {_ADVICE}"
        )
    files = manifest.get("files")
    if not isinstance(files, dict) or not files.keys() >= {"rounds.parquet", "steps.parquet"}:
        raise DataError(f"Expected {folder / 'manifest.json'} to list the run's files. {_ADVICE}")
    for name, written in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != written["bytes"]:
            raise DataError(f"{path} is missing or truncated. {_ADVICE}")
        if path.suffix == ".parquet" and sha256_of(path) != written["sha256"]:
            raise DataError(f"{path} was changed after the run (its sha256 differs). {_ADVICE}")


def _step_counts(folder: Path) -> pd.DataFrame:
    path = folder / "steps.parquet"
    steps = read_frame(path, ["run_id", *QUANTITIES], only=True)
    _same_run(path, steps)
    done = int(read_rounds(folder)["steps_done"].iloc[-1])
    if len(steps) != done:
        raise expected(f"rows of {path}", len(steps), f"{done}, the steps done by the last round", DataError)
    parts = []
    for quantity in QUANTITIES:
        counts = steps[quantity].value_counts().sort_index()
        parts.append(
            pd.DataFrame(
                {
                    "quantity": quantity,
                    "value": counts.index.astype("int64"),
                    "minibatches": counts.to_numpy(),
                }
            )
        )
    table = pd.concat(parts, ignore_index=True)
    table.insert(0, "run_id", folder.name)
    return table


def _same_run(path: Path, frame: pd.DataFrame) -> None:
    names = frame["run_id"].unique().tolist()
    if names != [path.parent.name]:
        raise expected(f"run_id of {path}", names[:3], repr(path.parent.name), DataError)


def _row(manifest: dict[str, Any], rounds: pd.DataFrame, path: Path) -> dict[str, Any]:
    try:
        row = setting_columns(manifest["config"]) | _facts(manifest)
        privacy = manifest["privacy"]
        row["batch_size"] = _mean_batch(manifest, row["batch_size"])
        row["label"] = _label(manifest["algorithm"], privacy.get("predicted"))
    except (KeyError, TypeError) as problem:
        raise DataError(
            f"Expected {path} to be a whole run manifest, got one without {problem}."
        ) from problem
    last, executed = rounds.iloc[-1], row["rounds_executed"]
    if int(last["round"]) != executed:
        raise expected(
            f"last round of {path.parent / 'rounds.parquet'}", int(last["round"]), str(executed), DataError
        )
    return row | _final_metrics(last) | _epsilons(privacy)


def _mean_batch(manifest: dict[str, Any], batch_size: int) -> int:
    """Expected items of a mini-batch; the mean silo's, rounded, where ``training.sampling_fraction`` was given."""
    q = manifest["config"]["training"].get("sampling_fraction")
    if q is None:
        return batch_size
    items = [int(silo["items"]) for silo in manifest["plan"]["silos"]]
    return round(float(q) * sum(items) / len(items))


def _facts(manifest: dict[str, Any]) -> dict[str, Any]:
    """The columns that the manifest states besides settings and ε."""
    counts = manifest["partition"]["counts"]
    return {
        "run_id": manifest["run_id"],
        "synthetic": bool(manifest["synthetic"]),
        "subjects": counts["subjects"],
        "train_items": counts["train_items"],
        "rounds_executed": int(manifest["plan"]["rounds"]),
        "wall_seconds": manifest["wall_seconds"],
        "peak_memory_mb": manifest["peak_memory_mb"],
        "most_frequent_class": manifest.get("most_frequent_class", math.nan),  # manifests before 2026-11-22
    }


def _final_metrics(last: pd.Series) -> dict[str, float]:
    names = {"test_accuracy": "final_test_accuracy", "test_loss": "final_test_loss"}
    names["validation_accuracy"] = "final_validation_accuracy"
    return {target: float(last[name]) for name, target in names.items()}


def _epsilons(privacy: dict[str, Any]) -> dict[str, float | str]:
    sound = privacy.get("sound") or {}
    return {
        "epsilon_as_published": epsilon_of(privacy.get("as_published")),
        "epsilon_sound_item": epsilon_of(sound.get("item")),
        "epsilon_sound_subject_one_silo": epsilon_of(sound.get("subject_one_silo")),
        "epsilon_sound_subject": epsilon_of(sound.get("subject")),
        "subject_guarantee": _GUARANTEES[(sound.get("subject") or {}).get("guarantee", False)],
        "subject_event": json.dumps((sound.get("subject") or {}).get("event")),
        "epsilon_over_rounds": json.dumps(privacy.get("over_rounds")),
        **_predicted(privacy.get("predicted")),
    }


def _label(label: str, predicted: dict[str, Any] | None) -> str:
    """The algorithm's label, marked if the noise is predicted, so that such runs are never mixed with others."""
    return label if predicted is None else predicted_label(label, int(predicted["subjects"]))


def _predicted(record: dict[str, Any] | None) -> dict[str, float]:
    """The number of subjects that predicted noise is for, and their ε; NaN for any other run."""
    if record is None:
        return {"predicted_subjects": math.nan, "epsilon_predicted": math.nan}
    return {"predicted_subjects": float(record["subjects"]), "epsilon_predicted": epsilon_of(record)}


def epsilon_of(statement: Any) -> float:
    """The ε of one privacy statement: a number, an object with ``epsilon``, or null (NaN).

    JSON has no infinity; the texts ``inf`` and ``infinity`` stand for it.
    """
    if isinstance(statement, dict):
        statement = statement.get("epsilon")
    if statement is None:
        return math.nan
    try:
        return float(statement)
    except (TypeError, ValueError) as problem:
        raise expected(
            "epsilon of a privacy statement", statement, "a number, inf or null", DataError
        ) from problem
