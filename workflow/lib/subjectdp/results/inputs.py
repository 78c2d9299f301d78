"""A scenario's collected tables: their columns, and reading them; DataError if one is damaged or lacks a column."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.lib
import pyarrow.parquet as pq

from subjectdp.data.statistics import all_settings
from subjectdp.errors import DataError, expected
from subjectdp.results.select import choose_setting
from subjectdp.results.shown_runs import MOST_SETTINGS, Shown, settings_of

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
    """A parquet file as a frame; ``only`` reads just ``columns``.

    Raises DataError naming the file if it is missing, empty, truncated, lacks a column, or, unless ``empty``, a row.
    """
    path, wanted = Path(path), list(columns)
    _require_file(path)
    try:
        present = set(pq.read_schema(path).names)
        missing = [name for name in wanted if name not in present]
        if missing:
            raise expected(f"columns of {path}", sorted(present), f"with {', '.join(missing)}", DataError)
        frame = pd.read_parquet(path, columns=wanted if only else None)
    except (pyarrow.lib.ArrowInvalid, OSError) as problem:
        raise expected(str(path), str(problem), "a whole parquet file", DataError) from problem
    if frame.empty and not empty:
        raise expected(str(path), "no rows", "a table with at least one row", DataError)
    return frame


def read_json(path: Path | str) -> dict[str, Any]:
    """A JSON object from a file; DataError naming the file if it is missing, empty, truncated or no object."""
    path = Path(path)
    _require_file(path)
    try:
        content = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise expected(str(path), str(problem), "whole JSON", DataError) from problem
    if not isinstance(content, dict):
        raise expected(str(path), type(content).__name__, "a JSON object", DataError)
    return content


def _require_file(path: Path) -> None:
    if not path.is_file() or path.stat().st_size == 0:
        raise expected(str(path), "nothing", "a file with content", DataError)


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
    accounting: Path | None = None  # the papers' settings by accounting alone (scorecard.paper_accounting)
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
        """The index of runs, one row per run."""
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
        """All evaluated rounds of all runs."""
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
