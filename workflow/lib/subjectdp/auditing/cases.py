"""The audited plans, at the papers' FEMNIST scale: as published, and the sound ones."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from subjectdp.accounting.make_plan import make_plan
from subjectdp.algorithms.registry import algorithm
from subjectdp.auditing.lower_bounds import CONFIDENCE
from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import (
    Accountant,
    AccountingMode,
    BudgetWeights,
    FederationFacts,
    Horizontal,
    PlanSettings,
    PrivacyPlan,
    PrivacyUnit,
    SamplingMethod,
    SubjectSettings,
    TrustModel,
)

Size = Literal["small", "full"]

# One of the papers' 16 silos, with an enforced cap on a subject's items.
ITEMS, SUBJECTS, CAP, BATCH = 25_375, 3_500, 8, 512
EPSILON, DELTA = 4.0, 1e-5
PUBLISHED, SOUND = AccountingMode.AS_PUBLISHED, AccountingMode.SOUND
# HiGradAvgDP v1 and v3, LocalGroupDP: three claims, refuted together with CONFIDENCE (Bonferroni)
TOGETHER = 1.0 - (1.0 - CONFIDENCE) / 3


@dataclass(frozen=True)
class Case:
    algorithm: str
    variant: str | None
    mode: AccountingMode
    silos: int
    held: int  # silos that hold the subject
    rounds: int  # R, before the horizontal rule shortens it
    steps: int | None  # local steps T of a round; None: one epoch, 50
    runs: int  # of each world
    setting: str  # the silos, rounds and releases in words
    unit: PrivacyUnit | None = None  # attacked, at the ε that the accountant states for it; None: the claimed one
    updates: bool = False  # whether whole updates are clipped and noised once
    subject: SubjectSettings = SubjectSettings()  # of algorithms that sample subjects
    trust: TrustModel | None = None  # None: the algorithm's own
    confidence: float = CONFIDENCE  # of the bound by itself

    @property
    def sees_models(self) -> bool:
        """Whether the attacker gets each silo's model of each round, as the papers' server; else every noisy step."""
        return self.mode is PUBLISHED

    @property
    def name(self) -> str:
        """Name that keys the case's randomness."""
        return f"{self.algorithm}:{self.variant}:{self.mode.value}:{self.setting}"

    def plan(self) -> PrivacyPlan:
        """The plan of the case, made as training makes it, with its ``unit`` as the claimed one."""
        facts = federation(self.silos, self.held)
        settings = plan_settings(self.mode, self.rounds, self.steps)
        declared = algorithm(self.algorithm, self.variant)
        mechanism = declared.of_updates if self.updates else declared.mechanism(self.variant, self.mode)
        if mechanism is None:
            raise expected("algorithm that noises updates", self.algorithm, "joint_noise", PrivacyError)
        if self.trust is not None:
            mechanism = replace(mechanism, trust=self.trust)
        if mechanism.samples_subjects:
            settings = replace(settings, sampling=SamplingMethod.POISSON_SUBJECTS, subject=self.subject)
        plan = make_plan(mechanism, facts, settings)
        if self.unit is None:
            return plan
        return replace(plan, mechanism=replace(plan.mechanism, claimed_unit=self.unit))


def federation(silos: int, held: int, subjects: int = SUBJECTS) -> FederationFacts:
    """Equal silos with an enforced cap on a subject's items; ``held`` of them may hold the same subject."""
    return FederationFacts((ITEMS,) * silos, (subjects,) * silos, (CAP,) * silos, True, CAP, held, subjects)


def plan_settings(mode: AccountingMode, rounds: int, steps: int | None, batch_size: int = BATCH) -> PlanSettings:
    """ε = 4 at δ = 1e-5 with C = 1 and Poisson sampling; as published the noise is that of Opacus' RDP accountant."""
    return PlanSettings(
        mode=mode,
        horizontal=Horizontal.SOUND if mode is SOUND else Horizontal.ROUNDS_OVER_SQRT_S,
        sampling=SamplingMethod.POISSON,
        epsilon=EPSILON,
        delta=DELTA,
        clip_norm=1.0,
        rounds=rounds,
        local_steps=steps,
        batch_size=batch_size,
        accountant=Accountant.PLD if mode is SOUND else Accountant.OPACUS,
    )


def _updates(silos: int, rounds: int, runs: int) -> Iterator[Case]:
    """Updates of one epoch noised once: a silo's whole data at the calibrated ε, and an item at the accountant's."""
    words = f"{rounds} noised updates of {silos} silos"
    for unit, name in ((None, "a silo's whole data"), (PrivacyUnit.ITEM, "one item")):
        setting = f"{name}, {words}"
        yield Case("joint_noise", None, SOUND, silos, silos, rounds, None, runs, setting, unit, updates=True)


def _beyond(silos: int, rounds: int, runs: int) -> Iterator[Case]:
    """The algorithms beyond the papers, a subject at every silo: budgets, coins, a trusted server."""
    everywhere = f"at all of {silos} silos, {rounds} rounds"
    base = Case("subject_release", None, SOUND, silos, silos, rounds, 1, runs, "", trust=TrustModel.LOCAL)
    secure, summed = TrustModel.SECURE_AGGREGATION, SubjectSettings(weights=BudgetWeights.FIXED)
    changes: dict[str, dict[str, Any]] = {
        "one release a round": {},
        "coins of 0.2": {"subject": SubjectSettings(0.2)},
        "only the sum is seen": {"subject": summed, "trust": secure},
        "a trusted server": {"trust": TrustModel.CENTRAL},
    }
    for words, change in changes.items():
        yield replace(base, setting=f"{words}, {everywhere}", **change)
    yield Case("subject_sampling", None, SOUND, silos, silos, rounds, 2, runs, everywhere, subject=SubjectSettings(0.1))
    yield replace(base, algorithm="uldp_fl", trust=secure, setting=everywhere)
    yield Case("capped_item_dp", None, SOUND, 1, 1, rounds, 1, runs, f"1 silo, {rounds} rounds")


_ONE, _PART, _RULE = "1 silo, 100 rounds", "at 1 of 16 silos, 25 rounds", "at all of 16 silos, 25 rounds"
_MANY, _HIGRAD, _GROUP = "at all of 64 silos, 12 rounds", "higrad_avg_dp", "local_group_dp"
MONTE_CARLO: dict[Size, tuple[Case, ...]] = {
    "full": (
        Case(_HIGRAD, "v1", PUBLISHED, 16, 1, 100, None, 100_000, _PART, confidence=TOGETHER),
        Case(_GROUP, None, PUBLISHED, 16, 16, 100, None, 100_000, _RULE, confidence=TOGETHER),
        Case(_HIGRAD, "v3", PUBLISHED, 16, 16, 100, None, 200_000, _RULE, confidence=TOGETHER),
        Case(_HIGRAD, "v3", PUBLISHED, 1, 1, 100, None, 40_000, _ONE),
        Case("local_item_dp", None, SOUND, 16, 16, 100, None, 20_000, "one item, 100 rounds"),
        Case(_HIGRAD, "v3", SOUND, 1, 1, 100, None, 40_000, _ONE),
        Case(_HIGRAD, "v3", SOUND, 16, 16, 25, None, 20_000, _RULE),
        Case(_GROUP, None, SOUND, 1, 1, 100, None, 40_000, _ONE),
        Case(_GROUP, None, SOUND, 16, 16, 25, None, 20_000, _RULE),
        Case("user_ldp", None, SOUND, 1, 1, 100, None, 20_000, _ONE),
        Case("central_sub_dp", "v0", SOUND, 16, 16, 100, None, 40_000, "at all of 16 silos, 100 rounds"),
        Case("joint_noise", None, SOUND, 16, 16, 100, 1, 40_000, "one item, 100 rounds of 1 step"),
        *_updates(16, 100, 40_000),
        *_beyond(16, 100, 40_000),
    ),
    "small": (
        Case(_HIGRAD, "v1", PUBLISHED, 16, 1, 100, 5, 50_000, _PART, confidence=TOGETHER),
        Case(_GROUP, None, PUBLISHED, 1, 1, 100, 1, 150_000, _ONE, confidence=TOGETHER),
        Case(_HIGRAD, "v3", PUBLISHED, 64, 64, 100, 1, 50_000, _MANY, confidence=TOGETHER),
        Case("local_item_dp", None, SOUND, 16, 16, 100, 1, 20_000, "one item, 100 rounds"),
        Case(_HIGRAD, "v1", SOUND, 1, 1, 100, 1, 50_000, _ONE),
        Case(_HIGRAD, "v3", SOUND, 16, 16, 25, 1, 20_000, _RULE),
        Case(_GROUP, None, SOUND, 1, 1, 100, 1, 50_000, _ONE),
        Case("user_ldp", None, SOUND, 1, 1, 100, 1, 20_000, _ONE),
        Case("central_sub_dp", "v0", SOUND, 4, 4, 50, None, 20_000, "at all of 4 silos, 50 rounds"),
        Case("joint_noise", None, SOUND, 4, 4, 50, 1, 20_000, "one item, 50 rounds of 1 step"),
        *_updates(4, 10, 20_000),
        *_beyond(4, 24, 20_000),
    ),
}
"""The audited plans: "full" with the papers' number of steps, "small" with few steps a round and fewer runs.

A bound saturates at about the logarithm of the number of runs, so plans to be refuted get more of them.
"""
