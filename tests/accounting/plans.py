"""Plans of the papers' scale for the accounting tests."""

from dataclasses import replace
from typing import Any

from subjectdp.algorithms.registry import mechanism
from subjectdp.plan.plan import (
    AccountingMode,
    DivisorRule,
    FederationFacts,
    Horizontal,
    Mechanism,
    NoiseRule,
    PlanSettings,
    PrivacyPlan,
    PrivacyUnit,
    SamplingMethod,
    SiloSchedule,
)

Q = 0.0201773  # FEMNIST: 512 of 25 375 items
DELTA = 1e-5
POISSON, FIXED = SamplingMethod.POISSON, SamplingMethod.FIXED_BATCH_SIZE
ITEM, SUBJECT, SILO = PrivacyUnit.ITEM, PrivacyUnit.SUBJECT, PrivacyUnit.SILO
PUBLISHED, SOUND = AccountingMode.AS_PUBLISHED, AccountingMode.SOUND

LOCAL_ITEM, FED_AVG, LOCAL_GROUP, JOINT, USER_LDP = (
    mechanism(name, None, PUBLISHED)
    for name in ("local_item_dp", "fed_avg", "local_group_dp", "joint_noise", "user_ldp")
)
USER_LDP_SAMPLED, USER_LDP_V3 = (mechanism("user_ldp", variant, PUBLISHED) for variant in ("v1_sampled", "v3"))
HIGRAD_V1, HIGRAD_V3 = (mechanism("higrad_avg_dp", variant, PUBLISHED) for variant in ("v1", "v3"))
CENTRAL = mechanism("central_sub_dp", "v0", PUBLISHED)
CAPPED, SUBJECT_SAMPLING, RELEASE, ULDP_FL = (
    mechanism(name, None, PUBLISHED) for name in ("capped_item_dp", "subject_sampling", "subject_release", "uldp_fl")
)


def sound(published: Mechanism) -> Mechanism:
    """The mechanism in sound mode: constant σ and a public divisor."""
    realised = published.divisor_rule is DivisorRule.REALISED_SUBJECTS
    rule = NoiseRule.NONE if published.noise_rule is NoiseRule.NONE else NoiseRule.CONSTANT
    divisor = DivisorRule.EXPECTED_SUBJECTS if realised else published.divisor_rule
    return replace(published, mode=SOUND, noise_rule=rule, divisor_rule=divisor)


def facts(silos: int = 16, cap: int = 8, held: int | None = None, enforced: bool = True) -> FederationFacts:
    """FEMNIST at the papers' scale: 3,500 subjects, 25,375 items at each silo."""
    return FederationFacts(
        items=(25_375,) * silos,
        subjects=(3_500,) * silos,
        largest_subject=(cap,) * silos,
        cap_enforced=enforced,
        max_items_per_subject=cap if enforced else None,
        silos_per_subject=silos if held is None else held,
    )


def settings(**changes: Any) -> PlanSettings:
    """The papers' settings: ε = 4, δ = 1e-5, 100 rounds of one epoch in batches of 512."""
    base = PlanSettings(
        mode=PUBLISHED,
        horizontal=Horizontal.ROUNDS_OVER_SQRT_S,
        sampling=POISSON,
        epsilon=4.0,
        delta=DELTA,
        clip_norm=1.0,
        rounds=100,
        local_steps=None,
        batch_size=512,
    )
    return replace(base, **changes)


def plan(
    mechanism: Mechanism,
    noise: float,
    *,
    silos: int = 1,
    rounds: int = 100,
    steps: int = 50,
    q: float = Q,
    k: int = 8,
    items: int = 25_375,
    enforced: bool = True,
    held: int | None = None,
    **changes: Any,
) -> PrivacyPlan:
    """A plan of equal silos with the given noise, without calibration."""
    schedule = SiloSchedule(
        items=items,
        subjects=3_500,
        sampling_probability=q,
        max_items_per_subject=k,
        steps_per_round=steps,
        noise_multiplier=noise,
        divisor=512.0,
    )
    return PrivacyPlan(
        mechanism=mechanism,
        settings=settings(mode=mechanism.mode, **changes),
        rounds=rounds,
        silos=(schedule,) * silos,
        silos_per_subject=silos if held is None else held,
        cap_enforced=enforced,
    )
