"""The privacy plan: one frozen object that determines sampler, clipping, noise, divisor and accountant.

No other object carries a sampling probability or a noise multiplier. An algorithm declares a :class:`Mechanism`,
``subjectdp.accounting`` makes a :class:`PrivacyPlan` from it, and training executes the plan.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from subjectdp.errors import ConfigError, PrivacyError, expected

LARGEST_INTEGER = 2**63 - 1
MOST_SILOS = 32_767  # a partition stores a silo number as int16


def _refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):  # pydantic alone would read true as 1
        raise ValueError("a truth value is not a number")
    return value


NotBool = BeforeValidator(_refuse_bool)
Count = Annotated[int, Field(ge=1, le=LARGEST_INTEGER), NotBool]
NaturalNumber = Annotated[int, Field(ge=0, le=LARGEST_INTEGER), NotBool]
Positive = Annotated[float, Field(gt=0), NotBool]
NonNegative = Annotated[float, Field(ge=0), NotBool]
OpenFraction = Annotated[float, Field(gt=0, lt=1), NotBool]
Delta = Annotated[float, Field(gt=0, lt=0.1), NotBool]
ClipNorm = Annotated[float, Field(ge=1e-6, le=1e6), NotBool]
Probability = Annotated[float, Field(gt=0, le=1), NotBool]
Decay = Annotated[float, Field(ge=0, lt=1), NotBool]
GradientBits = Annotated[int, Field(ge=1, le=32), NotBool]


class BudgetWeights(StrEnum):
    """How a subject's clip norm is split over the silos that hold it (see ``noise.subject_weights``)."""

    UNIFORM = "uniform"  # equal parts at the silos that hold the subject
    PROPORTIONAL = "proportional"  # in proportion to its items there
    FIXED = "fixed"  # one part for each silo that may hold a subject, whether it does or not


@dataclass(frozen=True)
class SubjectSettings:
    """Settings of subject sampling and of the budget; all public. The configuration takes its defaults from here.
    A sampled subject's items at a silo are all used, or ``items`` of them."""

    sampling_probability: Probability = 1.0  # q_s
    items: Count | None = None  # G, most items of a sampled subject at a silo and step; None: all
    weights: BudgetWeights = BudgetWeights.UNIFORM
    local_steps: Count = 1  # of each subject's own model, where updates are clipped


@dataclass(frozen=True)
class Prediction:
    """A run with the noise on the average that more subjects would need: an experiment, not a guarantee."""

    subjects: int  # N, that the noise is for
    present: int  # n, that the run has
    noise_multipliers: tuple[float, ...]  # of each silo, with N subjects; the run's own are n/N of them


class PrivacyUnit(StrEnum):
    """What two neighbouring federations differ by."""

    ITEM = "item"
    SUBJECT = "subject"
    SILO = "silo"


class Adjacency(StrEnum):
    """The neighbouring relation (ZERO_OUT is dp-accounting's REPLACE_SPECIAL)."""

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"
    ZERO_OUT = "zero_out"


class SamplingMethod(StrEnum):
    """How a mini-batch is drawn from a silo's items."""

    POISSON = "poisson"
    FIXED_BATCH_SIZE = "fixed_batch_size"
    POISSON_SUBJECTS = "poisson_subjects"  # a coin for each subject, then all or some of its items


class Clipping(StrEnum):
    """Whose gradient is bounded by clip_norm before the sum."""

    NONE = "none"
    PER_ITEM = "per_item"  # Σ_j Clip(g_j)
    PER_ITEM_SUBJECT_MEAN = "per_item_subject_mean"  # Σ_a mean_{j∈S_a} Clip(g_j): HiGradAvgDP
    PER_SUBJECT = "per_subject"  # Σ_a Clip(mean_{j∈S_a} g_j)
    PER_BATCH = "per_batch"  # Clip(mean_j g_j): UserLDP
    PER_UPDATE = "per_update"  # Clip(θ_i - θ): what all local steps of a round did to the silo's model, once
    PER_SUBJECT_UPDATE = "per_subject_update"  # Σ_a Clip(θ_a - θ): the same for the model of each subject


class NoiseRule(StrEnum):
    """How the noise multiplier of a step is chosen."""

    NONE = "none"
    CONSTANT = "constant"
    GROUP_SIZE_IN_BATCH = "group_size_in_batch"  # σ_Z, Z = largest group in the mini-batch: data dependent


class NoiseDistribution(StrEnum):
    """What the noise is drawn from."""

    GAUSSIAN = "gaussian"
    SKELLAM = "skellam"  # integers, on a grid that the clipped gradients are rounded to


class SiloChoice(StrEnum):
    """Which silos take part in a round."""

    IN_TURN = "in_turn"  # round t: silos (t-1)s to ts-1, counted modulo S; public, as often as all others
    RANDOM = "random"  # drawn uniformly without replacement in every round


class NoiseSource(StrEnum):
    """What the secret draws of a run are made from: sampling, rounding and noise."""

    REPRODUCIBLE = "reproducible"  # the seed
    SECURE = "secure"  # 256 bits of the operating system, of this run alone
    UNSTATED = "unstated"  # training by other software, which is accounted for and not run here


class DivisorRule(StrEnum):
    """What the noisy sum is divided by."""

    BATCH_SIZE = "batch_size"  # the public expected batch size B
    EXPECTED_SUBJECTS = "expected_subjects"  # public constant m̄ = n_subjects · q_s
    REALISED_SUBJECTS = "realised_subjects"  # |subjects(batch)|: data dependent (v3, as published)
    ONE = "one"


class TrustModel(StrEnum):
    """Who adds the noise and who sees what."""

    LOCAL = "local"
    SECURE_AGGREGATION = "secure_aggregation"
    CENTRAL = "central"


class AccountingMode(StrEnum):
    """Accounting as the paper prints it, or as can be proven."""

    AS_PUBLISHED = "as_published"
    SOUND = "sound"


class Horizontal(StrEnum):
    """How privacy loss over the silos that hold a subject is paid for."""

    ROUNDS_OVER_SQRT_S = "rounds_over_sqrt_s"
    STEPS_TIMES_S = "steps_times_s"
    SOUND = "sound"
    NONE = "none"  # v0: "the same privacy even when subjects' data items are distributed over multiple users"


class Accountant(StrEnum):
    """How ε is computed from the mechanism's steps."""

    PLD = "pld"
    RDP = "rdp"
    RDP_INTEGER = "rdp_integer"  # Rényi bounds that hold for integer noise
    OPACUS = "opacus"  # Opacus' RDP accountant, of the papers' claims: it knows sampled Gaussians alone
    MIRONOV = "mironov"  # the joint-noise paper's: Rényi at the orders 2 to 63, Mironov's conversion

    @property
    def only_claims(self) -> bool:
        """Whether its ε is a paper's claim, from which no ε that holds is taken."""
        return self in (Accountant.OPACUS, Accountant.MIRONOV)


class PublishedSampling(StrEnum):
    """The sampling fraction that a paper puts into its accountant."""

    ITEM = "item"  # B / |D_i|
    SUBJECT_UNION_BOUND = "subject_union_bound"  # min(1, k B / |D_i|)
    FEDERATION = "federation"  # B / Σ|D_i|
    NONE = "none"  # q = 1


@dataclass(frozen=True)
class Mechanism:
    """What one algorithm variant does in one mode, and what its paper claims; declared in the algorithm's file."""

    algorithm: str
    variant: str | None
    mode: AccountingMode
    claimed_unit: PrivacyUnit | None  # None: claims no privacy
    claimed_adjacency: Adjacency
    clipping: Clipping
    noise_rule: NoiseRule
    divisor_rule: DivisorRule
    trust: TrustModel
    published_sampling: PublishedSampling
    horizontal_composition: bool  # True: the paper composes this algorithm over silos (Theorem 3.10/3.13)
    one_step_per_round: bool = False  # FedSGD-style: one mini-batch a silo and round
    published_steps_times_silos: bool = False  # CentralSubDP: s·R steps
    samples_subjects: bool = False  # the sampler draws whole subjects, not items
    shared_budget: bool = False  # a subject's clip norms at its silos are parts of one common budget
    published_local_bound: bool = False  # v3's Theorem 3.11: as published, σ > 1/(√(2π)·ε·δ·e^ε) as well
    beyond_papers: bool = False  # of no paper of this project: nothing is claimed, only sound mode exists
    reference: str = ""

    @property
    def title(self) -> str:
        """``name`` or ``name:variant``, for messages."""
        return self.algorithm if self.variant is None else f"{self.algorithm}:{self.variant}"

    @property
    def one_step_alone(self) -> bool:
        """Whether a round is one step, so that several are several rounds; an update is clipped once."""
        return self.one_step_per_round and self.clipping is not Clipping.PER_SUBJECT_UPDATE

    @property
    def counts_items(self) -> bool:
        """Whether privacy of a subject rests on a bound on its items at a silo."""
        return self.claimed_unit is PrivacyUnit.SUBJECT and not self.samples_subjects

    @property
    def data_dependence(self) -> tuple[str, ...]:
        """Why no (ε, δ) with a small δ holds; empty where σ and divisor are public constants."""
        noise = "the noise level depends on the largest group of the mini-batch and can be seen in the output"
        divisor = (
            "the divisor is the number of distinct subjects of the mini-batch: it scales the noise and shows in it"
        )
        reasons = {
            noise: self.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH,
            divisor: self.divisor_rule is DivisorRule.REALISED_SUBJECTS,
        }
        return tuple(reason for reason, holds in reasons.items() if holds)

    @property
    def server_noise(self) -> bool:
        """Whether a trusted server adds one noise of constant σ to the sum over the silos."""
        return self.trust is TrustModel.CENTRAL and self.noise_rule is NoiseRule.CONSTANT

    @property
    def clips_updates(self) -> bool:
        """Whether whole updates are clipped, of a silo or of a subject, not gradients."""
        return self.clipping in (Clipping.PER_UPDATE, Clipping.PER_SUBJECT_UPDATE)

    @property
    def noised_after_steps(self) -> bool:
        """Whether noise comes after any local optimiser: on whole updates, or on a subject's parts."""
        return self.clipping is Clipping.PER_UPDATE or self.shared_budget


People = tuple[tuple[tuple[int, int], ...], ...]
"""For each subject the silos that hold it and its items there; subjects who hold no more than another are left out."""


@dataclass(frozen=True)
class FederationFacts:
    """Public facts of a partition that the plan may use (the subject map is assumed public)."""

    items: tuple[int, ...]  # items of each silo
    subjects: tuple[int, ...]  # distinct subjects of each silo
    largest_subject: tuple[int, ...]  # most items of any one subject, each silo
    cap_enforced: bool  # True: largest_subject is bounded by an enforced cap
    max_items_per_subject: int | None  # the cap k, if any
    silos_per_subject: int  # most silos that hold one subject
    total_subjects: int | None = None  # subjects of the whole federation; None: not known
    silos_bounded: bool = True  # False: silos_per_subject was read from the data
    people: People = ()  # what each subject holds, where this is taken as public and nothing is capped


@dataclass(frozen=True)
class PlanSettings:
    """The privacy and schedule settings of a run. ``make_plan`` checks the ranges (``plan.rules``)."""

    __pydantic_config__ = ConfigDict(allow_inf_nan=False, revalidate_instances="always")

    mode: AccountingMode
    horizontal: Horizontal
    sampling: SamplingMethod
    epsilon: Positive
    delta: Delta
    clip_norm: ClipNorm
    rounds: Count  # R before the horizontal rule
    local_steps: Count | None  # None: one epoch
    batch_size: int  # expected batch size B, checked against the silos' items; unread beside a sampling_fraction
    sampling_fraction: Probability | None = None  # Poisson probability q of an item at every silo; None: B / items
    local_epochs: Count = 1  # of a round, where no local steps are given
    silos_per_round: Count | None = None
    silo_choice: SiloChoice = SiloChoice.IN_TURN
    noise_multiplier: NonNegative | None = None  # override of the calibration; of the sum (accounting.sound.shares)
    accountant: Accountant = Accountant.PLD
    own_noise_only: bool = False  # joint noise, sound: account for each silo's own noise alone (any local steps)
    colluding_silos: NaturalNumber = 0  # joint noise: silos whose noise does not count
    linear_updates: bool = True  # joint noise: a silo's update is linear in its noisy gradients (not Adam)
    noise_distribution: NoiseDistribution = NoiseDistribution.GAUSSIAN
    gradient_bits: GradientBits = 16  # Skellam: steps of the integer grid in the largest clip norm, as a power of 2
    fused_steps: tuple[Count, ...] = ()  # joint noise: each silo's local steps for one noise; (): 1
    subject: SubjectSettings = SubjectSettings()  # read where subjects are sampled
    predicted_subjects: Count | None = None  # noise on the average as this many subjects would have it
    noise_source: NoiseSource = NoiseSource.REPRODUCIBLE


@dataclass(frozen=True)
class SiloSchedule:
    """What one silo does: sampling, steps and noise (all public)."""

    items: NaturalNumber
    subjects: NaturalNumber
    sampling_probability: Annotated[float, Field(ge=1e-9, le=1), NotBool]
    max_items_per_subject: NaturalNumber  # 0: not known, so that no ε of a subject can be given
    steps_per_round: Count  # noised steps
    noise_multiplier: Annotated[float, Field(ge=0, le=1e9), NotBool]  # noise std / clip_norm on the sum; 0: no noise
    divisor: float  # public constant; unused where the divisor rule is REALISED_SUBJECTS
    fused_steps: int = 1  # local steps that one noised step is made of, each with its part of the clip norm

    @property
    def local_steps(self) -> int:
        """Local steps of a round, whether noised or not."""
        return self.steps_per_round * self.fused_steps


@dataclass(frozen=True)
class PrivacyPlan:
    """Everything that determines a run's privacy: made once, then executed and accounted for unchanged."""

    mechanism: Mechanism
    settings: PlanSettings
    rounds: int  # executed rounds, after the horizontal rule
    silos: tuple[SiloSchedule, ...]
    silos_per_subject: Count
    cap_enforced: bool
    group_noise_multipliers: tuple[tuple[float, ...], ...] = ()  # per silo: σ_Z for Z = 1, 2, ...
    prediction: Prediction | None = None  # the noise is that of more subjects than the run has
    silos_bounded: bool = True  # False: silos_per_subject was read from the data
    people: People = ()  # what each subject holds, where this is taken as public; else any ``silos_per_subject`` silos
    total_subjects: int | None = None  # of the federation; None: not known

    @property
    def clip_norm(self) -> float | None:
        """The L2 bound C on one unit's contribution, None where nothing is clipped."""
        return None if self.mechanism.clipping is Clipping.NONE else self.settings.clip_norm

    def rounds_of(self, silo: int) -> int:
        """Rounds that a silo takes part in, at most; all of them where the silos of a round are drawn."""
        chosen, silos = self.settings.silos_per_round, len(self.silos)
        if chosen is None or chosen >= silos or self.settings.silo_choice is SiloChoice.RANDOM:
            return self.rounds
        below = -((silo - self.rounds * chosen) // silos)  # numbers below R s that are the silo's modulo S
        return max(1, below)

    def noise_multiplier(self, silo: int, group_size: int = 1) -> float:
        """σ of a step at ``silo`` whose largest group is ``group_size`` (0 for an empty mini-batch counts as 1)."""
        if self.mechanism.noise_rule is not NoiseRule.GROUP_SIZE_IN_BATCH:
            return self.silos[silo].noise_multiplier
        table, size = self.group_noise_multipliers[silo], max(1, group_size)
        if size > len(table):
            raise expected("group size in a mini-batch", size, f"at most {len(table)}", PrivacyError)
        return table[size - 1]

    @property
    def delta_warning(self) -> str | None:
        """What to say of a δ that is not below 1/n, where the number n of people is known; None where it is."""
        people, delta = self.total_subjects, self.settings.delta
        if people is None or delta * people < 1:
            return None
        unprotected = "publishing one of them at random, unprotected, would satisfy it"
        return f"delta {delta:g} is not below 1/{people}, one over the number of people: {unprotected}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able copy for the manifest."""
        return asdict(self)


def lines(problem: ValidationError) -> Iterator[str]:
    """A line for each value of a dataclass that is out of range."""
    for details in problem.errors():
        key = ".".join(str(part) for part in details["loc"])
        yield str(expected(key, details["input"], details["msg"].removeprefix("Input should be ")))


_FACTS = TypeAdapter(Mechanism)


def checked(facts: Mechanism) -> Mechanism:
    """The facts with members of the enums for their words, which compare equal. ConfigError for other kinds."""
    try:
        return _FACTS.validate_python(asdict(facts))
    except ValidationError as problem:
        raise ConfigError("\n".join(lines(problem))) from None
