"""Collects finished runs into three tables: an index of runs, their rounds, and counts of their mini-batches.

A run with a missing, empty, truncated or foreign file is refused by name: no figure may silently show fewer rounds or
mini-batches than were computed.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import is_intact, sha256_of, write_frame
from subjectdp.results.inputs import ROUND_COLUMNS, RUN_COLUMNS, SUMMARY_COLUMNS, read_frame, read_json
from subjectdp.results.shown_runs import run_label, setting_columns

QUANTITIES = ("items", "subjects", "largest_group")
_GUARANTEES = {True: "yes", False: "no", "conditional": "conditional"}
_ADVICE = "Remove the run's manifest.json and run the workflow again."


def read_run(folder: Path | str) -> dict[str, Any]:
    """One row of runs.parquet from a run folder's manifest and rounds.

    ``setting``, ``subject_event`` and ``epsilon_over_rounds`` (the manifest's ``privacy.over_rounds``) are JSON text.
    Raises DataError if the manifest is another run's, or a file differs from the one that it lists.
    """
    path = Path(folder) / "manifest.json"
    manifest = read_json(path)
    if manifest.get("run_id") != path.parent.name:
        raise expected(f"run_id of {path}", manifest.get("run_id"), repr(path.parent.name), DataError)
    _check_files(path.parent, manifest)
    return _row(manifest, read_frame(path.with_name("rounds.parquet"), ROUND_COLUMNS), path)


def collect_scenario(run_folders: Sequence[Path | str], folder: Path | str) -> pd.DataFrame:
    """Writes runs.parquet, rounds.parquet and steps.parquet of a scenario into ``folder``; returns the first.

    runs: a row a run with :data:`RUN_COLUMNS`. rounds: the rounds of all runs. steps: the number of mini-batches of
    each run by value of :data:`QUANTITIES` (run_id, quantity, value, minibatches); the steps themselves, 10^5 rows a
    run at the papers' scale, are read only here.
    """
    folder, runs = Path(folder), [Path(run) for run in run_folders]
    if not runs:
        raise expected("runs to collect", [], "at least one run folder", DataError)
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        raise expected("runs to collect", names, "different run folders", DataError)
    table = pd.DataFrame([read_run(run) for run in runs], columns=RUN_COLUMNS)
    rounds = pd.concat([read_frame(run / "rounds.parquet", ROUND_COLUMNS) for run in runs], ignore_index=True)
    write_frame(folder / "rounds.parquet", rounds)
    write_frame(folder / "steps.parquet", pd.concat(map(_step_counts, runs), ignore_index=True))
    write_frame(folder / "runs.parquet", table)
    return table


def epsilon_of(statement: Any) -> float:
    """The ε of one privacy statement: a number, an object with ``epsilon``, or null (NaN).

    JSON has no infinity; the texts ``inf`` and ``infinity`` stand for it.
    """
    value = statement.get("epsilon") if isinstance(statement, dict) else statement
    try:
        return math.nan if value is None else float(value)
    except (TypeError, ValueError) as problem:
        raise expected("epsilon of a privacy statement", value, "a number, inf or null", DataError) from problem


def _check_files(folder: Path, manifest: dict[str, Any]) -> None:
    if not is_intact(manifest):
        raise DataError(f"{folder / 'manifest.json'} was changed after the run: checksum mismatch. {_ADVICE}")
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
    steps = read_frame(folder / "steps.parquet", QUANTITIES, only=True, empty=True)  # machines keep theirs
    counts = {name: steps[name].astype("int64").value_counts().sort_index() for name in QUANTITIES}
    table = pd.concat(counts, names=["quantity", "value"]).rename("minibatches").reset_index()
    return table.assign(run_id=folder.name)[SUMMARY_COLUMNS]


def _row(manifest: dict[str, Any], rounds: pd.DataFrame, path: Path) -> dict[str, Any]:
    try:
        row = setting_columns(manifest["config"]) | _facts(manifest) | _epsilons(manifest["privacy"])
        if (q := manifest["config"]["training"].get("sampling_fraction")) is not None:  # the mean over the silos
            items = [int(silo["items"]) for silo in manifest["plan"]["silos"]]
            row["batch_size"] = round(float(q) * sum(items) / len(items))
    except (KeyError, TypeError) as problem:
        raise DataError(f"Expected {path} to be a whole run manifest, got one without {problem}.") from problem
    last = rounds.iloc[-1]
    return row | {f"final_{name}": float(last[name]) for name in ("test_accuracy", "test_loss", "validation_accuracy")}


def _facts(manifest: dict[str, Any]) -> dict[str, Any]:
    counts = manifest["partition"]["counts"]
    predicted = manifest["privacy"].get("predicted")
    return {
        "run_id": manifest["run_id"],
        # marked if the noise is predicted, so that such runs are never mixed with others
        "label": run_label(manifest["algorithm"], None if predicted is None else int(predicted["subjects"])),
        "synthetic": bool(manifest["synthetic"]),
        "subjects": counts["subjects"],
        "train_items": counts.get("train_items", math.nan),  # of a federation nobody knows them
        "rounds_executed": int(manifest["plan"]["rounds"]),
        "wall_seconds": manifest["wall_seconds"],
        "peak_memory_mb": manifest["peak_memory_mb"],
        "most_frequent_class": manifest.get("most_frequent_class", math.nan),  # manifests before 2026-11-22
    }


def _epsilons(privacy: dict[str, Any]) -> dict[str, float | str]:
    sound, predicted = privacy.get("sound") or {}, privacy.get("predicted")
    subject = sound.get("subject") or {}
    return {
        "epsilon_as_published": epsilon_of(privacy.get("as_published")),
        "epsilon_sound_item": epsilon_of(sound.get("item")),
        "epsilon_sound_subject_one_silo": epsilon_of(sound.get("subject_one_silo")),
        "epsilon_sound_subject": epsilon_of(sound.get("subject")),
        "subject_guarantee": _GUARANTEES[subject.get("guarantee", False)],
        "subject_event": json.dumps(subject.get("event")),
        "epsilon_over_rounds": json.dumps(privacy.get("over_rounds")),
        "predicted_subjects": math.nan if predicted is None else float(predicted["subjects"]),
        "epsilon_predicted": epsilon_of(predicted),
    }
