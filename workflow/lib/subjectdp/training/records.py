"""What a run records: local steps, evaluated rounds, its progress, and the state that later rounds start from."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from subjectdp.errors import StorageError
from subjectdp.io.atomic import write_frame, write_json
from subjectdp.io.printing import clock, strict
from subjectdp.places import PROGRESS
from subjectdp.sampling.batches import BatchStatistics

log = logging.getLogger(__name__)

StepRow = tuple[int, int, int, int, int, int, float, float]
"""One mini-batch, in the order of ``STEP_COLUMNS``."""

STEP_COLUMNS = (
    *("round", "silo", "step", "items", "subjects", "largest_group", "noise_multiplier", "clipped_fraction"),
)


@dataclass(frozen=True)
class Score:
    """Accuracy in [0, 1] and mean cross-entropy in nats; NaN where there are no items."""

    accuracy: float
    loss: float


class LoggedStep(NamedTuple):
    """One mini-batch; ``clipped_fraction`` is NaN for an empty one, and may be a 0-dimensional tensor in the log."""

    round: int
    silo: int
    step: int
    batch: BatchStatistics
    noise_multiplier: float
    clipped_fraction: Tensor | float


class StepLog:
    """Rows in the order in which steps end. ``after_step`` is called after each row; what it raises ends the round."""

    def __init__(self, after_step: Callable[[], None] = lambda: None) -> None:
        self._rows: list[LoggedStep] = []
        self._after_step = after_step

    def add(self, row: LoggedStep) -> None:
        """Keeps one mini-batch's row."""
        self._rows.append(row)
        self._after_step()

    def add_release(self, release: LoggedStep) -> None:
        """Puts noise and clipping of a silo's whole update into the row of its last local step, the last one added."""
        self._rows[-1] = self._rows[-1]._replace(
            noise_multiplier=release.noise_multiplier, clipped_fraction=release.clipped_fraction
        )

    def take(self) -> list[LoggedStep]:
        """Empties the log; rows by round, silo and step. Reads all fractions from the device at once."""
        rows, self._rows = self._rows, []
        waiting = [(place, row.clipped_fraction) for place, row in enumerate(rows)]
        tensors = [(place, value) for place, value in waiting if isinstance(value, Tensor)]
        if tensors:
            fractions = torch.stack([value.float() for _, value in tensors]).tolist()
            for (place, _), fraction in zip(tensors, fractions, strict=True):
                rows[place] = rows[place]._replace(clipped_fraction=fraction)
        return sorted(rows, key=lambda row: row[:3])


@dataclass(frozen=True)
class Snapshot:
    """A run after ``round`` (0: before the first): everything that later rounds read; they do not change it.

    It holds no generator and no counter: each random draw has its own key (decision 0004), so that a repeated round
    draws the same mini-batches and the same noise, and releases the same model.
    """

    round: int
    tensors: dict[str, Tensor]  # state of the global model (``GlobalModel.state``)
    steps: list[StepRow] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)  # those that were evaluated
    train_seconds: float = 0.0  # in rounds
    wall_seconds: float = 0.0  # in all
    resumed_after: tuple[int, ...] = ()  # rounds after which the run was resumed


class Recorder:
    """Collects rounds and steps in memory and writes them as parquet."""

    def __init__(self, run_id: str, rounds: int) -> None:
        self.run_id, self.rounds = run_id, rounds
        self.step_rows: list[StepRow] = []
        self.round_rows: list[dict[str, Any]] = []
        self._started, self._first_round = time.perf_counter(), 0

    def resume(self, round_: int, steps: list[StepRow], rounds: list[dict[str, Any]]) -> None:
        """Continues after ``round_`` with the rows recorded up to it."""
        self.step_rows, self.round_rows = list(steps), list(rounds)
        self._started, self._first_round = time.perf_counter(), round_

    def add_steps(self, rows: Iterable[LoggedStep]) -> None:
        """Records the local steps of a round."""
        self.step_rows += [
            (row.round, row.silo, row.step, *row.batch, row.noise_multiplier, float(row.clipped_fraction))
            for row in rows
        ]

    def add_round(self, round_: int, test: Score, validation: Score, seconds: float) -> None:
        """Records an evaluated round; ``seconds`` is the mean training time of a round so far."""
        self.round_rows.append(
            {
                "run_id": self.run_id,
                "round": round_,
                "test_accuracy": test.accuracy,
                "test_loss": test.loss,
                "validation_accuracy": validation.accuracy,
                "validation_loss": validation.loss,
                "train_seconds": seconds,
                "steps_done": len(self.step_rows),
            }
        )

    def report(self, folder: Path) -> str:
        """Replaces the progress record in ``folder``, or warns; returns it as a line for people."""
        row = self.round_rows[-1]
        done = time.perf_counter() - self._started
        left = done / (row["round"] - self._first_round) * (self.rounds - row["round"])
        shown = ("run_id", "round", "test_accuracy", "test_loss", "validation_accuracy")
        record = strict({key: row[key] for key in shown})
        try:
            write_json(folder / PROGRESS, {**record, "rounds": self.rounds, "seconds_left": round(left)})
        except (StorageError, OSError) as problem:
            log.warning("%s: %s", folder / PROGRESS, problem)
        return (
            f"{self.run_id} round {row['round']}/{self.rounds} test accuracy {row['test_accuracy']:.4f} "
            f"loss {row['test_loss']:.4f} validation {row['validation_accuracy']:.4f} | "
            f"{row['train_seconds']:.2f} s a round, {clock(done)} done, {clock(left)} left"
        )

    def write(self, folder: Path) -> None:
        """Writes rounds.parquet and steps.parquet."""
        steps = pd.DataFrame.from_records(self.step_rows, columns=list(STEP_COLUMNS))
        steps.insert(0, "run_id", self.run_id)
        write_frame(folder / "steps.parquet", steps)
        write_frame(folder / "rounds.parquet", pd.DataFrame.from_records(self.round_rows))


def also_to(file: Path, report: Callable[[str], None]) -> Callable[[str], None]:
    """A report that also appends each line to ``file``; a line that cannot be written there is a warning in the log."""

    def both(line: str) -> None:
        try:
            with open(file, "a", encoding="utf-8") as stream:
                stream.write(line + "\n")
        except OSError as problem:
            log.warning("%s: %s", file, problem)
        report(line)

    return both
