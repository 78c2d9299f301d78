"""The local steps of a round, collected until the round is over, so that no step waits for numbers on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from subjectdp.sampling.batches import BatchStatistics


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

    def extend(self, rows: list[LoggedStep]) -> None:
        """Keeps rows that another process took out of its log."""
        self._rows.extend(rows)

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
