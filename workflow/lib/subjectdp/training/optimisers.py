"""Optimisers on the flat model vector: post-processing of what a silo has noised, but not of a sum over silos."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from subjectdp.config.sections import OptimizerConfig
from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import PrivacyPlan, TrustModel


@dataclass(frozen=True)
class PlainSGD:
    """SGD without momentum or decay. torch's makes the same steps, but its first one takes 2 s to load a compiler."""

    rate: float


Optimiser = PlainSGD | torch.optim.Optimizer
"""What :func:`descend` takes a step with."""


def make_optimiser(vector: Tensor, settings: OptimizerConfig) -> Optimiser:
    """An optimiser of the parameters ``vector`` (P,), for :func:`descend`."""
    if settings.name == "adam":
        return torch.optim.Adam([vector], lr=settings.learning_rate, betas=(settings.momentum, 0.999))
    if settings.name == "sgd" or settings.momentum == 0:
        return PlainSGD(settings.learning_rate)
    return torch.optim.SGD([vector], lr=settings.learning_rate, momentum=settings.momentum)


def descend(optimiser: Optimiser, vector: Tensor, gradient: Tensor) -> None:
    """One step of ``optimiser`` along ``gradient``; ``vector`` changes in place."""
    if isinstance(optimiser, PlainSGD):
        vector.add_(gradient, alpha=-optimiser.rate)
        return
    vector.grad = gradient
    optimiser.step()
    vector.grad = None


def check_linear(plan: PrivacyPlan, optimiser: OptimizerConfig) -> None:
    """Raises PrivacyError for Adam at silos whose plan counts on a sum of noisy gradients."""
    mechanism = plan.mechanism
    summed = mechanism.trust is TrustModel.SECURE_AGGREGATION and not mechanism.noised_after_steps
    if summed and plan.settings.linear_updates and optimiser.name == "adam":
        allowed = "sgd or momentum: the plan says that the silos' updates are linear in their noisy gradients"
        raise expected("training.optimizer.name", optimiser.name, allowed, PrivacyError)
