"""What an algorithm's file declares: its mechanisms (privacy facts) and its rounds (pseudo-code).

A round is a local step of a silo and the server's aggregation, written over :mod:`subjectdp.algorithms.protocols`. The
facts are written as differences from :data:`DP_SGD`, once for both accounting modes where these do not differ.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from subjectdp.algorithms.protocols import Server, Vector
from subjectdp.errors import PrivacyError, expected
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
)

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
    """One federated round: each silo does ``silo_task`` with ``local_step``, the server aggregates the results.

    ``server_noise`` and ``of_updates`` say which plans the rule executes (see :meth:`Algorithm.round_rule`).
    """

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

    ``reads`` names those configuration keys and sections of :data:`SPECIAL_KEYS` that the algorithm reads. Another
    value than the default of a key that is not read is refused (``config.run``; decision 0022 has the exceptions).
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

        Raises:
            ConfigError: integer noise, where the algorithm has no round with it.
            PrivacyError: clipping or trust of the plan that no round of the algorithm has.
        """
        found = [rule for rule in self.rounds if rule.executes(plan)]
        if found:
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
        name: As in configurations.
        label: As in figures.
        variants: The facts of each variant, without name and mode; the first one is the default.
        rounds: The rounds: one for each kind of noise and clipping that plans may ask for.
        of_updates: The facts of the rounds that clip whole updates, sound only: no paper claims anything for them.
        reads: Those of ``SPECIAL_KEYS`` that the algorithm reads.
    """
    by_mode = [ByMode(facts, facts) if isinstance(facts, Mechanism) else facts for facts in variants]
    mechanisms = tuple(
        replace(facts, algorithm=name, mode=mode)
        for variant in by_mode
        for mode, facts in ((AccountingMode.AS_PUBLISHED, variant.as_published), (AccountingMode.SOUND, variant.sound))
    )
    if of_updates is not None:
        of_updates = replace(of_updates, algorithm=name, mode=AccountingMode.SOUND)
    return Algorithm(name, label, mechanisms, rounds, of_updates, reads)
