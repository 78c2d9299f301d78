"""Averages of the global model over the rounds: post-processing of released models, without privacy cost.

A mean over rounds averages out most of the rounds' noise. The average is evaluated and saved; training goes on from the
newest model.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from subjectdp.config.sections import AveragingConfig


class IterateAverage:
    """A running average of models (P,), updated after every round.

    Attributes:
        vector: float32 (P,), the average after the last round given to ``update``; before the first the initial model.
    """

    def __init__(self, settings: AveragingConfig, rounds: int, initial: Tensor) -> None:
        self._settings, self._rounds = settings, rounds
        self.vector = initial.clone()

    @torch.no_grad()
    def update(self, model: Tensor, round_: int) -> None:
        """Takes in the model after ``round_`` (from 1)."""
        self.vector.lerp_(model, newest_weight(self._settings, round_, self._rounds))


def newest_weight(settings: AveragingConfig, round_: int, rounds: int) -> float:
    """The newest model's weight w in average ← (1 - w) average + w model after ``round_`` of ``rounds``.

    none: 1. tail: the plain mean of the last ``fraction`` of the rounds (at least one); before it begins, the newest
    model.
    """
    if settings.name == "tail":
        first = rounds - max(1, math.floor(settings.fraction * rounds)) + 1
        return 1.0 / max(1, round_ - first + 1)
    return 1.0
