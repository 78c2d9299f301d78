"""Plans of the papers' scale for the accounting tests; mechanisms declared here, apart from the algorithms' files."""

from dataclasses import replace
from typing import Any

from subjectdp.accounting.events import Shift, unit_shift
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
CLIPPINGS = (Clipping.PER_ITEM, Clipping.PER_ITEM_SUBJECT_MEAN, Clipping.PER_SUBJECT, Clipping.PER_BATCH)
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
_OF_SUBJECTS = replace(_BASE, claimed_unit=SUBJECT, horizontal_composition=True)
_UNSAMPLED = replace(_OF_SUBJECTS, published_sampling=PublishedSampling.NONE)
USER_LDP = replace(_UNSAMPLED, algorithm="user_ldp", clipping=Clipping.PER_BATCH, divisor_rule=DivisorRule.ONE)
USER_LDP_SAMPLED = replace(USER_LDP, variant="v1_sampled", published_sampling=PublishedSampling.ITEM)
USER_LDP_V3 = replace(USER_LDP, variant="v3", published_local_bound=True)
LOCAL_GROUP = replace(_OF_SUBJECTS, algorithm="local_group_dp", noise_rule=NoiseRule.GROUP_SIZE_IN_BATCH)
HIGRAD_V1 = replace(_OF_SUBJECTS, algorithm="higrad_avg_dp", variant="v1", clipping=Clipping.PER_ITEM_SUBJECT_MEAN)
_BY_SUBJECTS = replace(HIGRAD_V1, published_sampling=PublishedSampling.SUBJECT_UNION_BOUND)
HIGRAD_V3 = replace(_BY_SUBJECTS, variant="v3", divisor_rule=DivisorRule.REALISED_SUBJECTS)
CENTRAL = replace(
    LOCAL_GROUP,
    algorithm="central_sub_dp",
    variant="v0",
    trust=TrustModel.CENTRAL,
    published_sampling=PublishedSampling.FEDERATION,
    horizontal_composition=False,
    one_step_per_round=True,
    published_steps_times_silos=True,
)
JOINT = replace(_BASE, algorithm="joint_noise", trust=TrustModel.SECURE_AGGREGATION)
PAPERS = (FED_AVG, LOCAL_ITEM, USER_LDP, LOCAL_GROUP, HIGRAD_V1, HIGRAD_V3, CENTRAL, JOINT)

CAPPED = replace(_UNSAMPLED, algorithm="capped_item_dp", beyond_papers=True)
_WHOLE = replace(CAPPED, clipping=Clipping.PER_SUBJECT, divisor_rule=DivisorRule.EXPECTED_SUBJECTS)
SUBJECT_SAMPLING = replace(_WHOLE, algorithm="subject_sampling", samples_subjects=True)
_ONCE = replace(SUBJECT_SAMPLING, horizontal_composition=False, one_step_per_round=True)
RELEASE = replace(_ONCE, algorithm="subject_release", shared_budget=True)
_OF_SUMS = replace(RELEASE, trust=TrustModel.SECURE_AGGREGATION)
ULDP_FL = replace(_OF_SUMS, algorithm="uldp_fl", clipping=Clipping.PER_SUBJECT_UPDATE)


def sound(mechanism: Mechanism) -> Mechanism:
    """The mechanism in sound mode: constant σ and a public divisor."""
    realised = mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS
    rule = NoiseRule.NONE if mechanism.noise_rule is NoiseRule.NONE else NoiseRule.CONSTANT
    divisor = DivisorRule.EXPECTED_SUBJECTS if realised else mechanism.divisor_rule
    return replace(mechanism, mode=SOUND, noise_rule=rule, divisor_rule=divisor)


def facts(silos: int = 16, cap: int = 8, held: int | None = None, enforced: bool = True) -> FederationFacts:
    """FEMNIST at the papers' scale: 3,500 subjects, 25,375 items at each silo."""
    bound = cap if enforced else None
    return FederationFacts((25_375,) * silos, (3_500,) * silos, (cap,) * silos, enforced, bound, held or silos)


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


def items(q: float, k: int) -> Shift:
    """What k items of a subject move a step's sum by, each drawn with probability q."""
    return unit_shift(Clipping.PER_ITEM, SUBJECT, POISSON, q, k, 25_375)


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
    schedule = SiloSchedule(items, 3_500, q, k, steps, noise, divisor=512.0)
    chosen = settings(mode=mechanism.mode, **changes)
    return PrivacyPlan(mechanism, chosen, rounds, (schedule,) * silos, held or silos, enforced)
