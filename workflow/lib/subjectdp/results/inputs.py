"""The inputs of figures: which of the collected tables a figure needs, read and checked on demand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from subjectdp.auditing.findings import COLUMNS as AUDIT_COLUMNS
from subjectdp.data.statistics import paper_settings
from subjectdp.errors import DataError, expected
from subjectdp.results.collect import ROUND_COLUMNS, RUN_COLUMNS, SUMMARY_COLUMNS
from subjectdp.results.frames import read_frame

STATISTICS_COLUMNS = ("setting", "silo", "step", "items", "subjects", "largest_group")


@dataclass(frozen=True)
class FigureInputs:
    """Paths of a scenario's collected tables; a figure raises DataError when one that it needs is missing."""

    runs: Path | None = None  # runs.parquet of collect_runs
    rounds: Path | None = None  # rounds.parquet of collect_rounds
    steps: Path | None = None  # steps.parquet of collect_steps_summary
    statistics: Path | None = None  # statistics.parquet: mini-batches from sampling alone
    partitions: tuple[Path, ...] = ()  # partition folders
    counterexample: Path | None = None  # counterexample.parquet of joint noise
    audit: Path | None = None  # audit.parquet of the audits
    accounting: Path | None = None  # accounting.parquet: the papers' settings by accounting alone
    utility: Path | None = None  # utility.parquet: excess loss of a convex model
    noise: Path | None = None  # noise.parquet: noise on the averaged gradient, planned and measured

    def read_runs(self) -> pd.DataFrame:
        """The index of runs, one row a run."""
        return read_frame(self._path("runs"), RUN_COLUMNS)

    def read_rounds(self) -> pd.DataFrame:
        """All evaluated rounds of all runs."""
        return read_frame(self._path("rounds"), ROUND_COLUMNS)

    def read_steps(self) -> pd.DataFrame:
        """Counts of mini-batches by run, quantity and value."""
        return read_frame(self._path("steps"), SUMMARY_COLUMNS)

    def read_statistics(self) -> pd.DataFrame:
        """Mini-batches of the papers' settings from sampling alone, one row each, with the setting's name.

        See :func:`subjectdp.data.statistics.paper_scale_statistics`. DataError for a setting that is not
        known.
        """
        path = self._path("statistics")
        table = read_frame(path, STATISTICS_COLUMNS).astype({"setting": str})
        known = {setting.name for setting in paper_settings()}
        unknown = sorted(set(table["setting"]) - known)
        if unknown:
            raise expected(f"settings of {path}", unknown, f"among {', '.join(sorted(known))}", DataError)
        return table

    def read_audit(self) -> pd.DataFrame:
        """The findings of the audits, one row each (``auditing.findings``)."""
        return read_frame(self._path("audit"), AUDIT_COLUMNS)

    def read_accounting(self) -> pd.DataFrame:
        """Targets answered by accounting at the papers' settings (``scorecard.paper_accounting``)."""
        from subjectdp.scorecard.paper_accounting import COLUMNS

        return read_frame(self._path("accounting"), COLUMNS)

    def read_utility(self) -> pd.DataFrame:
        """Excess loss of a convex model beside its bounds, one row an algorithm, seed and step count."""
        from subjectdp.utility.excess_loss_table import COLUMNS

        return read_frame(self._path("utility"), COLUMNS)

    def read_noise(self) -> pd.DataFrame:
        """Noise on the averaged gradient, planned and measured, one row an algorithm and schedule."""
        from subjectdp.utility.measured_noise_table import COLUMNS

        return read_frame(self._path("noise"), COLUMNS)

    def read_counterexample(self) -> pd.DataFrame:
        """Cases of the counterexample to joint noise, one row each (``auditing.counterexample.Outcome``)."""
        from subjectdp.figures.each.joint_counterexample import COLUMNS

        return read_frame(self._path("counterexample"), COLUMNS)

    def read_partitions(self) -> tuple[Path, ...]:
        """The partition folders."""
        if not self.partitions:
            raise expected("partitions of the figure", "none", "at least one partition folder", DataError)
        return self.partitions

    def _path(self, name: str) -> Path:
        path: Path | None = getattr(self, name)
        if path is None:
            raise expected(f"{name} of the figure's inputs", None, "the path of a collected table", DataError)
        return path
