"""How far the runs of a scenario are, in one line: runs done, a guess of the time left, the newest accuracies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from subjectdp.cli.run_folders import RunFolder, State, read_run_folder
from subjectdp.config import RunConfig
from subjectdp.results.labels import run_label

_NEWEST = 3


@dataclass(frozen=True)
class Progress:
    """The state of all runs of a scenario at one time."""

    done: int
    training: int
    total: int
    seconds_left: float | None  # None until a run has told its pace
    newest: tuple[str, ...]  # label and accuracy of the runs that finished last, newest first

    def line(self) -> str:
        """``12 of 63 runs, 2 training, about 7 min left · newest: FedAvg 78.1 %``."""
        parts = [f"{self.done} of {self.total} runs"]
        if self.training:
            parts.append(f"{self.training} training")
        if self.seconds_left is not None and self.done < self.total:
            parts.append(f"about {span(self.seconds_left)} left")
        newest = f" · newest: {', '.join(self.newest)}" if self.newest else ""
        return ", ".join(parts) + newest


class Watcher:
    """Reads the folders of a scenario's runs again and again; what has finished is read once."""

    def __init__(self, runs: Sequence[RunConfig], results: Path) -> None:
        self._runs, self._folder = runs, results / "runs"
        self._finished: dict[str, RunFolder] = {}

    def folders(self) -> list[RunFolder]:
        """Every run of the scenario, in its order."""
        return [self._finished.get(run.run_id) or self._read(run) for run in self._runs]

    def _read(self, run: RunConfig) -> RunFolder:
        found = read_run_folder(self._folder / run.run_id)
        if found.config is None:
            label = run_label(run.algorithm.label, run.privacy.predicted_subjects)
            found = replace(found, label=label, config=run.model_dump(mode="json"))
        if found.state is State.DONE:
            self._finished[run.run_id] = found
        return found

    def progress(self, at_once: int) -> Progress:
        """The state now, where so many runs are trained at the same time."""
        folders = self.folders()
        newest = sorted(self._finished.values(), key=self._finished_at, reverse=True)[:_NEWEST]
        return Progress(
            done=len(self._finished),
            training=sum(run.state is State.TRAINING for run in folders),
            total=len(folders),
            seconds_left=seconds_left(folders, at_once),
            newest=tuple(
                f"{run.label} {100 * run.test_accuracy:.1f} %"
                for run in newest
                if run.test_accuracy is not None
            ),
        )

    def _finished_at(self, run: RunFolder) -> float:
        try:
            return (self._folder / run.run_id / "manifest.json").stat().st_mtime
        except OSError:
            return 0.0


def seconds_left(runs: Iterable[RunFolder], at_once: int) -> float | None:
    """Seconds until all runs are done, as the finished and training ones suggest; None if none has told its pace.

    A run that has not begun is taken to last as those of its data set and algorithm, else as the mean of all.
    """
    known: dict[tuple[object, ...], list[float]] = {}
    open_runs, left = [], 0.0
    for run in runs:
        if run.state is State.DONE and run.wall_seconds is not None:
            known.setdefault(_kind(run), []).append(run.wall_seconds)
        elif run.seconds_left is not None and run.rounds and run.rounds_done:
            left += run.seconds_left
            whole = run.seconds_left * run.rounds / max(run.rounds - run.rounds_done, 1)
            known.setdefault(_kind(run), []).append(whole)
        elif run.state is not State.DONE:
            open_runs.append(run)
    if not known:
        return None
    usual = mean(seconds for found in known.values() for seconds in found)
    left += sum(mean(known.get(_kind(run), [usual])) for run in open_runs)
    return left / max(at_once, 1)


def _accuracy(run: RunFolder) -> str:
    return f"{run.label} {100 * (run.test_accuracy or 0.0):.1f} %"


def _kind(run: RunFolder) -> tuple[object, ...]:
    data = (run.config or {}).get("data") or {}
    return data.get("dataset"), run.label


def span(seconds: float) -> str:
    """A time in words: 40 s, 7 min, 3.2 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
