"""Mechanism-level audit: a lower bound on ε from many runs with and without the worst-case subject."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.accounting.events import MixtureSteps, Shift
from subjectdp.accounting.sound import noise_is_summed, unit_losses
from subjectdp.algorithms.base import Algorithm
from subjectdp.auditing.vector import SubjectFederation, VectorFederation, World, claimed_unit, unit_silos
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import Clipping, PrivacyPlan, PrivacyUnit

BLOCK = 1 << 14  # runs at once: their tensors stay in the processor's cache


def world_scores(
    audited: Algorithm, plan: PrivacyPlan, scores: Sequence[LikelihoodRatio], world: World, models: bool = False
) -> NDArray[np.float32]:
    """(runs,) the summed scores of every noisy step (``models``: of each round's models); a block of runs has its own
    key."""
    parts, kind = [], SubjectFederation if plan.mechanism.samples_subjects else VectorFederation
    for block, start in enumerate(range(0, world.runs, BLOCK)):
        runs = min(BLOCK, world.runs - start)
        with torch.no_grad():
            total = torch.zeros(runs)
            federation = kind(audited, plan, World(world.seed, world.name, world.present, runs, block))
            for score, release in federation.models() if models else federation.releases():
                total += scores[score](release)
        parts.append(total.numpy())
    return np.concatenate(parts)


_CELLS = 1 << 14
_SIGMAS = 9.0


class LikelihoodRatio:
    """log Σ_j p_j N(y; s_j, σ²) / N(y; 0, σ²), y + ``offset`` being the sum in units of C, as a step function."""

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
        cells = ((release - self._low) * self._cells_a_unit).clamp_(0, _CELLS - 1).to(torch.int32)
        return self.table.index_select(0, cells)


def likelihood_ratios(
    plan: PrivacyPlan, unit: PrivacyUnit | None = None, silos: Sequence[int] | None = None, models: bool = False
) -> tuple[LikelihoodRatio, ...]:
    """The scores for the presence of a unit (None: the claimed one) in the releases of a plan.

    LOCAL trust: one for each of ``silos`` (None: those that may hold the unit), else one for the sums over silos.
    ``models``: the sum of a round's releases is scored, not each of them.
    """
    chosen = claimed_unit(plan) if unit is None else unit
    if noise_is_summed(plan):
        return (_score(plan, chosen, 1),)
    held = range(unit_silos(plan)) if silos is None else silos

    def alone(silo: int) -> LikelihoodRatio:
        """As if this silo were the only one."""
        tables = plan.group_noise_multipliers[silo : silo + 1]
        single = replace(plan, silos=(plan.silos[silo],), silos_per_subject=1, group_noise_multipliers=tables)
        return _score(single, chosen, plan.silos[silo].steps_per_round if models else 1)

    return tuple(map(alone, held))


def _score(plan: PrivacyPlan, unit: PrivacyUnit, summed: int) -> LikelihoodRatio:
    step = _sum_of(unit_losses(plan, unit, every_silo=True)[0][0], summed)
    # where the canary may reverse a clipped vector, each silo releases −C without it
    reversed_ = plan.mechanism.clipping in (Clipping.PER_BATCH, Clipping.PER_UPDATE)
    return _likelihood_ratio(step, -float(len(plan.silos) * summed) if reversed_ else 0.0)


@cache
def _sum_of(step: MixtureSteps, count: int) -> MixtureSteps:
    """The pair of the sum of ``count`` releases: noise of √count times σ, and the sum of the shifts."""
    plain = Shift(step.shift.sensitivities, step.shift.probabilities)  # a score, no bound: of a coin the atoms
    shift = reduce(Shift.convolve, [plain] * count)
    return replace(step, noise_multiplier=math.sqrt(count) * step.noise_multiplier, shift=shift)


_likelihood_ratio = cache(LikelihoodRatio)
