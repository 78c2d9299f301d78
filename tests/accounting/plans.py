"""Plans of the papers' scale for the accounting tests; mechanisms declared here, apart from the algorithms' files."""

from dataclasses import replace
from typing import Any

from subjectdp.plan.plan import (
    AccountingMode,
    Adjacency,
    Clipping,
    DivisorRule,
    FederationFacts,
    Horizontal,
    Mechanism,
    NoiseRule,
    PlanSettings,
    PrivacyPlan,
    PrivacyUnit,
    PublishedSampling,
    SamplingMethod,
    SiloSchedule,
    TrustModel,
)

Q = 0.0201773  # FEMNIST: 512 of 25 375 items
DELTA = 1e-5
POISSON, FIXED = SamplingMethod.POISSON, SamplingMethod.FIXED_BATCH_SIZE
ITEM, SUBJECT, SILO = PrivacyUnit.ITEM, PrivacyUnit.SUBJECT, PrivacyUnit.SILO
PUBLISHED, SOUND = AccountingMode.AS_PUBLISHED, AccountingMode.SOUND

_BASE = Mechanism(
    algorithm="local_item_dp",
    variant=None,
    mode=PUBLISHED,
    claimed_unit=ITEM,
    claimed_adjacency=Adjacency.ADD_REMOVE,
    clipping=Clipping.PER_ITEM,
    noise_rule=NoiseRule.CONSTANT,
    divisor_rule=DivisorRule.BATCH_SIZE,
    trust=TrustModel.LOCAL,
    published_sampling=PublishedSampling.ITEM,
    horizontal_composition=False,
    reference="test",
)
LOCAL_ITEM = _BASE
FED_AVG = replace(_BASE, algorithm="fed_avg", claimed_unit=None, clipping=Clipping.NONE, noise_rule=NoiseRule.NONE)
USER_LDP = replace(
    _BASE,
    algorithm="user_ldp",
    claimed_unit=SUBJECT,
    clipping=Clipping.PER_BATCH,
    divisor_rule=DivisorRule.ONE,
    published_sampling=PublishedSampling.NONE,
    horizontal_composition=True,
)
USER_LDP_SAMPLED = replace(USER_LDP, variant="v1_sampled", published_sampling=PublishedSampling.ITEM)
USER_LDP_V3 = replace(USER_LDP, variant="v3", published_local_bound=True)
LOCAL_GROUP = replace(
    _BASE,
    algorithm="local_group_dp",
    claimed_unit=SUBJECT,
    noise_rule=NoiseRule.GROUP_SIZE_IN_BATCH,
    horizontal_composition=True,
)
HIGRAD_V1 = replace(
    _BASE,
    algorithm="higrad_avg_dp",
    variant="v1",
    claimed_unit=SUBJECT,
    clipping=Clipping.PER_ITEM_SUBJECT_MEAN,
    horizontal_composition=True,
)
HIGRAD_V3 = replace(
    HIGRAD_V1,
    variant="v3",
    divisor_rule=DivisorRule.REALISED_SUBJECTS,
    published_sampling=PublishedSampling.SUBJECT_UNION_BOUND,
)
CENTRAL = replace(
    _BASE,
    algorithm="central_sub_dp",
    variant="v0",
    claimed_unit=SUBJECT,
    noise_rule=NoiseRule.GROUP_SIZE_IN_BATCH,
    trust=TrustModel.CENTRAL,
    published_sampling=PublishedSampling.FEDERATION,
    one_step_per_round=True,
    published_steps_times_silos=True,
)
JOINT = replace(_BASE, algorithm="joint_noise", trust=TrustModel.SECURE_AGGREGATION)

CAPPED = replace(
    _BASE,
    algorithm="capped_item_dp",
    claimed_unit=SUBJECT,
    published_sampling=PublishedSampling.NONE,
    horizontal_composition=True,
    beyond_papers=True,
)
SUBJECT_SAMPLING = replace(
    CAPPED,
    algorithm="subject_sampling",
    clipping=Clipping.PER_SUBJECT,
    divisor_rule=DivisorRule.EXPECTED_SUBJECTS,
    samples_subjects=True,
)
RELEASE = replace(
    SUBJECT_SAMPLING,
    algorithm="subject_release",
    horizontal_composition=False,
    one_step_per_round=True,
    shared_budget=True,
)
ULDP_FL = replace(
    RELEASE, algorithm="uldp_fl", clipping=Clipping.PER_SUBJECT_UPDATE, trust=TrustModel.SECURE_AGGREGATION
)


def sound(mechanism: Mechanism) -> Mechanism:
    """The mechanism in sound mode: constant σ and a public divisor."""
    realised = mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS
    rule = NoiseRule.NONE if mechanism.noise_rule is NoiseRule.NONE else NoiseRule.CONSTANT
    divisor = DivisorRule.EXPECTED_SUBJECTS if realised else mechanism.divisor_rule
    return replace(mechanism, mode=SOUND, noise_rule=rule, divisor_rule=divisor)


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
