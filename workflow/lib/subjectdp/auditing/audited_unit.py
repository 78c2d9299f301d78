"""The worst-case unit (item, subject or silo) of a plan, and which plans can be audited; see ``auditing.vector``."""

from __future__ import annotations

from subjectdp.accounting.sound import expected_subjects, releases
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import (
    DivisorRule,
    NoiseDistribution,
    NoiseRule,
    PrivacyPlan,
    PrivacyUnit,
    TrustModel,
)


def check_auditable(plan: PrivacyPlan) -> None:
    """Raises PrivacyError for a plan that the vectorised worst case cannot run."""
    mechanism, settings = plan.mechanism, plan.settings
    summed = mechanism.trust is not TrustModel.LOCAL
    reasons = {
        "adds no noise": mechanism.noise_rule is NoiseRule.NONE,
        "adds integer noise": settings.noise_distribution is not NoiseDistribution.GAUSSIAN,
        "draws the silos of a round": settings.silos_per_round is not None,
        "fuses local steps": any(silo.fused_steps != 1 for silo in plan.silos),
        "noises each silo's average at the server": summed
        and mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH,
        "sums several local steps (see auditing.counterexample)": summed
        and any(releases(plan, silo) > 1 for silo in plan.silos),
    }
    for reason, holds in reasons.items():
        if holds:
            raise PrivacyError(
                f"{mechanism.algorithm} cannot be audited on a worst-case subject: it {reason}."
            )


def claimed_unit(plan: PrivacyPlan) -> PrivacyUnit:
    """The unit that the plan claims to protect; an item where it claims nothing."""
    return plan.mechanism.claimed_unit or PrivacyUnit.ITEM


def canary_items(plan: PrivacyPlan) -> int:
    """Items of the canary at a silo: the most that one unit may have there; for a silo, all of the first one's."""
    unit = claimed_unit(plan)
    if unit is PrivacyUnit.SILO:
        return plan.silos[0].items
    if unit is PrivacyUnit.ITEM:
        return 1
    return max(silo.max_items_per_subject for silo in plan.silos)


def held_silos(plan: PrivacyPlan) -> int:
    """Number of silos that hold the canary (the first ones): as many as may hold one unit."""
    return plan.silos_per_subject if claimed_unit(plan) is PrivacyUnit.SUBJECT else 1


def public_divisor(plan: PrivacyPlan, silo: int) -> float:
    """What the observer multiplies a release by: the divisor, or its expectation if it depends on the data."""
    if plan.mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS:
        return expected_subjects(plan.silos[silo])
    return plan.silos[silo].divisor
