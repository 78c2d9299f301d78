"""Executes the algorithms' own pseudo-code for many independent runs at once, on a worst-case subject.

In the worst case the clipped gradient of every item of the canary subject is +C along one axis on which all other items
are 0 (if a whole mini-batch or update is clipped, the canary turns it from −C to +C). Along it a vector of P parameters
is one number, and a tensor holds one for each of many runs. :class:`VectorStep` and :class:`VectorServer` are the
algorithms' protocols on such tensors; a test checks that they equal the training loop's own step.

Runs with and without the canary, scored by :class:`LikelihoodRatio`, give a lower bound on ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from types import SimpleNamespace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from subjectdp.accounting.events import MixtureSteps, Shift
from subjectdp.accounting.sound import expected_subjects, noise_is_summed, releases, unit_losses
from subjectdp.algorithms.base import Algorithm, Factor, SiloTask
from subjectdp.errors import PrivacyError, expected
from subjectdp.noise import gaussian as noise
from subjectdp.noise import subject_weights
from subjectdp.noise.gaussian import keyed_generator
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.plan.plan import (
    Clipping,
    DivisorRule,
    NoiseDistribution,
    NoiseRule,
    PrivacyPlan,
    PrivacyUnit,
    SamplingMethod,
    SiloSchedule,
    TrustModel,
)

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
        return key_bytes(self.seed, Purpose.AUDIT, self.name, int(self.present), self.block, *path)


class VectorBatch:
    """A mini-batch in each run; quantities are drawn when a step first reads them."""

    inputs: Tensor
    labels: Tensor
    items = 1  # the scale of a vector that is clipped afterwards does not matter (see ``VectorStep.gradient_sum``)

    def __init__(self, law: MinibatchDistribution, runs: int, generator: torch.Generator) -> None:
        self._law, self._runs, self._generator = law, runs, generator
        self.canary = torch.zeros(runs) if law.canary_items == 0 else self._draw(law.canary_limits).float()
        """(runs,) the canary's items in the mini-batch, Binomial(k, q)."""

    def _draw(self, limits: Tensor) -> Tensor:
        return torch.bucketize(torch.rand(self._runs, generator=self._generator), limits, right=True)

    @cached_property
    def subjects(self) -> Tensor:
        """(runs,) number of distinct subjects (probabilities to within 2^-16)."""
        places = torch.randint(_TABLE, (self._runs,), generator=self._generator, dtype=torch.int32)
        return self._law.subject_quantiles.index_select(0, places) + (self.canary > 0)

    @cached_property
    def largest_group(self) -> Tensor:
        """(runs,) the most items of one subject."""
        return torch.maximum(self._draw(self._law.group_limits), self.canary.long())

    @cached_property
    def others_present(self) -> Tensor:
        """(runs,) bool: whether an item of another subject is in the mini-batch."""
        return torch.rand(self._runs, generator=self._generator) >= self._law.without_others

    @property
    def group_sizes(self) -> Tensor:
        """(runs,) the canary's items in the mini-batch: the group size of each of its items."""
        return self.canary.clamp(min=1.0)


class VectorStep:
    """One local step in each run (``algorithms.base.LocalStep``); totals are (runs,), along the canary's axis."""

    def __init__(
        self, plan: PrivacyPlan, silo: int, batch: Callable[[], VectorBatch], normal: Callable[[Tensor, float], Tensor]
    ) -> None:
        self.plan, self.silo, self._batch, self._normal = plan, silo, batch, normal
        self._clip_norm = plan.settings.clip_norm

    def sample_batch(self) -> VectorBatch:
        return self._batch()

    def gradient_sum(self, batch: VectorBatch) -> Tensor:
        """Unclipped sum: the canary's items outweigh all others, which point the other way."""
        others = torch.where(batch.others_present, _OTHERS, 0.0)
        return torch.where(batch.canary > 0, _CANARY, others) * self._clip_norm

    def clipped_sum(self, batch: VectorBatch, weights: Tensor | None = None, factor: Factor | None = None) -> Tensor:
        total = batch.canary * self._clip_norm  # whatever the factor: most of a gradient that is as long as you like
        return total if weights is None else total * weights

    def clip(self, vector: Tensor) -> Tensor:
        return vector.clamp(-self._clip_norm, self._clip_norm)

    def noise_multiplier(self, batch: VectorBatch) -> float | Tensor:
        if self.plan.mechanism.noise_rule is not NoiseRule.GROUP_SIZE_IN_BATCH:
            return self.plan.noise_multiplier(self.silo)
        table = torch.tensor((float("nan"), *self.plan.group_noise_multipliers[self.silo]))
        return table[batch.largest_group.clamp(min=1)]

    def add_noise(self, total: Tensor, noise_multiplier: float | Tensor) -> Tensor:
        if isinstance(noise_multiplier, Tensor):
            return total + noise_multiplier * self._clip_norm * self._normal(torch.zeros_like(total), 1.0)
        return self._normal(total, noise_multiplier * self._clip_norm)

    def divisor(self, batch: VectorBatch) -> float | Tensor:
        if self.plan.mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS:
            return batch.subjects.clamp(min=1.0)
        return self.plan.silos[self.silo].divisor


class VectorFederation:
    """All rounds of a plan in every run of a world, as the plan's trust model lets an observer see them."""

    def __init__(self, algorithm: Algorithm, plan: PrivacyPlan, world: World) -> None:
        check_auditable(plan)
        self.rule, self.plan, self.world = algorithm.round_rule(plan), plan, world
        self._sampler = keyed_generator(world.key("sampling"))
        held, items = unit_silos(plan), canary_items(plan)
        sampling, replaced = plan.settings.sampling, claimed_unit(plan) is PrivacyUnit.SILO
        self._batches = [
            MinibatchDistribution(silo, sampling, items if index < held else 0, world.present, replaced)
            for index, silo in enumerate(plan.silos)
        ]

    def releases(self) -> Iterator[tuple[int, Tensor]]:
        """Yields each release that depends on the canary: the index of its likelihood ratio, and (runs,) in units of C.

        Under LOCAL trust all steps of the silos that may hold the canary; otherwise the sum of each round. A
        data-dependent divisor is undone by its public expectation.
        """
        silos = self.plan.silos
        whole = float(len(silos)) if self.rule.of_updates else sum(silo.divisor for silo in silos)
        for round_ in range(1, self.plan.rounds + 1):
            if self.plan.mechanism.trust is TrustModel.LOCAL:
                yield from self._local_releases(round_)
            else:
                yield 0, self.aggregated(round_) * (whole / self.plan.settings.clip_norm)

    def models(self) -> Iterator[tuple[int, Tensor]]:
        """What the server receives under LOCAL trust: for each round and silo the sum of the releases above."""
        for round_ in range(1, self.plan.rounds + 1):
            for silo in range(unit_silos(self.plan)):
                scale = public_divisor(self.plan, silo) / self.plan.settings.clip_norm
                yield silo, self._silo_result(round_, silo) * -scale

    def step(self, round_: int, silo: int, step: int) -> VectorStep:
        key = self.world.key("noise", round_, silo, step)
        return VectorStep(
            self.plan,
            silo,
            lambda: VectorBatch(self._batches[silo], self.world.runs, self._sampler),
            lambda total, std: noise.add_gaussian(total, std, key),
        )

    def aggregated(self, round_: int) -> Tensor:
        """The round's gradient as the observer of the sum sees it: θ before the round minus θ after it, at η = 1."""
        server = VectorServer(self, round_)
        self.rule.aggregate(server, (self._silo_result(round_, silo) for silo in range(server.silo_count)))
        return server.released

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

    def _local_releases(self, round_: int) -> Iterator[tuple[int, Tensor]]:
        for silo in range(unit_silos(self.plan)):
            scale = public_divisor(self.plan, silo) / self.plan.settings.clip_norm
            for step in range(self.plan.silos[silo].steps_per_round):
                yield silo, self.rule.local_step(self.step(round_, silo, step)) * scale


class VectorServer:
    """The server of one round in each run (``algorithms.base.Server``), from a model at zero with η = 1."""

    def __init__(self, federation: VectorFederation, round_: int) -> None:
        self._step, self._silos = federation.step(round_, SERVER, 0), federation.plan.silos
        self.silo_count, self.divisor = len(self._silos), sum(silo.divisor for silo in self._silos)
        self.model = torch.zeros(federation.world.runs)
        self.released = self.model  # the round's gradient as an observer of the sum sees it

    def add_noise(self, total: Tensor) -> Tensor:
        return self._step.add_noise(total, self._silos[0].noise_multiplier)

    def set_model(self, model: Tensor) -> None:
        self.released = self.model - model

    def descend(self, gradient: Tensor) -> None:
        self.released = gradient


def check_auditable(plan: PrivacyPlan) -> None:
    """Raises PrivacyError for a plan that the vectorised worst case cannot run."""
    mechanism, settings = plan.mechanism, plan.settings
    summed = mechanism.trust is not TrustModel.LOCAL
    reasons = {
        "adds no noise": mechanism.noise_rule is NoiseRule.NONE,
        "adds integer noise": settings.noise_distribution is not NoiseDistribution.GAUSSIAN,
        "draws the silos of a round": settings.silos_per_round is not None,
        "fuses local steps": any(silo.fused_steps != 1 for silo in plan.silos),
        "noises each silo's average at the server": summed and mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH,
        "sums several local steps (see auditing.counterexample)": summed
        and any(releases(plan, silo) > 1 for silo in plan.silos),
    }
    for reason, holds in reasons.items():
        if holds:
            raise PrivacyError(f"{mechanism.algorithm} cannot be audited on a worst-case subject: it {reason}.")


def claimed_unit(plan: PrivacyPlan) -> PrivacyUnit:
    """The unit that the plan claims to protect; an item where it claims nothing."""
    return plan.mechanism.claimed_unit or PrivacyUnit.ITEM


def canary_items(plan: PrivacyPlan) -> int:
    """Items of the canary at a silo: the most that one unit may have there; for a silo, all of the first one's."""
    unit = claimed_unit(plan)
    if unit is PrivacyUnit.SILO:
        return plan.silos[0].items
    if unit is PrivacyUnit.ITEM:
        return 1
    return max(silo.max_items_per_subject for silo in plan.silos)


def unit_silos(plan: PrivacyPlan) -> int:
    """Number of silos that hold the canary (the first ones): as many as may hold one unit."""
    return plan.silos_per_subject if claimed_unit(plan) is PrivacyUnit.SUBJECT else 1


def public_divisor(plan: PrivacyPlan, silo: int) -> float:
    """What the observer multiplies a release by: the divisor, or its expectation if it depends on the data."""
    if plan.mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS:
        return expected_subjects(plan.silos[silo])
    return plan.silos[silo].divisor


_TABLE = 1 << 16  # resolution of the quantile table of the number of other subjects


class MinibatchDistribution:
    """One silo's mini-batches under Poisson sampling with ``schedule``'s probability.

    ``canary_items``: of the canary at this silo, 0 if it is absent. ``other_sizes``: items per subject -> number of
    other subjects of that size, the same with and without the canary (``replaced``: an absent canary's items are the
    others').
    """

    def __init__(
        self,
        schedule: SiloSchedule,
        method: SamplingMethod,
        canary_items: int,
        present: bool = True,
        replaced: bool = False,
    ) -> None:
        if method is not SamplingMethod.POISSON:
            raise expected("sampling of an audited plan", method.value, "poisson", PrivacyError)
        self.probability = schedule.sampling_probability
        self.canary_items = canary_items if present else 0
        self.other_items = schedule.items - (canary_items if present or not replaced else 0)
        subjects = max(1, schedule.subjects - int(canary_items > 0))
        small, larger = divmod(self.other_items, subjects)
        sizes = {small: subjects - larger, small + 1: larger}
        self.other_sizes = {size: count for size, count in sizes.items() if count > 0}

    @cached_property
    def canary_limits(self) -> Tensor:
        """From P(so many of the canary's items are in the mini-batch)."""
        return _limits(stats.binom.cdf(np.arange(self.canary_items), self.canary_items, self.probability))

    @cached_property
    def group_limits(self) -> Tensor:
        """From P(largest other group ≤ z) for z = 0, 1, ... below the largest size."""
        sizes = np.arange(max(self.other_sizes))
        logs = [count * stats.binom.logcdf(sizes, size, self.probability) for size, count in self.other_sizes.items()]
        return _limits(np.exp(np.sum(logs, axis=0)))

    @cached_property
    def subject_quantiles(self) -> Tensor:
        """From P(m other subjects are in the mini-batch) for m = 0, 1, ..."""
        total = np.ones(1)
        for size, count in self.other_sizes.items():
            inside = 1.0 - (1.0 - self.probability) ** size
            total = np.convolve(total, stats.binom.pmf(np.arange(count + 1), count, inside))
        middles = (np.arange(_TABLE) + 0.5) / _TABLE
        return torch.from_numpy(np.searchsorted(np.cumsum(total / total.sum()), middles).astype(np.float32))

    @property
    def without_others(self) -> float:
        """The probability that no other item is in the mini-batch."""
        return float(np.exp(self.other_items * np.log1p(-self.probability)))


def _limits(cumulative: NDArray[np.float64]) -> Tensor:
    """Upper ends of all but the last value, without those that a 24-bit uniform number cannot tell from 1."""
    return torch.from_numpy(np.asarray(cumulative[cumulative < 1.0 - 2.0**-24], dtype=np.float32))


class SubjectStep(VectorStep):
    """A local step whose mini-batches are whole subjects; ``weight`` is the canary's clip norm over C."""

    def __init__(self, federation: SubjectFederation, round_: int, silo: int, step: int) -> None:
        self.weight = federation.weights[silo] if silo >= 0 else 0.0
        key = federation.world.key("noise", round_, silo, step)
        super().__init__(
            federation.plan,
            silo,
            # ``canary`` (runs,) is 1 if it is drawn, else 0: all that these steps read
            lambda: cast(VectorBatch, SimpleNamespace(canary=federation.coins(round_, silo, step))),
            lambda total, std: total + noise.add_gaussian(torch.zeros_like(total), std, key),
        )

    def subject_sum(self, batch: VectorBatch) -> Tensor:
        """The canary's clipped mean gradient, or 0 if it is not drawn."""
        return batch.canary * (self.weight * self._clip_norm)

    def subject_update_sum(self, batch: VectorBatch) -> Tensor:
        """The canary's clipped update. Its norm is that of the mean gradient: unclipped, both exceed the clip norm."""
        return self.subject_sum(batch)


class SubjectFederation(VectorFederation):
    """All rounds of a plan that samples subjects, in every run of a world."""

    def __init__(self, algorithm: Algorithm, plan: PrivacyPlan, world: World) -> None:
        check_auditable(plan)
        self.rule, self.plan, self.world = algorithm.round_rule(plan), plan, world
        counts = (np.arange(len(plan.silos)) < unit_silos(plan)).astype(np.int64)[:, None]
        weights = counts.astype(float)
        if plan.mechanism.shared_budget:
            rule = plan.settings.subject.weights, plan.mechanism.trust, plan.silos_per_subject
            weights = subject_weights.budget_weights(counts, *rule)
        self.weights = weights[:, 0].tolist()

    def coins(self, round_: int, silo: int, step: int) -> Tensor:
        """(runs,) 1 if the canary takes part, else 0."""
        if not self.world.present:
            return torch.zeros(self.world.runs)
        place = (round_,) if self.plan.mechanism.shared_budget else (round_, silo, step)
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
                    total += weight * self.rule.local_step(self.step(round_, silo, 0)) / clip_norm
            return total
        divisor = sum(silo.divisor for silo in self.plan.silos)
        sign = -1.0 if self.rule.of_updates else 1.0
        return sign * self.aggregated(round_) * (divisor / clip_norm)


BLOCK = 1 << 14  # runs at once: their tensors stay in the processor's cache


def world_scores(
    audited: Algorithm, plan: PrivacyPlan, scores: Sequence[LikelihoodRatio], world: World, models: bool = False
) -> NDArray[np.float32]:
    """(runs,) the summed scores of every noisy step (``models``: of each round's models); a block of runs has its own
    key."""
    parts, kind = [], SubjectFederation if plan.mechanism.samples_subjects else VectorFederation
    for block, start in enumerate(range(0, world.runs, BLOCK)):
        runs = min(BLOCK, world.runs - start)
        with torch.no_grad():
            total = torch.zeros(runs)
            federation = kind(audited, plan, World(world.seed, world.name, world.present, runs, block))
            for score, release in federation.models() if models else federation.releases():
                total += scores[score](release)
        parts.append(total.numpy())
    return np.concatenate(parts)


_CELLS = 1 << 14
_SIGMAS = 9.0


class LikelihoodRatio:
    """log Σ_j p_j N(y; s_j, σ²) / N(y; 0, σ²), y + ``offset`` being the sum in units of C, as a step function."""

    def __init__(self, step: MixtureSteps, offset: float = 0.0) -> None:
        sigma = step.noise_multiplier
        if not sigma > 0:
            raise PrivacyError("Expected a mechanism with noise for a likelihood ratio, got none.")
        self._low = offset - _SIGMAS * sigma
        width = step.shift.sensitivities[-1] + 2 * _SIGMAS * sigma
        self._cells_a_unit = _CELLS / width
        y = (np.arange(_CELLS) + 0.5) / self._cells_a_unit - _SIGMAS * sigma
        shifts = np.asarray(step.shift.sensitivities)
        logs = np.log(step.shift.probabilities) + (y[:, None] * shifts - shifts**2 / 2) / sigma**2
        self.table = torch.from_numpy(np.logaddexp.reduce(logs, axis=1).astype(np.float32))

    def __call__(self, release: Tensor) -> Tensor:
        cells = ((release - self._low) * self._cells_a_unit).clamp_(0, _CELLS - 1).to(torch.int32)
        return self.table.index_select(0, cells)


def likelihood_ratios(
    plan: PrivacyPlan, unit: PrivacyUnit | None = None, silos: Sequence[int] | None = None, models: bool = False
) -> tuple[LikelihoodRatio, ...]:
    """The scores for the presence of a unit (None: the claimed one) in the releases of a plan.

    LOCAL trust: one for each of ``silos`` (None: those that may hold the unit), else one for the sums over silos.
    ``models``: the sum of a round's releases is scored, not each of them.
    """
    chosen = claimed_unit(plan) if unit is None else unit
    if noise_is_summed(plan):
        return (_score(plan, chosen, 1),)
    held = range(unit_silos(plan)) if silos is None else silos

    def alone(silo: int) -> LikelihoodRatio:
        """As if this silo were the only one."""
        tables = plan.group_noise_multipliers[silo : silo + 1]
        single = replace(plan, silos=(plan.silos[silo],), silos_per_subject=1, group_noise_multipliers=tables)
        return _score(single, chosen, plan.silos[silo].steps_per_round if models else 1)

    return tuple(map(alone, held))


def _score(plan: PrivacyPlan, unit: PrivacyUnit, summed: int) -> LikelihoodRatio:
    step = _sum_of(unit_losses(plan, unit, every_silo=True)[0][0], summed)
    # where the canary may reverse a clipped vector, each silo releases −C without it
    reversed_ = plan.mechanism.clipping in (Clipping.PER_BATCH, Clipping.PER_UPDATE)
    return _likelihood_ratio(step, -float(len(plan.silos) * summed) if reversed_ else 0.0)


@cache
def _sum_of(step: MixtureSteps, count: int) -> MixtureSteps:
    """The pair of the sum of ``count`` releases: noise of √count times σ, and the sum of the shifts."""
    plain = Shift(step.shift.sensitivities, step.shift.probabilities)  # a score, no bound: of a coin the atoms
    shift = reduce(Shift.convolve, [plain] * count)
    return replace(step, noise_multiplier=math.sqrt(count) * step.noise_multiplier, shift=shift)


_likelihood_ratio = cache(LikelihoodRatio)
