"""Executes the algorithms' own pseudo-code for many independent runs at once, on a worst-case subject.

In the worst case the clipped gradient of every item of the canary subject is +C along one axis on which all other
items are 0 (if a whole mini-batch or update is clipped, the canary turns it from −C to +C). Along that axis a vector
of P parameters is one number, so a tensor holds one number for each of many runs. :class:`VectorStep` and
:class:`VectorServer` implement the algorithms' protocols on such tensors; the local step and the aggregation are
those of training. A test checks that they equal the training loop's own step for the same mini-batches and noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from subjectdp.algorithms.base import Algorithm, SiloTask
from subjectdp.auditing.audited_unit import (
    canary_items,
    check_auditable,
    claimed_unit,
    held_silos,
    public_divisor,
)
from subjectdp.auditing.minibatch_distribution import MinibatchDistribution
from subjectdp.errors import PrivacyError
from subjectdp.noise import gaussian as noise
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.noise.torch_keys import keyed_generator
from subjectdp.plan.plan import DivisorRule, NoiseRule, PrivacyPlan, PrivacyUnit, TrustModel

SERVER = -1
UPDATE = -1  # the "step" of the noise on a silo's whole update
# Unclipped gradients in units of C, for algorithms that clip a whole mini-batch or update: one mini-batch with the
# canary outweighs a million without it, and one without it is still much longer than C.
_CANARY, _OTHERS = 1e12, -1e6


@dataclass(frozen=True)
class World:
    """One block of runs of one of the two neighbouring federations; the name keys its randomness."""

    seed: int
    name: str
    present: bool
    runs: int
    block: int = 0

    def key(self, *path: int | str) -> bytes:
        """The key of one draw."""
        return key_bytes(self.seed, Purpose.AUDIT, self.name, int(self.present), self.block, *path)


class VectorBatch:
    """A mini-batch in each run; quantities are drawn when a step first reads them."""

    def __init__(self, batches: MinibatchDistribution, runs: int, generator: torch.Generator) -> None:
        self.batches, self.runs, self._generator = batches, runs, generator
        self.canary = batches.canary_count(runs, generator)

    inputs: Tensor
    labels: Tensor

    @property
    def items(self) -> int:
        """1: the scale of a vector that is clipped afterwards does not matter (see ``VectorStep.gradient_sum``)."""
        return 1

    @cached_property
    def subjects(self) -> Tensor:
        """(runs,) number of distinct subjects."""
        return self.batches.other_subjects(self.runs, self._generator) + (self.canary > 0)

    @cached_property
    def largest_group(self) -> Tensor:
        """(runs,) the most items of one subject."""
        return torch.maximum(self.batches.largest_other_group(self.runs, self._generator), self.canary.long())

    @cached_property
    def others_present(self) -> Tensor:
        """(runs,) bool: whether an item of another subject is in the mini-batch."""
        return self.batches.others_present(self.runs, self._generator)

    @property
    def group_sizes(self) -> Tensor:
        """(runs,) the canary's items in the mini-batch: the group size of each of its items."""
        return self.canary.clamp(min=1.0)


class VectorStep:
    """One local step in each run (``algorithms.protocols.LocalStep``); totals are (runs,), along the canary's axis."""

    def __init__(
        self,
        plan: PrivacyPlan,
        silo: int,
        batch: Callable[[], VectorBatch],
        normal: Callable[[Tensor, float], Tensor],
    ) -> None:
        self.plan, self.silo, self._batch, self._normal = plan, silo, batch, normal
        self._clip_norm = plan.settings.clip_norm

    def sample_batch(self) -> VectorBatch:
        return self._batch()

    def gradient_sum(self, batch: VectorBatch) -> Tensor:
        """Unclipped sum: the canary's items outweigh all others, which point the other way."""
        others = torch.where(batch.others_present, _OTHERS, 0.0)
        return torch.where(batch.canary > 0, _CANARY, others) * self._clip_norm

    def clipped_sum(self, batch: VectorBatch, weights: Tensor | None = None) -> Tensor:
        total = batch.canary * self._clip_norm
        return total if weights is None else total * weights

    def clip(self, vector: Tensor) -> Tensor:
        return vector.clamp(-self._clip_norm, self._clip_norm)

    def noise_multiplier(self, batch: VectorBatch) -> float | Tensor:
        if self.plan.mechanism.noise_rule is not NoiseRule.GROUP_SIZE_IN_BATCH:
            return self.plan.noise_multiplier(self.silo)
        return self._noise_table[batch.largest_group.clamp(min=1)]

    def add_noise(self, total: Tensor, noise_multiplier: float | Tensor) -> Tensor:
        if isinstance(noise_multiplier, Tensor):
            unit = self._normal(torch.zeros_like(total), 1.0)
            return total + noise_multiplier * self._clip_norm * unit
        return self._normal(total, noise_multiplier * self._clip_norm)

    def divisor(self, batch: VectorBatch) -> float | Tensor:
        if self.plan.mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS:
            return batch.subjects.clamp(min=1.0)
        return self.plan.silos[self.silo].divisor

    @cached_property
    def _noise_table(self) -> Tensor:
        return torch.tensor((float("nan"), *self.plan.group_noise_multipliers[self.silo]))


class VectorFederation:
    """All rounds of a plan in every run of a world, as the plan's trust model lets an observer see them."""

    def __init__(self, algorithm: Algorithm, plan: PrivacyPlan, world: World) -> None:
        check_auditable(plan)
        self.rule, self.plan, self.world = algorithm.round_rule(plan), plan, world
        self._sampler = keyed_generator(world.key("sampling"))
        held = held_silos(plan)
        items = canary_items(plan)
        sampling, replaced = plan.settings.sampling, claimed_unit(plan) is PrivacyUnit.SILO
        self._batches = [
            MinibatchDistribution(silo, sampling, items if index < held else 0, world.present, replaced)
            for index, silo in enumerate(plan.silos)
        ]

    def releases(self) -> Iterator[tuple[int, Tensor]]:
        """Yields each release that depends on the canary: the index of its likelihood ratio, and (runs,) in units of C.

        Under LOCAL trust these are all steps of the silos that may hold the canary (those of other silos are
        independent of it); otherwise the sum of each round. A data-dependent divisor is undone by its public
        expectation.
        """
        for round_ in range(1, self.plan.rounds + 1):
            if self.plan.mechanism.trust is TrustModel.LOCAL:
                yield from self._local_releases(round_)
            else:
                yield 0, self._summed_release(round_)

    def models(self) -> Iterator[tuple[int, Tensor]]:
        """What the server receives under LOCAL trust: for each round and silo the sum of the releases above."""
        for round_ in range(1, self.plan.rounds + 1):
            for silo in range(held_silos(self.plan)):
                scale = public_divisor(self.plan, silo) / self.plan.settings.clip_norm
                yield silo, self._silo_result(round_, silo) * -scale

    def step(self, round_: int, silo: int, step: int) -> VectorStep:
        """One local step of one silo."""

        def normal(total: Tensor, std: float) -> Tensor:
            return noise.add_gaussian(total, std, self.world.key("noise", round_, silo, step))

        def batch() -> VectorBatch:
            return VectorBatch(self._batches[silo], self.world.runs, self._sampler)

        return VectorStep(self.plan, silo, batch, normal)

    def aggregated(self, round_: int) -> Tensor:
        """The round's gradient as the observer of the sum sees it: θ before the round minus θ after it, at η = 1."""
        server = VectorServer(self, round_)
        self.rule.aggregate(server, (self._silo_result(round_, silo) for silo in range(server.silo_count)))
        return server.released()

    def _silo_result(self, round_: int, silo: int) -> Tensor:
        """What a silo gives to the server (see ``training.rounds.train_silo``), from a model at zero with η = 1."""
        if self.rule.silo_task is SiloTask.ONE_STEP:
            return self.rule.local_step(self.step(round_, silo, 0))
        model = torch.zeros(self.world.runs)
        for step in range(self.plan.silos[silo].steps_per_round):
            model -= self.rule.local_step(self.step(round_, silo, step))
        if self.rule.silo_task is SiloTask.NOISY_UPDATE:
            release = self.step(round_, silo, UPDATE)
            return release.add_noise(release.clip(model), self.plan.silos[silo].noise_multiplier)
        return model

    def _summed_release(self, round_: int) -> Tensor:
        silos = self.plan.silos
        scale = float(len(silos)) if self.rule.of_updates else sum(silo.divisor for silo in silos)
        return self.aggregated(round_) * (scale / self.plan.settings.clip_norm)

    def _local_releases(self, round_: int) -> Iterator[tuple[int, Tensor]]:
        for silo in range(held_silos(self.plan)):
            scale = public_divisor(self.plan, silo) / self.plan.settings.clip_norm
            for step in range(self.plan.silos[silo].steps_per_round):
                release = self.rule.local_step(self.step(round_, silo, step))
                yield silo, release * scale


class VectorServer:
    """The server of one round in each run (``algorithms.protocols.Server``), from a model at zero with η = 1."""

    def __init__(self, federation: VectorFederation, round_: int) -> None:
        self._federation, self._round = federation, round_
        self.silo_count = len(federation.plan.silos)
        self.model = torch.zeros(federation.world.runs)
        self._released: Tensor | None = None

    @property
    def divisor(self) -> float:
        return sum(silo.divisor for silo in self._federation.plan.silos)

    def released(self) -> Tensor:
        """The round's gradient as an observer of the sum sees it."""
        if self._released is None:
            raise PrivacyError("The server's round released nothing.")
        return self._released

    def add_noise(self, total: Tensor) -> Tensor:
        step = self._federation.step(self._round, SERVER, 0)
        return step.add_noise(total, self._federation.plan.silos[0].noise_multiplier)

    def set_model(self, model: Tensor) -> None:
        self._released = self.model - model

    def descend(self, gradient: Tensor) -> None:
        self._released = gradient
