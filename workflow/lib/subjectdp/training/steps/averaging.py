"""Averages of the global model over the rounds: post-processing of what was released anyway, free of privacy cost.

The noise of a round moves the model about where the gradients lead it; a mean over rounds keeps the place and loses
most of the noise. The average is what a run evaluates and saves; training goes on from the newest model as without it.
"""

from __future__ import annotations

import math
from typing import Literal, Protocol

import torch
from torch import Tensor

from subjectdp.errors import unknown

Name = Literal["none", "tail", "polynomial", "exponential"]


class AveragingSettings(Protocol):
    """Section ``training.steps.averaging``."""

    @property
    def name(self) -> Name: ...
    @property
    def fraction(self) -> float: ...
    @property
    def power(self) -> float: ...
    @property
    def decay(self) -> float: ...


class IterateAverage:
    """A running average of models (P,), updated after every round.

    Attributes:
        vector: float32 (P,), the average after the last round given to ``update``; before the first the initial model.

    Raises:
        ConfigError: unknown name.
    """

    def __init__(self, settings: AveragingSettings, rounds: int, initial: Tensor) -> None:
        if settings.name not in ("none", "tail", "polynomial", "exponential"):
            raise unknown(
                "training.averaging.name", settings.name, ["none", "tail", "polynomial", "exponential"]
            )
        self._settings, self._rounds = settings, rounds
        self.vector = initial.clone()

    @torch.no_grad()
    def update(self, model: Tensor, round_: int) -> None:
        """Takes in the model after ``round_`` (from 1)."""
        self.vector.lerp_(model, newest_weight(self._settings, round_, self._rounds))


def newest_weight(settings: AveragingSettings, round_: int, rounds: int) -> float:
    """The newest model's weight w in average ← (1 - w) average + w model after ``round_`` of ``rounds``.

    none: 1. tail: the plain mean of the last ``fraction`` of the rounds (at least one); before it begins, the newest
    model. polynomial: (γ+1)/(t+γ), which weights round t about as t^γ (Shamir, Zhang 2013; γ = 0 is the plain mean of
    all). exponential: 1 - ``decay``, but the plain mean as long as that gives the newest more.
    """
    if settings.name == "tail":
        first = rounds - max(1, math.floor(settings.fraction * rounds)) + 1
        return 1.0 / max(1, round_ - first + 1)
    if settings.name == "polynomial":
        return (settings.power + 1.0) / (round_ + settings.power)
    if settings.name == "exponential":
        return max(1.0 - settings.decay, 1.0 / round_)
    return 1.0
