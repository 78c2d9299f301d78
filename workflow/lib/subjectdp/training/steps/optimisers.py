"""Optimisers on the flat model vector: post-processing of what a silo has noised, but not of a sum over silos."""

from __future__ import annotations

import torch
from torch import Tensor

from subjectdp.config.sections import OptimizerConfig, ServerOptimizerConfig
from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import PrivacyPlan, TrustModel


def make_optimiser(
    vector: Tensor, settings: OptimizerConfig, rate_factor: float = 1.0
) -> torch.optim.Optimizer:
    """A torch optimiser that writes to ``vector`` (P,) in place from ``vector.grad``.

    Args:
        vector: the parameters.
        settings: name and constants.
        rate_factor: multiplies the learning rate.
    """
    rate, decay = settings.learning_rate * rate_factor, settings.weight_decay
    if settings.name == "adam":
        betas = (settings.momentum, settings.beta2)
        return torch.optim.Adam([vector], lr=rate, betas=betas, weight_decay=decay)
    momentum = settings.momentum if settings.name == "momentum" else 0.0
    return torch.optim.SGD([vector], lr=rate, momentum=momentum, weight_decay=decay)


def make_server_optimiser(vector: Tensor, settings: ServerOptimizerConfig) -> torch.optim.Optimizer | None:
    """The same for a server that gets models; None where it takes their mean as it is."""
    if settings.name == "none":
        return None
    values = settings.model_dump(include={"name", "learning_rate", "momentum", "beta2"})
    return make_optimiser(vector, OptimizerConfig(**values))


@torch.no_grad()
def descend(optimiser: torch.optim.Optimizer, vector: Tensor, gradient: Tensor) -> None:
    """One step of ``optimiser`` along ``gradient``."""
    group = optimiser.param_groups[0]
    if isinstance(optimiser, torch.optim.SGD) and group["momentum"] == 0 and group["weight_decay"] == 0:
        vector.add_(gradient, alpha=-group["lr"])  # the same bits as its step, without the bookkeeping
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
