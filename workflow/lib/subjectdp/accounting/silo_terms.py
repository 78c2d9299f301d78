"""Joint noise where silos differ in clip norm, learning rate and noise (arXiv 2407.19286, appendix, eq. 25)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import PrivacyPlan, SiloSchedule, SiloTerms, TrustModel


def joint_noise_multiplier(
    noise_multipliers: Sequence[float],
    reaches: Sequence[float],
    silos_per_round: int | None = None,
    colluding_silos: int = 0,
) -> float:
    """Noise of the sum over silos over its sensitivity, for the item that it protects least.

    ``noise_multipliers``: σ_i, noise std over the silo's own clip norm. ``reaches``: C_i γ_i, in any common unit.
    With all silos and nobody colluding it is √(Σ (C_i σ_i γ_i)²) / max C_i γ_i. Otherwise the worst case: an item's
    own silo takes part and is honest, and of the others those with the least noise are what remains.

    Raises:
        PrivacyError: lengths that differ, reaches that are not positive, or too many colluding silos.
    """
    silos = len(reaches)
    participants = silos if silos_per_round is None else silos_per_round
    if len(noise_multipliers) != silos or not silos:
        raise expected(
            "noise multipliers", len(noise_multipliers), f"one for each of {silos} silos", PrivacyError
        )
    if any(not reach > 0 for reach in reaches):
        raise expected("clip norm times learning rate", min(reaches), "positive", PrivacyError)
    if not 0 <= colluding_silos < participants <= silos:
        raise expected(
            "colluding silos", colluding_silos, f"fewer than the {participants} of a round", PrivacyError
        )
    variances = [(sigma * reach) ** 2 for sigma, reach in zip(noise_multipliers, reaches, strict=True)]
    others = participants - 1 - colluding_silos
    worst = math.inf
    for own, reach in enumerate(reaches):
        least = sorted(variances[:own] + variances[own + 1 :])[:others]
        worst = min(worst, math.sqrt(variances[own] + sum(least)) / reach)
    return worst


def reach_of(schedule: SiloSchedule, of_updates: bool = False) -> float:
    """C_i γ_i over the common C γ; C_i over C where updates are clipped, after the learning rate has done its part."""
    return schedule.clip_norm_factor * (1.0 if of_updates else schedule.learning_rate_factor)


def noise_copies(
    schedules: Sequence[SiloSchedule],
    silos_per_round: int | None,
    colluding_silos: int,
    of_updates: bool = False,
) -> float:
    """:func:`joint_noise_multiplier` of a common noise multiplier of 1; √(N - colluding) where all silos agree.

    ``of_updates``: whole updates are clipped and noised, not gradients.
    """
    factors = [schedule.noise_factor for schedule in schedules]
    reaches = [reach_of(schedule, of_updates) for schedule in schedules]
    return joint_noise_multiplier(factors, reaches, silos_per_round, colluding_silos)


def common_noise_multiplier(schedules: Sequence[SiloSchedule]) -> float:
    """The common noise multiplier that the silos' own ones come from (the least, should they disagree)."""
    return min(schedule.noise_multiplier / schedule.noise_factor for schedule in schedules)


def with_terms(plan: PrivacyPlan, terms: Sequence[SiloTerms] | None) -> PrivacyPlan:
    """The plan whose silos depart from the common clip norm, learning rate and noise as ``terms`` say.

    Raises:
        ConfigError: not one entry for each silo, or silos that differ under an algorithm without joint noise.
    """
    if terms is None or all(term == SiloTerms() for term in terms):
        return plan
    if plan.mechanism.trust is not TrustModel.SECURE_AGGREGATION:
        raise expected("joint factors", "given", f"none with algorithm {plan.mechanism.algorithm}")
    if len(terms) != len(plan.silos):
        raise expected("joint factors", len(terms), f"one for each of the {len(plan.silos)} silos")
    silos = (replace(silo, **asdict(term)) for silo, term in zip(plan.silos, terms, strict=True))
    return replace(plan, silos=tuple(silos))
