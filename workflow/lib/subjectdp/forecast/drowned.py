"""Noise that a run will add to a weight in all its steps, against the scale of the weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from subjectdp.accounting.averaged_noise import averaged_noise
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import TrustModel

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.plan.plan import PrivacyPlan

DROWNED = 1.0
"""Ratio of noise to scale from which on a plan warns."""


def noise_a_weight(run: RunConfig, plan: PrivacyPlan) -> float | None:
    """Standard deviation of the noise of all rounds on a weight of the global model.

    SGD adds a step's noise times the rate, momentum over 1 - m as much. Adam divides a step by its own size, so that
    one of pure noise moves a weight by about the rate, whatever the clip norm. None without noise, for noise that is
    added after the local steps, and for noise or divisor that depend on the mini-batch.
    """
    if plan.clip_norm is None or plan.mechanism.noised_after_steps:
        return None
    try:
        averaged = averaged_noise(plan) * plan.clip_norm
    except PrivacyError:
        return None
    optimizer, steps = run.training.optimizer, plan.rounds * max(silo.steps_per_round for silo in plan.silos)
    if optimizer.name == "adam":
        independent = 1 if plan.mechanism.trust is TrustModel.CENTRAL else len(plan.silos)
        averaged = 1 / math.sqrt(independent)
    elif optimizer.name == "momentum":
        averaged /= 1 - optimizer.momentum
    return averaged * optimizer.learning_rate * math.sqrt(steps)
