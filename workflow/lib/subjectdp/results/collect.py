"""Collects finished runs into three tables (runs, their rounds, counts of their mini-batches), and reads the tables.

A run with a missing, empty, truncated or foreign file is refused by name: no figure may silently show fewer rounds or
mini-batches than were computed. So is a table that is damaged or lacks a column.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.lib

from subjectdp.data.statistics import all_settings
from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import read_sealed, sha256_of, write_frame
from subjectdp.results.select import choose_setting
from subjectdp.results.shown_runs import MOST_SETTINGS, NO_IDS, Shown, run_label, setting_columns, settings_of

RUN_COLUMNS = [
    *("run_id", "seed", "dataset", "source", "synthetic", "trimmed", "algorithm", "variant", "label"),
    *("mode", "horizontal", "trust", "alpha", "silos", "silos_per_subject", "subjects", "train_items"),
    *("epsilon", "delta", "rounds", "rounds_executed", "local_steps", "batch_size", "model"),
    *("joint_clipping", "joint_noise", "joint_bits", "own_noise_only"),
    *("final_test_accuracy", "final_test_loss", "final_validation_accuracy", "most_frequent_class"),
    *("epsilon_as_published", "epsilon_sound_item", "epsilon_sound_subject_one_silo"),
    *("epsilon_sound_subject", "subject_guarantee", "subject_event", "epsilon_over_rounds"),
    *("predicted_subjects", "epsilon_predicted", "wall_seconds", "peak_memory_mb", "setting"),
]
ROUND_COLUMNS = [
    *("run_id", "round", "test_accuracy", "test_loss", "validation_accuracy", "validation_loss"),
    *("train_seconds", "steps_done"),
]
SUMMARY_COLUMNS = ["run_id", "quantity", "value", "minibatches"]
STATISTICS_COLUMNS = ("setting", "silo", "step", "items", "subjects", "largest_group")


def read_frame(path: Path | str, columns: Iterable[str], only: bool = False, empty: bool = False) -> pd.DataFrame:
    """A parquet or CSV file as a frame; ``only`` reads just ``columns`` of parquet.

    Raises DataError naming the file if it is missing, damaged, lacks a column, or, unless ``empty``, a row.
    """
    path, wanted = Path(path), list(columns)
    if not path.is_file() or path.stat().st_size == 0:
        raise expected(str(path), "nothing", "a file with content", DataError)
    try:
        some: dict[str, Any] = {"columns": wanted if only else None, "page_checksum_verification": True}
        frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path, **some)
    except (pyarrow.lib.ArrowException, ValueError, LookupError, TypeError, OSError) as problem:  # whatever is damaged
        raise expected(str(path), str(problem), "a whole table; remove it and run again", DataError) from problem
    if missing := [name for name in wanted if name not in frame.columns]:
        raise expected(f"columns of {path}", sorted(frame.columns), f"with {', '.join(missing)}", DataError)
    if frame.empty and not empty:
        raise expected(str(path), "no rows", "a table with at least one row", DataError)
    return frame


@dataclass(frozen=True)
class FigureInputs:
    """Paths of a scenario's collected tables, and which of its runs a figure shows."""

    runs: Path | None = None  # runs.parquet of results.collect
    rounds: Path | None = None  # rounds.parquet
    steps: Path | None = None  # steps.parquet, the counts
    statistics: Path | None = None  # mini-batches drawn by sampling alone (data.statistics)
    partitions: tuple[Path, ...] = ()  # partition folders
    counterexample: Path | None = None  # counterexample to joint noise (auditing.counterexample)
    audit: Path | None = None  # findings of the audits (auditing.suite)
    accounting: Path | None = None  # the papers' settings by accounting alone (report.paper_accounting)
    utility: Path | None = None  # excess loss of a convex model (utility.EXCESS_COLUMNS)
    noise: Path | None = None  # noise on the averaged gradient, planned and measured (utility)
    targets: Path | None = None  # config/targets.csv
    shown: Shown = Shown()  # which runs the figure shows
    only: frozenset[str] | None = None  # ids of the runs that are read; None: all

    def path(self, name: str) -> Path:
        """The path of an input; DataError if it is not given."""
        path: Path | None = getattr(self, name)
        if path is None:
            raise expected(f"{name} of the figure's inputs", None, "the path of a collected table", DataError)
        return path

    def read(self, name: str, columns: Iterable[str]) -> pd.DataFrame:
        """A table with at least ``columns`` and one row; DataError if it is missing or damaged."""
        return read_frame(self.path(name), columns)

    def read_runs(self) -> pd.DataFrame:
        runs = self.read("runs", RUN_COLUMNS)
        return runs if self.only is None else runs[runs["run_id"].isin(self.only)]

    def settings(self) -> list[tuple[str, frozenset[str]]]:
        """The settings that the figure shows side by side, in words, and the runs of each; one if they are too many."""
        runs = self.read_runs()
        found = settings_of(runs.to_dict("records"), self.shown)
        if not 1 < len(found) <= MOST_SETTINGS:
            return [("", frozenset(runs["run_id"]))]
        return [(words, frozenset(runs["run_id"].iloc[places])) for words, places in found]

    def shown_runs(self) -> tuple[pd.DataFrame, list[str]]:
        """The runs that the figure shows, and a note for each choice that left runs out. Raises as ``shown_rows``."""
        return choose_setting(self.read_runs(), self.shown)

    def read_rounds(self) -> pd.DataFrame:
        return self.read("rounds", ROUND_COLUMNS)

    def read_steps(self) -> pd.DataFrame:
        """Number of mini-batches by run, quantity and value."""
        steps = read_frame(self.path("steps"), SUMMARY_COLUMNS, empty=True)
        if steps.empty:
            allowed = "those of simulated runs: silos of a federation keep theirs (figure1_v3 needs none)"
            raise expected("mini-batches of the runs", "none", allowed, DataError)
        return steps

    def read_statistics(self) -> pd.DataFrame:
        """Mini-batches of the papers' settings, one row each; DataError for an unknown setting."""
        table = self.read("statistics", STATISTICS_COLUMNS).astype({"setting": str})
        known = sorted(setting.name for setting in all_settings())
        unknown = sorted(set(table["setting"]) - set(known))
        if unknown:
            raise expected(f"settings of {self.statistics}", unknown, f"among {', '.join(known)}", DataError)
        return table


QUANTITIES = ("items", "subjects", "largest_group")
_GUARANTEES = {True: "yes", False: "no", "conditional": "conditional"}
_ADVICE = "Remove the run's manifest.json and run the workflow again."


def read_run(folder: Path | str) -> dict[str, Any]:
    """One row of runs.parquet from a run folder's manifest and rounds.

    ``setting``, ``subject_event`` and ``epsilon_over_rounds`` (the manifest's ``privacy.over_rounds``) are JSON text.
    Raises DataError if the manifest is another run's, or a file differs from the one that it lists.
    """
    path = Path(folder) / "manifest.json"
    manifest = read_sealed(path, _ADVICE)
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
    table = pd.DataFrame([read_run(run) for run in runs], columns=RUN_COLUMNS)
    rounds = pd.concat([read_frame(run / "rounds.parquet", ROUND_COLUMNS) for run in runs], ignore_index=True)
    write_frame(folder / "rounds.parquet", rounds)
    write_frame(folder / "steps.parquet", pd.concat(map(_step_counts, runs), ignore_index=True))
    write_frame(folder / "runs.parquet", table)
    return table


def _check_files(folder: Path, manifest: dict[str, Any]) -> None:
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
    sound, predicted, over = privacy.get("sound") or {}, privacy.get("predicted"), privacy.get("over_rounds")
    if alone := bool(privacy.get("own_subjects")):
        sound, over = {"item": sound.get("item")}, over and {**over, "subject": None}
    subject = sound.get("subject") or {}
    return {
        "epsilon_as_published": _epsilon(privacy.get("as_published")),
        **{f"epsilon_sound_{unit}": _epsilon(sound.get(unit)) for unit in ("item", "subject_one_silo", "subject")},
        "subject_guarantee": NO_IDS if alone else _GUARANTEES[subject.get("guarantee", False)],
        "subject_event": json.dumps(subject.get("event")),
        "epsilon_over_rounds": json.dumps(over),
        "predicted_subjects": math.nan if predicted is None else float(predicted["subjects"]),
        "epsilon_predicted": _epsilon(predicted),
    }


def _epsilon(statement: dict[str, Any] | None) -> float:
    """NaN where none is stated."""
    return math.nan if statement is None or statement["epsilon"] is None else float(statement["epsilon"])
