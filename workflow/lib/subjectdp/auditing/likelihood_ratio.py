"""The attacker's score of a release: the log-likelihood ratio of the plan's dominating pair, from a table.

The bound on ε is valid for any score; a better score gives a larger bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, reduce

import numpy as np
import torch
from torch import Tensor

from subjectdp.accounting.events import MixtureSteps
from subjectdp.accounting.shifts import Shift
from subjectdp.accounting.sound import noise_is_summed, unit_losses
from subjectdp.auditing.audited_unit import claimed_unit, held_silos
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import Clipping, PrivacyPlan, PrivacyUnit

_CELLS = 1 << 14
_SIGMAS = 9.0


class LikelihoodRatio:
    """log Σ_j p_j N(y; s_j, σ²) / N(y; 0, σ²) for sums y in units of C, as a step function.

    ``offset`` is the noise-free release without the canary.
    """

    def __init__(self, step: MixtureSteps, offset: float = 0.0) -> None:
        sigma = step.noise_multiplier
        if not sigma > 0:
            raise PrivacyError("Expected a mechanism with noise for a likelihood ratio, got none.")
        self._low = offset - _SIGMAS * sigma
        width = step.shift.sensitivities[-1] + 2 * _SIGMAS * sigma
        self._cells_a_unit = _CELLS / width
        y = (np.arange(_CELLS) + 0.5) / self._cells_a_unit - _SIGMAS * sigma
        shifts = np.asarray(step.shift.sensitivities)
        logs = np.log(step.shift.probabilities) + (y[:, None] * shifts - shifts**2 / 2) / sigma**2
        self.table = torch.from_numpy(np.logaddexp.reduce(logs, axis=1).astype(np.float32))

    def __call__(self, release: Tensor) -> Tensor:
        """Scores of releases (n,)."""
        cells = ((release - self._low) * self._cells_a_unit).clamp_(0, _CELLS - 1).to(torch.int32)
        return self.table.index_select(0, cells)


def likelihood_ratios(
    plan: PrivacyPlan,
    unit: PrivacyUnit | None = None,
    silos: Sequence[int] | None = None,
    models: bool = False,
) -> tuple[LikelihoodRatio, ...]:
    """The scores for the presence of a unit (None: the claimed one) in the releases of a plan.

    LOCAL trust: one score for each of ``silos`` (None: those that may hold the unit). Otherwise the releases are sums
    over the silos, and there is one score. ``models``: the sum of a round's releases is scored, not each of them.
    """
    chosen = claimed_unit(plan) if unit is None else unit
    if noise_is_summed(plan):
        return (_score(plan, chosen, 1),)
    held = range(held_silos(plan)) if silos is None else silos
    return tuple(
        _score(_single(plan, silo), chosen, plan.silos[silo].steps_per_round if models else 1)
        for silo in held
    )


def _score(plan: PrivacyPlan, unit: PrivacyUnit, summed: int) -> LikelihoodRatio:
    """Of the sum of ``summed`` releases."""
    step = _sum_of(unit_losses(plan, unit, every_silo=True)[0][0], summed)
    # where the canary may reverse a clipped vector, each silo releases −C without it
    reversed_ = plan.mechanism.clipping in (Clipping.PER_BATCH, Clipping.PER_UPDATE)
    return _likelihood_ratio(step, -float(len(plan.silos) * summed) if reversed_ else 0.0)


@cache
def _sum_of(step: MixtureSteps, count: int) -> MixtureSteps:
    """The pair of the sum of ``count`` releases: noise of √count times σ, and the sum of the shifts."""
    shift = reduce(Shift.convolve, [step.shift] * count)
    return replace(step, noise_multiplier=math.sqrt(count) * step.noise_multiplier, shift=shift)


@cache
def _likelihood_ratio(step: MixtureSteps, offset: float) -> LikelihoodRatio:
    return LikelihoodRatio(step, offset)


def _single(plan: PrivacyPlan, silo: int) -> PrivacyPlan:
    """The plan as if this silo were the only one."""
    tables = plan.group_noise_multipliers[silo : silo + 1]
    return replace(plan, silos=(plan.silos[silo],), silos_per_subject=1, group_noise_multipliers=tables)
