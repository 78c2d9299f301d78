"""The mean of the global models of the last rounds: post-processing of released models, without privacy cost.

A mean over rounds averages out most of the rounds' noise. It is evaluated and saved; training goes on from the newest
model.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


class IterateAverage:
    """The mean of the models (P,) of the last ``part`` of the rounds, at least one; before it begins, the newest model.

    Attributes:
        vector: float32 (P,), the average after the last round given to ``update``; before the first the initial model.
    """

    def __init__(self, part: float, rounds: int, initial: Tensor) -> None:
        self._first = rounds - max(1, math.floor(part * rounds)) + 1
        self.vector = initial.clone()

    @torch.no_grad()
    def update(self, model: Tensor, round_: int) -> None:
        """Takes in the model after ``round_`` (from 1)."""
        self.vector.lerp_(model, 1.0 / max(1, round_ - self._first + 1))
