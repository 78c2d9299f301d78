"""What the local steps of a round did, kept until the round is over, so that no step waits for its own numbers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from subjectdp.sampling.batches import BatchStatistics


class LoggedStep(NamedTuple):
    """One mini-batch; ``clipped_fraction`` is NaN for an empty one."""

    round: int
    silo: int
    step: int
    batch: BatchStatistics
    noise_multiplier: float
    clipped_fraction: float


class StepLog:
    """Rows in the order in which steps end; fractions may still lie on a device as 0-dimensional tensors."""

    def __init__(self) -> None:
        self._rows: list[LoggedStep] = []
        self._waiting: list[tuple[int, Tensor]] = []  # place among the rows, fraction
        self._releases: dict[tuple[int, int], tuple[float, Tensor | float]] = {}  # by round and silo

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        round_: int,
        silo: int,
        step: int,
        batch: BatchStatistics,
        noise_multiplier: float,
        clipped: Tensor | float,
    ) -> None:
        """Keeps one mini-batch's row."""
        fraction = float("nan")
        if isinstance(clipped, Tensor):
            self._waiting.append((len(self._rows), clipped))
        else:
            fraction = clipped
        self._rows.append(LoggedStep(round_, silo, step, batch, noise_multiplier, fraction))

    def release(self, round_: int, silo: int, noise_multiplier: float, clipped: Tensor | float) -> None:
        """Noise and clipping of a silo's whole update, told by the row of its last local step of the round."""
        self._releases[round_, silo] = noise_multiplier, clipped

    def extend(self, rows: list[LoggedStep]) -> None:
        """Keeps rows that another process took out of its log."""
        self._rows.extend(rows)

    def take(self) -> list[LoggedStep]:
        """Empties the log; rows by round, silo and step. Reads all fractions from the device at once."""
        rows, waiting = self._rows, self._waiting
        self._rows, self._waiting = [], []
        if waiting:
            fractions = torch.stack([value.float() for _, value in waiting]).tolist()
            for (place, _), fraction in zip(waiting, fractions, strict=True):
                rows[place] = rows[place]._replace(clipped_fraction=fraction)
        return self._with_releases(sorted(rows, key=lambda row: row[:3]))

    def _with_releases(self, rows: list[LoggedStep]) -> list[LoggedStep]:
        releases, self._releases = self._releases, {}
        last = {(row.round, row.silo): place for place, row in enumerate(rows)}
        for silo, (noise_multiplier, clipped) in releases.items():
            row = rows[last[silo]]
            rows[last[silo]] = row._replace(
                noise_multiplier=noise_multiplier, clipped_fraction=float(clipped)
            )
        return rows
