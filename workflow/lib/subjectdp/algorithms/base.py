"""What an algorithm's file declares: its mechanisms (privacy facts) beside its pseudo-code.

The pseudo-code, a local step and a server round, is written over :mod:`subjectdp.algorithms.protocols`. The facts are
written as what sets the algorithm apart from :data:`DP_SGD`, once for both accounting modes where they do not differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from subjectdp.algorithms.protocols import GridRound, LocalStep, ServerRound, UpdateRound, Vector
from subjectdp.plan.plan import (
    AccountingMode,
    Adjacency,
    Clipping,
    DivisorRule,
    Mechanism,
    NoiseRule,
    PrivacyUnit,
    PublishedSampling,
    TrustModel,
)

Step = Callable[[LocalStep], Vector]
"""A local step: the direction to descend along, from one mini-batch."""

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


SPECIAL_KEYS = ("privacy.horizontal", "privacy.noise_placement", "joint", "subject")
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


def federated_averaging(server: ServerRound, local_step: Step) -> None:
    """F_g of the papers: θ = (1/s) Σ_i θ_i over the silos of the round."""
    total = vector_sum(server.train_locally(silo, local_step) for silo in server.silos)
    server.set_model(total / server.silo_count)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: name in configurations, label in figures, privacy facts, pseudo-code.

    ``reads`` names those configuration keys and sections of :data:`SPECIAL_KEYS` that the algorithm reads. A key that
    is not read is set to its default, so that it does not enter the run id.
    """

    name: str
    label: str
    mechanisms: tuple[Mechanism, ...]  # of every variant in every mode
    local_step: Step
    server_round: Callable[[ServerRound, Step], None] = federated_averaging
    grid_round: Callable[[GridRound], None] | None = None  # the round with integer noise, if there is one
    update_round: Callable[[UpdateRound], None] | None = None  # the round that noises whole updates, likewise
    of_updates: Mechanism | None = None  # the facts of ``update_round``
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

    def reads_section(self, section: str) -> bool:
        """Whether a run reads any key of a section of ``SPECIAL_KEYS``."""
        return any(_within(key, section) for key in self.reads)

    @property
    def variants(self) -> tuple[str | None, ...]:
        """Its variants, the default one first; (None,) where there is only one."""
        return tuple(dict.fromkeys(mechanism.variant for mechanism in self.mechanisms))

    def mechanism(self, variant: str | None, mode: AccountingMode) -> Mechanism:
        """The privacy facts of a variant in a mode; the first variant when None is given."""
        wanted = self.variants[0] if variant is None else variant
        return next(m for m in self.mechanisms if m.variant == wanted and m.mode is mode)


def declare(
    name: str,
    label: str,
    *variants: Mechanism | ByMode,
    local_step: Step,
    server_round: Callable[[ServerRound, Step], None] = federated_averaging,
    grid_round: Callable[[GridRound], None] | None = None,
    update_round: Callable[[UpdateRound], None] | None = None,
    of_updates: Mechanism | None = None,
    reads: tuple[str, ...] = ("privacy.horizontal",),
) -> Algorithm:
    """The algorithm with its facts written out for both modes.

    Args:
        name: As in configurations.
        label: As in figures.
        variants: The facts of each variant, without name and mode; the first one is the default.
        local_step: What a silo does with one mini-batch.
        server_round: What a round does.
        grid_round: The same with integer noise.
        update_round: The same where each silo's whole update is clipped and noised once.
        of_updates: The facts of that round, sound only: no paper claims anything for it.
        reads: Those of ``SPECIAL_KEYS`` that the algorithm reads.
    """
    by_mode = [ByMode(facts, facts) if isinstance(facts, Mechanism) else facts for facts in variants]
    mechanisms = tuple(
        replace(facts, algorithm=name, mode=mode)
        for variant in by_mode
        for mode, facts in (
            (AccountingMode.AS_PUBLISHED, variant.as_published),
            (AccountingMode.SOUND, variant.sound),
        )
    )
    if of_updates is not None:
        of_updates = replace(of_updates, algorithm=name, mode=AccountingMode.SOUND)
    return Algorithm(
        name, label, mechanisms, local_step, server_round, grid_round, update_round, of_updates, reads
    )
