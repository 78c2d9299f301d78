"""Expected noise on a round's averaged gradient.

This number compares algorithms with different sampling, sums and divisors. A small noise multiplier on a sum of few
subjects may add more noise to the average than a large one on a sum of many.
"""

from __future__ import annotations

import math

from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import (
    Clipping,
    DivisorRule,
    NoiseRule,
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
