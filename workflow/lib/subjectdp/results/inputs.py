"""Paths of a scenario's collected tables; each table is read and checked on demand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from subjectdp.data.statistics import all_settings
from subjectdp.errors import DataError, expected
from subjectdp.results.collect import ROUND_COLUMNS, RUN_COLUMNS, SUMMARY_COLUMNS
from subjectdp.results.frames import read_frame
from subjectdp.results.select import choose_setting
from subjectdp.results.shown_runs import Shown

STATISTICS_COLUMNS = ("setting", "silo", "step", "items", "subjects", "largest_group")


@dataclass(frozen=True)
class FigureInputs:
    """Paths of a scenario's collected tables, and which of its runs a figure shows.

    Reading a table that is not given raises DataError.
    """

    runs: Path | None = None  # runs.parquet of collect_runs
    rounds: Path | None = None  # rounds.parquet of collect_rounds
    steps: Path | None = None  # steps.parquet of collect_steps_summary
    statistics: Path | None = None  # mini-batches drawn by sampling alone (data.statistics)
    partitions: tuple[Path, ...] = ()  # partition folders
    counterexample: Path | None = None  # counterexample to joint noise (auditing.counterexample)
    audit: Path | None = None  # findings of the audits (auditing.findings)
    accounting: Path | None = None  # the papers' settings by accounting alone (scorecard.paper_accounting)
    utility: Path | None = None  # excess loss of a convex model (utility.excess_loss_table)
    noise: Path | None = (
        None  # noise on the averaged gradient, planned and measured (utility.measured_noise_table)
    )
    targets: Path | None = None  # config/targets.csv
    shown: Shown = Shown()  # which runs the figure shows

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
        return self.read("runs", RUN_COLUMNS)

    def shown_runs(self) -> tuple[pd.DataFrame, list[str]]:
        """The runs that the figure shows, and a note for each choice that left runs out.

        Raises DataError if there is nothing to draw, or if two runs of an algorithm and seed remain.
        """
        return choose_setting(self.read_runs(), self.shown)

    def read_rounds(self) -> pd.DataFrame:
        """All evaluated rounds of all runs."""
        return self.read("rounds", ROUND_COLUMNS)

    def read_steps(self) -> pd.DataFrame:
        """Number of mini-batches by run, quantity and value."""
        return self.read("steps", SUMMARY_COLUMNS)

    def read_statistics(self) -> pd.DataFrame:
        """Mini-batches of the papers' settings, one row each (:func:`data.statistics.paper_scale_statistics`).

        Raises DataError for an unknown setting.
        """
        table = self.read("statistics", STATISTICS_COLUMNS).astype({"setting": str})
        known = {setting.name for setting in all_settings()}
        unknown = sorted(set(table["setting"]) - known)
        if unknown:
            allowed = f"among {', '.join(sorted(known))}"
            raise expected(f"settings of {self.statistics}", unknown, allowed, DataError)
        return table

    def read_partitions(self) -> tuple[Path, ...]:
        """The partition folders; DataError if there is none."""
        if not self.partitions:
            raise expected("partitions of the figure", "none", "at least one partition folder", DataError)
        return self.partitions
