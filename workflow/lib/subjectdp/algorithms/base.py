"""What an algorithm's file declares: its mechanisms (privacy facts) and its rounds (pseudo-code).

A round is a local step of a silo and the server's aggregation, written over the protocols below, which know no device,
file or configuration. The facts are written as differences from :data:`DP_SGD`, once for both accounting modes where
these do not differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from subjectdp.errors import PrivacyError, SubjectDPError, expected
from subjectdp.plan.plan import (
    AccountingMode,
    Adjacency,
    Clipping,
    DivisorRule,
    Mechanism,
    NoiseDistribution,
    NoiseRule,
    PrivacyPlan,
    PrivacyUnit,
    PublishedSampling,
    TrustModel,
    checked,
)

if TYPE_CHECKING:
    from torch import Tensor


Vector: TypeAlias = "Tensor"
"""A model, a gradient or an update, flat: (P,) for P parameters."""

Factor: TypeAlias = "Callable[[Tensor], Tensor]"
"""From ‖g‖/C of one item, a number, to what its gradient is multiplied by."""


class Batch(Protocol):
    """A mini-batch of one silo; it may be empty."""

    @property
    def inputs(self) -> Tensor:
        """(items, ...) the items themselves."""

    @property
    def labels(self) -> Tensor:
        """(items,) int64."""

    @property
    def items(self) -> int:
        """Number of items."""

    @property
    def subjects(self) -> int:
        """Number of distinct subjects."""

    @property
    def largest_group(self) -> int:
        """Z: most items of any one subject."""

    @property
    def group_sizes(self) -> Tensor:
        """(items,) for each item, how many items its subject has in the mini-batch."""


class LocalStep(Protocol):
    """One local step t of one silo in one round."""

    def sample_batch(self) -> Batch:
        """Draws the step's mini-batch as the plan says: items one by one, or whole subjects."""

    def gradient_sum(self, batch: Batch) -> Vector:
        """Σ_j g(s_j), nothing clipped."""

    def clipped_sum(self, batch: Batch, weights: Tensor | None = None, factor: Factor | None = None) -> Vector:
        """Σ_j w_j Clip(g(s_j), C), weights (items,) in [0, 1]; C/k where the silo fuses k local steps.
        With ``factor`` Σ_j w_j g(s_j) min(factor(‖g(s_j)‖/C), C/‖g(s_j)‖)."""

    def subject_sum(self, batch: Batch) -> Vector:
        """Σ_a Clip(mean_{j∈S_a} g(s_j), C_a), C_a the subject's clip norm at this silo: C, or its part of a budget."""

    def subject_update_sum(self, batch: Batch) -> Vector:
        """Σ_a Clip(θ_a - θ, C_a), θ_a the model after local steps on subject a's items of the mini-batch alone."""

    def clip(self, vector: Vector) -> Vector:
        """A vector scaled to L2 norm at most C."""

    def noise_multiplier(self, batch: Batch) -> float:
        """σ of the step; data dependent only where the plan's noise rule says so. Of k fused steps the last has it."""

    def add_noise(self, total: Vector, noise_multiplier: float) -> Vector:
        """total + N(0, σ²C² I), once, with randomness keyed by (seed, algorithm, round, silo, step)."""

    def divisor(self, batch: Batch) -> float:
        """What the plan divides the noisy sum by: a public constant, unless its divisor rule says otherwise."""


class IntegerStep(LocalStep, Protocol):
    """A local step whose sums are integers (P,) int64, multiples of the plan's grid step."""

    def rounded_sum(self, batch: Batch) -> Vector:
        """Σ_j Round(γ_i/γ Clip(g(s_j), C_i)), with random rounding of each item's gradient."""

    def add_integer_noise(self, total: Vector, noise_multiplier: float) -> Vector:
        """total + Skellam noise of the noise multiplier, with randomness keyed as in ``add_noise``."""


class Server(Protocol):
    """What the server can do in one round, once it has the silos' results."""

    @property
    def silo_count(self) -> int:
        """s, the number of silos that take part."""

    @property
    def model(self) -> Vector:
        """θ, the global model (P,); read only."""

    @property
    def divisor(self) -> float:
        """Σ of the participating silos' divisors: the public divisor of a sum over silos."""

    def add_noise(self, total: Vector) -> Vector:
        """total + N(0, σ²C² I), once: the server's own noise of the round."""

    def set_model(self, model: Vector) -> None:
        """θ becomes ``model`` (through the server optimiser, if one is configured)."""

    def descend(self, gradient: Vector) -> None:
        """θ ← θ − η·gradient with the configured optimiser, at the server."""


class IntegerServer(Server, Protocol):
    """A server that sees only the secure sum of integer updates (P,) int64."""

    def secure_sum(self, updates: Iterable[Vector]) -> Vector:
        """Σ of the updates modulo the ring's size, which the sum does not exceed."""

    @property
    def unit(self) -> float:
        """How far one integer moves a parameter: γ · grid step / B."""


Step = Callable[[Any], Vector]
"""A local step: from a ``LocalStep`` or ``IntegerStep``, the direction to descend along."""

Aggregate = Callable[[Any, Iterable[Vector]], None]
"""The server's part of a round: from a ``Server`` or ``IntegerServer`` and the silos' results in order, a new model."""

DP_SGD = Mechanism(
    algorithm="",  # the name and the mode are filled in by `declare`
    variant=None,
    mode=AccountingMode.SOUND,
    claimed_unit=PrivacyUnit.ITEM,
    claimed_adjacency=Adjacency.ADD_REMOVE,
    clipping=Clipping.PER_ITEM,
    noise_rule=NoiseRule.CONSTANT,
    divisor_rule=DivisorRule.BATCH_SIZE,
    trust=TrustModel.LOCAL,
    published_sampling=PublishedSampling.ITEM,
    horizontal_composition=False,
)
"""DP-SGD at each silo (Abadi et al. 2016): an item is added or removed, each item's gradient is clipped, the sum gets
noise of constant σ and is divided by the public B, q = B/|D_i|, no composition over silos."""


SPECIAL_KEYS = ("privacy.horizontal", "joint", "subject")
"""Configuration keys and sections that only some algorithms read."""


def _within(key: str, section: str) -> bool:
    return key == section or key.startswith(f"{section}.")


class ByMode(NamedTuple):
    """The facts of a variant that does other things in the one mode than in the other."""

    as_published: Mechanism
    sound: Mechanism


def group_noise_as_published(facts: Mechanism) -> ByMode:
    """``facts`` with σ_Z as published, Z the largest group of the mini-batch, and with one constant σ in sound mode."""
    return ByMode(as_published=replace(facts, noise_rule=NoiseRule.GROUP_SIZE_IN_BATCH), sound=facts)


def vector_sum(vectors: Iterable[Vector]) -> Vector:
    """Σ of at least one vector, in order, reusing the first one's memory."""
    parts = iter(vectors)
    total = next(parts)
    for vector in parts:
        total.add_(vector)
    return total


def average_models(server: Server, models: Iterable[Vector]) -> None:
    """F_g of the papers: θ = (1/s) Σ_i θ_i over the silos of the round."""
    server.set_model(vector_sum(models) / server.silo_count)


class SiloTask(StrEnum):
    """What a silo does in a round, and what it gives to the server."""

    LOCAL_STEPS = "local_steps"
    """T local steps θ_i ← θ_i − η·local_step from the global model; gives θ_i."""

    ONE_STEP = "one_step"
    """One local step at the global model; gives its direction."""

    INTEGER_STEPS = "integer_steps"
    """T local steps in integers θ_i ← θ_i − unit·K_t from the global model; gives Σ_t K_t, int64."""

    NOISY_UPDATE = "noisy_update"
    """T local steps as above, then one release: Clip(θ_i − θ, C_i) + N(0, σ_i²C_i² I)."""


@dataclass(frozen=True)
class RoundRule:
    """One federated round: each silo does ``silo_task`` with ``local_step``, the server aggregates the results."""

    local_step: Step
    aggregate: Aggregate = average_models
    silo_task: SiloTask = SiloTask.LOCAL_STEPS
    server_noise: bool = False  # a trusted server adds one noise to the sum over the silos
    of_updates: bool = False  # whole updates are clipped, not gradients

    def executes(self, plan: PrivacyPlan) -> bool:
        """Whether clipping and noise of this rule are the plan's."""
        integers = plan.settings.noise_distribution is NoiseDistribution.SKELLAM
        return (
            self.server_noise == plan.mechanism.server_noise
            and self.of_updates == plan.mechanism.clips_updates
            and (self.silo_task is SiloTask.INTEGER_STEPS) == integers
        )


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: name in configurations, label in figures, privacy facts, pseudo-code.

    ``reads`` names the keys and sections of :data:`SPECIAL_KEYS` that it reads: a value other than the default of any
    other of them is refused (``config.run``; decision 0022 has the exceptions).
    """

    name: str
    label: str
    mechanisms: tuple[Mechanism, ...]  # of every variant in every mode
    rounds: tuple[RoundRule, ...]
    of_updates: Mechanism | None = None  # the facts of the rounds that clip whole updates
    reads: tuple[str, ...] = ("privacy.horizontal",)

    @property
    def is_private(self) -> bool:
        """Whether any privacy is claimed; without, the section ``privacy`` is not read."""
        return self.mechanisms[0].claimed_unit is not None

    @property
    def samples_subjects(self) -> bool:
        """Whether mini-batches are drawn by subject, not by item."""
        return self.mechanisms[0].samples_subjects

    @property
    def one_step_per_round(self) -> bool:
        """Whether a silo contributes one mini-batch to a round."""
        return self.mechanisms[0].one_step_per_round

    def reads_key(self, key: str) -> bool:
        """Whether a run reads the configuration key."""
        special = any(_within(key, each) for each in SPECIAL_KEYS)
        return not special or any(_within(key, each) for each in self.reads)

    @property
    def variants(self) -> tuple[str | None, ...]:
        """Its variants, the default one first; (None,) where there is only one."""
        return tuple(dict.fromkeys(mechanism.variant for mechanism in self.mechanisms))

    def mechanism(self, variant: str | None, mode: AccountingMode) -> Mechanism:
        """The privacy facts of a variant in a mode; the first variant when None is given."""
        wanted = self.variants[0] if variant is None else variant
        return next(m for m in self.mechanisms if m.variant == wanted and m.mode is mode)

    def round_rule(self, plan: PrivacyPlan) -> RoundRule:
        """The round that executes a plan.

        Raises ConfigError for integer noise and PrivacyError for clipping or trust that no round of the algorithm has.
        """
        if found := [rule for rule in self.rounds if rule.executes(plan)]:
            return found[0]
        if plan.settings.noise_distribution is NoiseDistribution.SKELLAM:
            raise expected("joint.noise", "skellam", f"gaussian with algorithm {self.name}")
        mechanism = plan.mechanism
        asked = f"clipping {mechanism.clipping.value}, trust {mechanism.trust.value}"
        raise expected(f"plan of {self.name}", asked, "one that a declared round executes", PrivacyError)


def declare(
    name: str,
    label: str,
    *variants: Mechanism | ByMode,
    rounds: tuple[RoundRule, ...],
    of_updates: Mechanism | None = None,
    reads: tuple[str, ...] = ("privacy.horizontal",),
) -> Algorithm:
    """The algorithm with its facts written out for both modes.

    Args:
        name, label: as in configurations, as in figures.
        variants: the facts of each variant, without name and mode; the first one is the default.
        rounds: one for each kind of noise and clipping that plans may ask for.
        of_updates: the facts of the rounds that clip whole updates, sound only: no paper states an ε for them.
        reads: those of ``SPECIAL_KEYS`` that the algorithm reads.
    """
    by_mode = [ByMode(facts, facts) if isinstance(facts, Mechanism) else facts for facts in variants]
    mechanisms = tuple(
        checked(replace(facts, algorithm=name, mode=mode))
        for variant in by_mode
        for mode, facts in ((AccountingMode.AS_PUBLISHED, variant.as_published), (AccountingMode.SOUND, variant.sound))
    )
    if of_updates is not None:
        of_updates = checked(replace(of_updates, algorithm=name, mode=AccountingMode.SOUND))
    found = Algorithm(name, label, mechanisms, rounds, of_updates, reads)
    for problem in chain(_unread(found), _misfits(name, mechanisms)):
        raise problem
    return found


def _unread(found: Algorithm) -> Iterator[SubjectDPError]:
    """What of a declaration, or of the settings that it says it reads, nothing would ever read."""
    name, first = found.name, found.mechanisms[0]
    for key in ("rounds", "reads"):
        given: object = getattr(found, key)
        if not isinstance(given, tuple):
            yield expected(f"{key} of {name}", given, "a tuple, with a comma behind its only member")
    kinds = [(rule.server_noise, rule.of_updates, rule.silo_task is SiloTask.INTEGER_STEPS) for rule in found.rounds]
    if len(set(kinds)) < len(kinds):
        allowed = "one for each server_noise, of_updates and kind of noise: variants differ in facts alone"
        yield expected(f"rounds of {name}", kinds, allowed)
    reading = {
        "subject.sampling_probability": first.samples_subjects,
        "subject.items": first.samples_subjects,
        "subject.weights": any(facts.shared_budget for facts in found.mechanisms),
        "joint.clipping": found.of_updates is not None,
    }
    if unread := [key for key, read in reading.items() if not read and found.reads_key(key)]:
        yield expected(f"reads of {name}", found.reads, f"without {', '.join(unread)}, which its facts have no use for")


def _misfits(name: str, mechanisms: tuple[Mechanism, ...]) -> Iterator[SubjectDPError]:
    """Facts that contradict one another, or what is read of the first variant for all."""
    for facts in mechanisms:
        if (facts.claimed_unit is None) != (facts.noise_rule is NoiseRule.NONE):
            allowed = "none where claimed_unit is None, and only there"
            yield expected(f"noise_rule of {facts.title}", facts.noise_rule, allowed)
        if facts.claimed_unit is not None and not facts.beyond_papers and not facts.reference:
            allowed = "what publishes its claim, unless beyond_papers is True"
            yield expected(f"reference of {facts.title}", facts.reference, allowed)
    variants = [facts.variant for facts in mechanisms if facts.mode is AccountingMode.SOUND]
    if len(set(variants)) < len(variants):
        yield expected(f"variants of {name}", variants, "named differently")
    shared = {(facts.claimed_unit is None, facts.samples_subjects, facts.one_step_per_round) for facts in mechanisms}
    if len(shared) > 1:
        allowed = "alike for all variants and modes: no claim, samples_subjects, one_step_per_round"
        yield expected(f"facts of {name}", shared, allowed)
