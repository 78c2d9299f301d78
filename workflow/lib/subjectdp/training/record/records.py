"""What a run leaves behind: tidy tables of rounds and steps, and a line of progress for each round."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from subjectdp.io.atomic import write_frame
from subjectdp.sampling.batches import BatchStatistics
from subjectdp.training.evaluation import Score

log = logging.getLogger(__name__)

StepRow = tuple[int, int, int, int, int, int, float, float]
"""One mini-batch, in the order of ``STEP_COLUMNS``."""

STEP_COLUMNS = (
    "round",
    "silo",
    "step",
    "items",
    "subjects",
    "largest_group",
    "noise_multiplier",
    "clipped_fraction",
)


class Recorder:
    """Collects rounds and steps in memory and writes them as parquet.

    ``between_steps`` is called after each mini-batch that is recorded; what it raises ends the round there.
    """

    def __init__(
        self,
        run_id: str,
        rounds: int,
        report: Callable[[str], None],
        between_steps: Callable[[], None] = lambda: None,
    ) -> None:
        self.run_id, self.rounds, self._report = run_id, rounds, report
        self.between_steps = between_steps
        self.step_rows: list[StepRow] = []
        self.round_rows: list[dict[str, Any]] = []
        self._started, self._first_round = time.perf_counter(), 0

    def resume(self, round_: int, steps: list[StepRow], rounds: list[dict[str, Any]]) -> None:
        """Goes on after ``round_`` with the rows recorded up to it."""
        self.step_rows, self.round_rows = list(steps), list(rounds)
        self._started, self._first_round = time.perf_counter(), round_

    def step(
        self,
        round_: int,
        silo: int,
        step: int,
        batch: BatchStatistics,
        noise_multiplier: float,
        clipped: float,
    ) -> None:
        """Records one mini-batch."""
        self.step_rows.append(
            (round_, silo, step, batch.items, batch.subjects, batch.largest_group, noise_multiplier, clipped)
        )
        self.between_steps()

    def round(self, round_: int, test: Score, validation: Score, seconds: float) -> None:
        """Records an evaluated round and reports progress with an ETA."""
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
        elapsed = time.perf_counter() - self._started
        left = elapsed / (round_ - self._first_round) * (self.rounds - round_)
        self._report(
            f"{self.run_id} round {round_}/{self.rounds} test accuracy {test.accuracy:.4f} loss {test.loss:.4f} "
            f"validation {validation.accuracy:.4f} | {seconds:.2f} s a round, "
            f"{_clock(elapsed)} done, {_clock(left)} left"
        )

    def final(self) -> dict[str, Any]:
        """The last evaluated round."""
        return {k: _finite(v) for k, v in self.round_rows[-1].items() if k != "run_id"}

    def write(self, folder: Path) -> None:
        """Writes rounds.parquet and steps.parquet."""
        steps = pd.DataFrame.from_records(self.step_rows, columns=list(STEP_COLUMNS))
        steps.insert(0, "run_id", self.run_id)
        write_frame(folder / "steps.parquet", steps)
        write_frame(folder / "rounds.parquet", pd.DataFrame.from_records(self.round_rows))


def also_to(file: Path, report: Callable[[str], None]) -> Callable[[str], None]:
    """A report that appends each line to ``file`` as well, for those who watch a run from outside.

    A line that cannot be written there is lost and no reason to stop: results are written elsewhere, and checked.
    """

    def both(line: str) -> None:
        try:
            with open(file, "a", encoding="utf-8") as stream:
                stream.write(line + "\n")
        except OSError as problem:
            log.warning("%s: %s", file, problem)
        report(line)

    return both


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
