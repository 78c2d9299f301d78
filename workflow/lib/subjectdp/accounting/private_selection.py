"""Private selection: ε of releasing the best of a random number of runs (arXiv 2110.03620).

A repetition draws a setting from a public list, trains with it and scores its model with noise. The number of
repetitions is drawn from a public distribution and stays secret, as all repetitions do but the best. The theorem bounds
the Rényi divergences of the release by those of one repetition, whatever its setting.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

# The formula that RdpAccountant has for a RepeatAndSelectDpEvent; the accountant itself holds no mixtures of Gaussians.
from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_repeat_and_select

from subjectdp.accounting.events import PrivacyLoss
from subjectdp.accounting.renyi import (
    INTEGER_BOUND_ORDERS,
    ORDERS,
    Floats,
    best_epsilon,
    integer_bounds,
    step_divergences,
)
from subjectdp.accounting.sound import unit_losses
from subjectdp.errors import PrivacyError, expected, number, unknown
from subjectdp.plan.plan import NoiseDistribution, PrivacyPlan, PrivacyUnit

SHAPES = {"logarithmic": 0.0, "geometric": 1.0, "poisson": math.inf}
"""dp-accounting's ``shape`` of each distribution: negative binomial ones without 0, and Poisson's."""

_MIXTURE_ORDERS = tuple(order for order in ORDERS if order <= 64)[::3]  # by quadrature, which takes its time


@dataclass(frozen=True)
class PrivateSelection:
    """The number of repetitions (its distribution and mean; poisson may draw 0), and the noise on their scores.
    ``score_noise_multiplier``: its standard deviation; a unit changes a score by at most 1."""

    distribution: Literal["poisson", "geometric", "logarithmic"] = "poisson"
    mean: float = 3.0
    score_noise_multiplier: float = 5.0

    def __post_init__(self) -> None:
        if self.distribution not in SHAPES:
            raise unknown("distribution", self.distribution, SHAPES)
        if number("mean", self.mean) < 1:
            raise expected("mean", self.mean, "at least 1: fewer repetitions than one select nothing")
        number("score_noise_multiplier", self.score_noise_multiplier)


@dataclass(frozen=True)
class Curve:
    """Rényi divergences at some orders; infinite where no bound is known."""

    orders: tuple[float, ...]
    divergences: Floats

    def epsilon(self, delta: float) -> float:
        """The smallest ε at δ over the orders. ConfigError for a δ that is none."""
        return best_epsilon(np.asarray(self.orders), self.divergences, math.log(number("delta", delta, below=1)))


def selection_curve(
    plans: Sequence[PrivacyPlan], selection: PrivateSelection, unit: PrivacyUnit, every_silo: bool
) -> Curve:
    """Rényi divergences of a unit (as of ``sound.unit_losses``) in a whole selection among settings with these plans.
    Raises PrivacyError for a plan without a provable ε."""
    if not plans:
        raise expected("plans", plans, "those of at least one setting")
    for plan in plans:
        if plan.mechanism.data_dependence:
            raise PrivacyError("; ".join(plan.mechanism.data_dependence))
    integers = any(plan.settings.noise_distribution is NoiseDistribution.SKELLAM for plan in plans)
    losses = dict.fromkeys(loss for plan in plans for loss in unit_losses(plan, unit, every_silo))
    if any(part.noise_multiplier <= 0 for loss in losses for part in loss):
        raise PrivacyError("a run without noise has no epsilon, nor has a selection among such runs")
    simple = all(len(part.shift.sensitivities) <= 2 for loss in losses for part in loss)
    orders = INTEGER_BOUND_ORDERS if integers else (ORDERS if simple else _MIXTURE_ORDERS)

    def divergences(loss: PrivacyLoss) -> Floats:
        total = np.zeros(len(orders))
        for part in loss:
            sigma, shift = part.noise_multiplier, part.shift
            step = integer_bounds(sigma, shift) if integers else step_divergences(sigma, shift, orders)
            total = total + part.steps * step
        return np.where(np.isnan(total), np.inf, total)

    score = np.asarray(orders) / (2 * selection.score_noise_multiplier**2)  # a Gaussian of sensitivity 1
    one = np.max([divergences(loss) for loss in losses], axis=0) + score
    repeated = _compute_rdp_repeat_and_select(orders, one, selection.mean, SHAPES[selection.distribution])
    return Curve(orders, np.asarray(repeated, dtype=np.float64))
