"""The worst-case subject of ``auditing.vector`` for algorithms that sample whole subjects.

Every item of the canary has a gradient (or update) along one axis on which all other subjects are 0, much longer than
its clip norm, at every silo that may hold it. If the plan shares a budget over silos, one coin decides for all silos;
otherwise each silo and step has its own. The attacker projects a round's noisy sums onto the canary's
contribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
from torch import Tensor

from subjectdp.algorithms.base import Algorithm
from subjectdp.auditing.audited_unit import check_auditable, held_silos
from subjectdp.auditing.vector import VectorBatch, VectorFederation, VectorStep, World
from subjectdp.noise import gaussian as noise
from subjectdp.noise import subject_weights
from subjectdp.noise.torch_keys import keyed_generator
from subjectdp.plan.plan import PrivacyPlan, TrustModel


class CanaryBatch:
    """A mini-batch in each run: ``canary`` (runs,) is 1 if the canary is in it, else 0."""

    largest_group = 1  # unused: the noise of these plans does not depend on it

    def __init__(self, canary: Tensor) -> None:
        self.canary = canary


class SubjectStep(VectorStep):
    """A local step whose mini-batches are whole subjects; ``weight`` is the canary's clip norm over C."""

    def __init__(self, federation: SubjectFederation, round_: int, silo: int, step: int) -> None:
        self._federation, self._round, self._step = federation, round_, step
        self.weight = federation.weights[silo] if silo >= 0 else 0.0
        super().__init__(federation.plan, silo, self._coins, self._noisy)

    def subject_sum(self, batch: VectorBatch) -> Tensor:
        """The canary's clipped mean gradient, or 0 if it is not drawn."""
        return batch.canary * (self.weight * self._clip_norm)

    def subject_update_sum(self, batch: VectorBatch) -> Tensor:
        """The canary's clipped update. Its norm is that of the mean gradient: unclipped, both exceed the clip norm."""
        return self.subject_sum(batch)

    def _coins(self) -> VectorBatch:
        return cast(VectorBatch, CanaryBatch(self._federation.coins(self._round, self.silo, self._step)))

    def _noisy(self, total: Tensor, std: float) -> Tensor:
        key = self._federation.world.key("noise", self._round, self.silo, self._step)
        return total + noise.add_gaussian(torch.zeros_like(total), std, key)


class SubjectFederation(VectorFederation):
    """All rounds of a plan that samples subjects, in every run of a world."""

    def __init__(self, algorithm: Algorithm, plan: PrivacyPlan, world: World) -> None:
        check_auditable(plan)
        self.rule, self.plan, self.world = algorithm.round_rule(plan), plan, world
        counts = (np.arange(len(plan.silos)) < held_silos(plan)).astype(np.int64)[:, None]
        self.weights = counts[:, 0].astype(float).tolist()
        if plan.mechanism.shared_budget:
            rule = plan.settings.subject.weights, plan.mechanism.trust, plan.silos_per_subject
            weights = subject_weights.budget_weights(counts, *rule)
            self.weights = weights[:, 0].tolist()

    def coins(self, round_: int, silo: int, step: int) -> Tensor:
        """(runs,) 1 if the canary takes part, else 0."""
        if not self.world.present:
            return torch.zeros(self.world.runs)
        shared = self.plan.mechanism.shared_budget
        place = (round_,) if shared else (round_, silo, step)
        generator = keyed_generator(self.world.key("coins", *place))
        probability = self.plan.silos[max(silo, 0)].sampling_probability
        return (torch.rand(self.world.runs, generator=generator) < probability).float()

    def step(self, round_: int, silo: int, step: int) -> SubjectStep:
        return SubjectStep(self, round_, silo, step)

    def releases(self) -> Iterator[tuple[int, Tensor]]:
        """As in the base class. With a shared budget: one release a round."""
        for round_ in range(1, self.plan.rounds + 1):
            if self.plan.mechanism.shared_budget:
                yield 0, self._projected(round_)
            else:
                yield from self._local_releases(round_)

    def _projected(self, round_: int) -> Tensor:
        """The projection of a round's noisy sums onto the canary's contribution; its noise is that of one sum."""
        clip_norm = self.plan.settings.clip_norm
        if self.plan.mechanism.trust is TrustModel.LOCAL:
            total = torch.zeros(self.world.runs)
            for silo, weight in enumerate(self.weights):
                if weight > 0:
                    total += weight * self._silo_release(round_, silo) / clip_norm
            return total
        divisor = sum(silo.divisor for silo in self.plan.silos)
        sign = -1.0 if self.rule.of_updates else 1.0
        return sign * self.aggregated(round_) * (divisor / clip_norm)

    def _silo_release(self, round_: int, silo: int) -> Tensor:
        return self.rule.local_step(self.step(round_, silo, 0))


def federation_of(algorithm: Algorithm, plan: PrivacyPlan, world: World) -> VectorFederation:
    """The vectorised federation for the plan's sampler."""
    federation = SubjectFederation if plan.mechanism.samples_subjects else VectorFederation
    return federation(algorithm, plan, world)
