"""No neighbour moves what an algorithm releases, before the noise, by more than its plan states.

Every trial is a random federation and a neighbour of it: without a subject, without an item, or with another silo.
The algorithm's own local step runs on both, with every item sampled: given the sampler's coins, the neighbour's
mini-batch is the mini-batch without the unit, so that a whole silo stands for what was drawn. The stated
bound is the one that the accountant takes for the unit's items in the mini-batch
(``unit_shift`` at sampling probability 1).
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from algorithms import tiny
from subjectdp.accounting.events import unit_shift
from subjectdp.config.sections import OptimizerConfig
from subjectdp.data.partition import Partition
from subjectdp.errors import PrivacyError
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.plan.plan import AccountingMode, Clipping, NoiseDistribution, PrivacyPlan, PrivacyUnit, SamplingMethod
from subjectdp.training.integer_noise import rounded_sum

PUBLISHED, SOUND = AccountingMode.AS_PUBLISHED, AccountingMode.SOUND
ITEM, SUBJECT, SILO = PrivacyUnit.ITEM, PrivacyUnit.SUBJECT, PrivacyUnit.SILO
NEIGHBOURS = 520  # of each kind: more than a thousand an algorithm
SILOS, SUBJECTS, MOST = 3, 4, 4  # a subject has up to MOST items at a silo
ROUNDING = 1 + 1e-5


class World:
    """A random federation of a plan, whose items can be taken away."""

    def __init__(self, plan: PrivacyPlan, seed: int) -> None:
        generator = np.random.default_rng(seed)
        counts = generator.integers(0, MOST + 1, (SILOS, SUBJECTS))
        counts[:, 0] = np.maximum(counts[:, 0], 1)
        self.counts = counts
        self.silos = np.repeat(np.arange(SILOS), counts.sum(axis=1))
        self.owners = np.concatenate([np.repeat(np.arange(SUBJECTS), row) for row in counts])
        total = len(self.owners)
        draws = torch.Generator().manual_seed(seed)  # torch.manual_seed takes as long as a local step
        # Gradients from far below to far above the clip norm.
        scale = torch.from_numpy(10.0 ** generator.uniform(-1.5, 1.0, (total, 1))).float()
        inputs = torch.randn(total, tiny.FEATURES, generator=draws) * scale
        labels = torch.randint(0, tiny.CLASSES, (total,), generator=draws)
        data = tiny.TinyData(inputs, labels)
        self.run = tiny.tiny_run(plan, self.partition(np.ones(total, bool)), LINEAR, run_id=None)
        self.run.change(data=data)
        self.run.federation.engine.physical_batch_size = 64
        self.run.theta.copy_(torch.randn(self.run.theta.shape, generator=draws) * 0.5)
        self.run.federation.engine.flat.load(self.run.theta)
        self.plan = plan
        self.everything = np.ones(total, bool)

    def partition(self, keep: NDArray[np.bool_]) -> Partition:
        sizes = np.bincount(self.silos[keep], minlength=SILOS)
        empty = np.zeros(0, np.int32)
        return Partition(
            np.flatnonzero(keep).astype(np.int32),
            self.owners[keep].astype(np.int32),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            empty,
            empty,
            {"counts": {"subjects": SUBJECTS}},
        )

    def rate(self, learning_rate: float) -> None:
        """Another learning rate of the silos."""
        self.run.change(optimiser=OptimizerConfig(learning_rate=learning_rate))

    def holding(self, keep: NDArray[np.bool_]) -> tiny.TinyRun:
        """The run on these items; everything is sampled."""
        partition = self.partition(keep)
        sizes = np.diff(partition.train_offsets).tolist()
        silos = (replace(s, items=n, sampling_probability=1.0) for s, n in zip(self.plan.silos, sizes, strict=True))
        self.run.change(partition=partition, plan=replace(self.plan, silos=tuple(silos)))
        return self.run

    def un_noised_sum(self, keep: NDArray[np.bool_], silo: int) -> Tensor:
        """The local step's result times what it was divided by."""
        run = self.holding(keep)
        step = run.step(1, silo, 0)
        divisor = step.divisor(step.sample_batch())
        return run.federation.rule.local_step(step) * divisor

    def stated(self, unit: PrivacyUnit, items: int) -> float:
        """What the accountant takes for a unit with ``items`` items in the mini-batch, in clip norms."""
        clipping = self.plan.mechanism.clipping
        k = items if unit is SUBJECT else MOST  # an item's subject may have others
        return tiny.CLIP * largest_shift(clipping, unit, k, len(self.owners))


@cache
def largest_shift(clipping: Clipping, unit: PrivacyUnit, items: int, at_silo: int) -> float:
    """``unit_shift`` of a unit whose items are all sampled; asked for thousands of times with few arguments."""
    return unit_shift(clipping, unit, SamplingMethod.POISSON, 1.0, items, at_silo).sensitivities[-1]


LINEAR = nn.Linear(tiny.FEATURES, tiny.CLASSES)


def worlds(plan: PrivacyPlan) -> Iterator[World]:
    seed = 0
    while True:
        seed += 1
        yield World(plan, seed)


def moves_of_subjects(plan: PrivacyPlan) -> Iterator[tuple[float, float]]:
    """(moved, stated) for every silo of every subject that is taken away everywhere."""
    for world in worlds(plan):
        before = [world.un_noised_sum(world.everything, silo) for silo in range(SILOS)]
        for subject in range(SUBJECTS):
            without = world.owners != subject
            for silo in np.flatnonzero(world.counts[:, subject]):
                after = world.un_noised_sum(without, int(silo))
                items = int(world.counts[silo, subject])
                yield float((before[silo] - after).norm()), world.stated(SUBJECT, items)


def moves_of_items(plan: PrivacyPlan) -> Iterator[tuple[float, float]]:
    for world in worlds(plan):
        before = [world.un_noised_sum(world.everything, silo) for silo in range(SILOS)]
        for item in range(0, len(world.owners), 2):
            without = world.everything.copy()
            without[item] = False
            silo = int(world.silos[item])
            after = world.un_noised_sum(without, silo)
            yield float((before[silo] - after).norm()), world.stated(ITEM, 1)


def check(moves: Iterator[tuple[float, float]], trials: int = NEIGHBOURS, tight: float = 0.95) -> None:
    """None above its bound; some near it, or the trials would prove little."""
    found = np.array([next(moves) for _ in range(trials)])
    ratios = found[:, 0] / found[:, 1]
    assert ratios.max() <= ROUNDING
    assert ratios.max() > tight


def test_one_subject_can_turn_user_ldps_release_around() -> None:
    """Two classes, one input: the subject's items outnumber the rest, whose gradient is the opposite one: 2C."""
    plan = tiny.tiny_plan("user_ldp", None, PUBLISHED, steps=1)
    world = World(plan, 1)
    world.owners = np.where(np.arange(len(world.owners)) % 3 == 0, 1, 0)
    data = world.run.federation.data
    inputs = torch.ones_like(data.inputs) * 5  # type: ignore[attr-defined]
    world.run.change(data=tiny.TinyData(inputs, torch.from_numpy(world.owners)))
    bias_only = torch.full_like(world.run.theta, -50.0)
    weights = world.run.federation.engine.flat.views(bias_only)
    weights["weight"].zero_()
    weights["bias"][:2] = 0.0  # only classes 0 and 1 have a chance
    world.run.federation.engine.flat.load(bias_only)
    silo = int(np.argmax(np.bincount(world.silos)))
    moved = world.un_noised_sum(world.everything, silo) - world.un_noised_sum(world.owners != 0, silo)
    assert float(moved.norm()) == pytest.approx(2 * tiny.CLIP, rel=1e-4)


@pytest.mark.parametrize("clipping", [Clipping.PER_ITEM, Clipping.PER_ITEM_SUBJECT_MEAN])
def test_nothing_is_stated_for_a_silo_whose_items_add_up(clipping: Clipping) -> None:
    with pytest.raises(PrivacyError, match="Silo-level privacy"):
        unit_shift(clipping, SILO, SamplingMethod.POISSON, 0.1, 8, 100)


@pytest.mark.slow
def test_an_item_moves_the_sum_on_the_grid_by_no_more_than_the_rounded_bound() -> None:
    """Integer noise: the last item of a silo comes and goes, the others' roundings stay what they are."""
    plan = tiny.tiny_plan("joint_noise", None, PUBLISHED, steps=1, noise=1.0)
    changes = {"noise_distribution": NoiseDistribution.SKELLAM, "gradient_bits": 3}
    plan = replace(plan, settings=replace(plan.settings, **changes))  # type: ignore[arg-type]
    ratios: list[float] = []
    for world in worlds(plan):
        for silo in range(SILOS):
            keep = world.silos == silo
            sums = []
            for items in (keep.sum(), keep.sum() - 1):
                part = keep & (np.cumsum(keep) <= items)
                run = world.holding(part)
                step = run.step(1, silo, 0)
                grid = run.federation.integer_noise.grid
                generator = numpy_generator(3, Purpose.DITHER, silo)
                batch = step.sample_batch()
                total, _ = rounded_sum(run.federation.engine, batch, grid, tiny.CLIP, generator)
                sums.append(total.double())
            ratios.append(float((sums[0] - sums[1]).norm()) / grid.l2)
        if len(ratios) >= 300:
            break
    assert max(ratios) <= 1.0
    assert max(ratios) > 0.5
