"""Optimisers on the flat model vector. They post-process what a silo has noised; a sum over silos is another matter."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from subjectdp.errors import PrivacyError, expected, unknown
from subjectdp.plan.plan import PrivacyPlan, TrustModel


class OptimiserSettings(Protocol):
    """Sections ``training.optimizer`` and ``training.server_optimizer``."""

    @property
    def name(self) -> str: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def momentum(self) -> float: ...
    @property
    def beta2(self) -> float: ...


def make_optimiser(vector: Tensor, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """A torch optimiser that writes to ``vector`` (P,) in place from ``vector.grad``.

    Raises:
        ConfigError: unknown name.
    """
    rate, decay = settings.learning_rate, float(getattr(settings, "weight_decay", 0.0))
    if settings.name == "sgd":
        return torch.optim.SGD([vector], lr=rate, weight_decay=decay)
    if settings.name == "momentum":
        return torch.optim.SGD([vector], lr=rate, momentum=settings.momentum, weight_decay=decay)
    if settings.name == "adam":
        return torch.optim.Adam(
            [vector], lr=rate, betas=(settings.momentum, settings.beta2), weight_decay=decay
        )
    raise unknown("optimizer.name", settings.name, ["sgd", "momentum", "adam"])


@torch.no_grad()
def descend(optimiser: torch.optim.Optimizer, vector: Tensor, gradient: Tensor) -> None:
    """One step of ``optimiser`` along ``gradient``."""
    group = optimiser.param_groups[0]
    if isinstance(optimiser, torch.optim.SGD) and group["momentum"] == 0 and group["weight_decay"] == 0:
        vector.add_(gradient, alpha=-group["lr"])  # what its step does, without the bookkeeping of it
        return
    vector.grad = gradient
    optimiser.step()
    vector.grad = None


def check_linear(plan: PrivacyPlan, optimiser: OptimiserSettings) -> None:
    """Raises PrivacyError for Adam at silos whose plan counts on a sum of noisy gradients."""
    mechanism = plan.mechanism
    summed = mechanism.trust is TrustModel.SECURE_AGGREGATION and not mechanism.noised_after_steps
    if summed and plan.settings.linear_updates and optimiser.name == "adam":
        allowed = "sgd or momentum: the plan says that the silos' updates are linear in their noisy gradients"
        raise expected("training.optimizer.name", optimiser.name, allowed, PrivacyError)
