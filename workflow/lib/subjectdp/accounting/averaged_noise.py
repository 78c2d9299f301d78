"""Expected noise on a round's averaged gradient.

This number compares algorithms with different sampling, sums and divisors. A small noise multiplier on a sum of few
subjects may add more noise to the average than a large one on a sum of many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subjectdp.accounting.gaussian import gdp_mu
from subjectdp.accounting.make_plan import make_plan
from subjectdp.algorithms.registry import mechanism
from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import (
    AccountingMode,
    Clipping,
    DivisorRule,
    FederationFacts,
    NoiseRule,
    PlanSettings,
    PrivacyPlan,
    TrustModel,
)


def averaged_noise(plan: PrivacyPlan) -> float:
    """Std of each coordinate of the noise on one step's average over all silos, in clip norms; 0 without noise.

    The average is the server's step for a learning rate of 1 and one local step a round: the mean of the silos' noisy
    means, or the one noisy sum over them.

    Raises:
        PrivacyError: noise or divisor that depend on the mini-batch, or a round of some of the silos only.
    """
    if plan.mechanism.noise_rule is NoiseRule.NONE:
        return 0.0
    rule, divisor = plan.mechanism.noise_rule, plan.mechanism.divisor_rule
    if rule is not NoiseRule.CONSTANT or divisor is DivisorRule.REALISED_SUBJECTS:
        read = f"noise {rule}, divisor {divisor}"
        raise expected("noise on the average of the plan", read, "public constants", PrivacyError)
    chosen, silos = plan.settings.silos_per_round, plan.silos
    if chosen is not None and chosen != len(silos):
        raise expected("silos_per_round of the plan", chosen, f"all {len(silos)}, or null", PrivacyError)
    sums = [silo.noise_multiplier for silo in silos]
    whole = sum(silo.divisor for silo in silos)
    if plan.mechanism.trust is TrustModel.CENTRAL:
        return sums[0] / whole
    if plan.mechanism.shared_budget:
        return math.hypot(*sums) / whole
    undivided = plan.mechanism.clipping is Clipping.PER_UPDATE or divisor is DivisorRule.ONE
    means = sums if undivided else [noise / silo.divisor for noise, silo in zip(sums, silos, strict=True)]
    return math.hypot(*means) / len(silos)


@dataclass(frozen=True)
class CapRow:
    """What one cap gives and takes.

    Attributes:
        cap: k, most items of a subject at a silo.
        kept: part of the items that are kept.
        noise_multiplier: σ, the largest over the silos.
        noise: std of the noise on the gradient averaged over all silos, in clip norms.
    """

    cap: int
    kept: float
    noise_multiplier: float
    noise: float


def cap_table(
    counts: NDArray[np.int64], caps: Sequence[int], settings: PlanSettings, silos_per_subject: int
) -> list[CapRow]:
    """A row for each cap, with CappedItemDP's plan for the federation that the cap leaves.

    A smaller cap needs less noise, until what it throws away costs more. Choosing by this table is a choice by the
    data, unless the counts are public or of other data alike.

    Args:
        counts: (silos, subjects) items of each subject at each silo, before any cap.
        caps: k, each at least 1.
        settings: schedule and privacy target, in sound mode.
        silos_per_subject: the public bound on the silos that hold one subject.

    Raises:
        ConfigError: a cap below 1, or a batch size that a capped silo does not hold.
        PrivacyError: settings that cannot be accounted for.
    """

    def row(cap: int) -> CapRow:
        if cap < 1:
            raise expected("cap on a subject's items", cap, "at least 1")
        kept = np.minimum(counts, cap)
        facts = FederationFacts(
            items=tuple(int(n) for n in kept.sum(axis=1)),
            subjects=tuple(int(n) for n in (kept > 0).sum(axis=1)),
            largest_subject=(cap,) * len(kept),
            cap_enforced=True,
            max_items_per_subject=cap,
            silos_per_subject=silos_per_subject,
        )
        plan = make_plan(mechanism("capped_item_dp", None, AccountingMode.SOUND), facts, settings)
        largest = max(silo.noise_multiplier for silo in plan.silos)
        return CapRow(cap, float(kept.sum() / counts.sum()), largest, averaged_noise(plan))

    return [row(cap) for cap in caps]


CLIP_NORM = 0.05  # far below the gradients': every part is clipped, and only directions count
_LEAST_ROUNDS = 40
_LONGEST = 20.0  # N μ κ for each round: longer steps would oscillate
_NOISE = 4.0  # κ over its unit √(N μ/p)


@dataclass(frozen=True)
class UntunedSchedule:
    """What the rule chooses."""

    rounds: int
    clip_norm: float
    learning_rate: float
    weight_noise: float  # κ: standard deviation of the noise of all rounds on one weight


def subjects_by_noise(subjects: int, silos: int, most_silos: int) -> int:
    """√(m/s) N: as many subjects at all of s silos have the noise that N at m of them have under local trust.

    Args:
        subjects: N.
        silos: s, of the federation.
        most_silos: m, that may hold one subject, 1 to s. Secure aggregation has the noise of m = s.
    """
    return max(1, round(subjects * math.sqrt(most_silos / silos)))


def untuned_schedule(subjects: int, weights: int, epsilon: float, delta: float) -> UntunedSchedule:
    """The rule's schedule for everybody in every round.

    Args:
        subjects: N ≥ 1, those who are there, or those whose noise is predicted.
        weights: p ≥ 1, the number of trained weights.
        epsilon, delta: the target of the whole run.
    """
    signal = subjects * gdp_mu(epsilon, delta)
    noise = min(1.0, _NOISE * math.sqrt(signal / weights))
    rounds = max(_LEAST_ROUNDS, int(noise * signal / _LONGEST))
    return UntunedSchedule(rounds, CLIP_NORM, noise * signal / (CLIP_NORM * rounds), noise)
