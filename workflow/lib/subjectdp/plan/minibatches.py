"""The size and number of a silo's mini-batches, from the settings that a plan and a configuration share."""

from __future__ import annotations

import math
from typing import Protocol


class MinibatchSettings(Protocol):
    """``training`` of a configuration, or the settings of a plan."""

    @property
    def batch_size(self) -> int: ...
    @property
    def sampling_fraction(self) -> float | None: ...
    @property
    def local_steps(self) -> int | None: ...


def expected_batch(settings: MinibatchSettings, items: float) -> float:
    """Expected items of a mini-batch of a silo with ``items``: B, or q times its items."""
    q = settings.sampling_fraction
    return float(settings.batch_size) if q is None else q * items


def round_steps(settings: MinibatchSettings, items: int) -> int:
    """Local steps of a round at a silo with ``items``; one epoch, ceil(items / B) or ceil(1 / q), if none are given."""
    if settings.local_steps is not None:
        return settings.local_steps
    q = settings.sampling_fraction
    return math.ceil(items / settings.batch_size) if q is None else math.ceil(1 / q)
