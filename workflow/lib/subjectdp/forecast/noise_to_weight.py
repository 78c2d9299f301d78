"""Noise that a run will add to a weight in all its steps, against the scale of the weights."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import TYPE_CHECKING

from subjectdp.accounting.sound import averaged_noise
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import PrivacyError
from subjectdp.models.catalogue import SHAPES
from subjectdp.plan.plan import TrustModel

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.plan.plan import PrivacyPlan

WARN_ABOVE = 1.0
"""Ratio of noise to scale from which on a plan warns."""

LINEAR_SCALE = 5.0
"""Noise a weight that a linear model on inputs of norm 1 stands: the logits of a trained one are of about that size.

On the embedded data lower rates cost accuracy where the noise is 3.5 and 5 (39 to 31 %, 62 to 53 %), and gain it where
it is 5.8 and 8.7 (13 to 16 %, 21 to 36 %).
"""


def weight_scale(run: RunConfig) -> float:
    """Standard deviation of the largest layer's weights at the start of a run.

    Linear models have fixed features (``models.fixed``) or start at zero (``models.text``), and inputs of norm 1:
    :data:`LINEAR_SCALE`.
    """
    return _scale(str(run.model.name), json.dumps(run.model.parameters, sort_keys=True), run.data.dataset)


@cache
def _scale(name: str, parameters: str, dataset: str) -> float:
    from subjectdp.models.build import build_model  # torch: here, for runs that are refused need none
    from subjectdp.models.fixed import fixed_features

    facts = DATASETS[dataset]
    shape = facts.shape or SHAPES[facts.kind]
    model = build_model(name, facts.classes, facts.kind, 0, json.loads(parameters), shape)
    largest = max(model.parameters(), key=lambda weights: weights.numel()).detach()
    linear = fixed_features(model) is not None or not largest.any()
    return LINEAR_SCALE if linear else float(largest.std())


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
