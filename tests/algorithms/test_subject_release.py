"""SubjectRelease, ULDP-FL and SubjectSampling: one round against a float64 loop, coins, and what is not finite."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from algorithms import tiny
from algorithms.reference import Reference
from algorithms.tiny import LINEAR, ROUND, SEED, after_a_round
from subjectdp.config.sections import OptimizerConfig
from subjectdp.data.partition import Partition
from subjectdp.plan.plan import AccountingMode, BudgetWeights, PrivacyPlan, SubjectSettings, TrustModel
from subjectdp.sampling import subjects_of_round

LOCAL, SECURE, CENTRAL = TrustModel.LOCAL, TrustModel.SECURE_AGGREGATION, TrustModel.CENTRAL
SOUND = AccountingMode.SOUND
RULES = list(BudgetWeights)


def release_plan(trust: TrustModel = LOCAL, updates: bool = False, noise: float = 0, **subject: object) -> PrivacyPlan:
    settings = SubjectSettings(**subject)  # type: ignore[arg-type]
    plan = tiny.tiny_plan("uldp_fl" if updates else "subject_release", None, SOUND, 1, noise, settings)
    return replace(plan, mechanism=replace(plan.mechanism, trust=trust))


def sampling_plan(noise: float = 0.0, steps: int = 2, **subject: object) -> PrivacyPlan:
    settings = SubjectSettings(**subject)  # type: ignore[arg-type]
    return tiny.tiny_plan("subject_sampling", None, SOUND, steps, noise, settings)


class SubjectReference(Reference):
    """Float64: subjects one by one, their budgets from the definitions of the rules."""

    def __init__(self, rule: BudgetWeights, trust: TrustModel, steps: int = 1) -> None:
        super().__init__()
        self.rule, self.squared, self.steps = rule, trust is LOCAL, steps
        silos, subjects, items = self.partition.groups()
        self.counts = np.zeros((self.partition.silos, self.partition.subjects))
        self.counts[silos, subjects] = items

    def weight(self, subject: int, silo: int) -> float:
        own = self.counts[:, subject]
        held = own > 0
        rules = {BudgetWeights.UNIFORM: held * 1.0, BudgetWeights.PROPORTIONAL: own, BudgetWeights.FIXED: np.ones(3)}
        shares = rules[self.rule]
        total = math.sqrt((shares**2).sum()) if self.squared else shares.sum()
        return float(shares[silo] / total)

    def mean_gradient(self, theta: Tensor, addresses: list[int]) -> Tensor:
        return torch.stack([self.gradient(theta, a) for a in addresses]).mean(0)

    def contribution(self, addresses: list[int], updates: bool) -> Tensor:
        if not updates:
            return self.mean_gradient(self.start, addresses)
        theta = self.start.clone()
        for _ in range(self.steps):
            theta = theta - tiny.RATE * self.mean_gradient(theta, addresses)
        return theta - self.start

    def total(self, updates: bool, taking_part: NDArray[np.bool_]) -> Tensor:
        total = torch.zeros_like(self.start)
        for silo in range(3):
            items, owners = self.partition.silo(silo)
            for subject in np.unique(owners):
                if taking_part[subject]:
                    addresses = [int(a) for a in items[owners == subject]]
                    vector = self.contribution(addresses, updates)
                    bound = self.weight(int(subject), silo) * tiny.CLIP
                    total += vector * (bound / max(bound, float(vector.norm())))
        return total


@pytest.mark.slow
@pytest.mark.parametrize("trust", [LOCAL, SECURE])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("updates", [False, True])
def test_a_round_is_the_float64_loop(rule: BudgetWeights, trust: TrustModel, updates: bool) -> None:
    steps = 3 if updates else 1
    plan = release_plan(trust, updates, weights=rule, local_steps=steps)
    reference = SubjectReference(rule, trust, steps)
    total = reference.total(updates, np.ones(51, bool)) / (3 * 4.5)
    expected = reference.start + (total if updates else -tiny.RATE * total)
    assert torch.allclose(after_a_round(plan), expected, atol=3e-6)
    assert float((expected - reference.start).norm()) > 0.01


@pytest.mark.parametrize("optimiser", ["momentum", "adam"])
@pytest.mark.parametrize("capacity", [1, 4, 64])
def test_subjects_that_train_at_once_are_those_that_train_alone(capacity: int, optimiser: str) -> None:
    """Whatever goes through the model at once: a row of parameters and an optimiser's state for each subject."""
    plan = release_plan(updates=True, local_steps=3)
    found = []
    for size in (1, capacity):
        run = tiny.tiny_run(plan)
        run.change(optimiser=OptimizerConfig.model_validate({"name": optimiser, "learning_rate": tiny.RATE}))
        run.federation.engine.physical_batch_size = size
        step = run.step(ROUND, 0, 0)
        found.append(step.subject_update_sum(step.sample_batch()))
    assert torch.allclose(found[0], found[1], atol=2e-6)
    assert float(found[0].norm()) > 0.1


def test_only_those_who_take_part_contribute() -> None:
    plan = release_plan(sampling_probability=0.5)
    chosen = subjects_of_round(51, 0.5, SEED, ROUND)
    assert 0 < chosen[:7].sum() < 7, "the draw of this seed must take some and leave some"
    total = SubjectReference(BudgetWeights.UNIFORM, LOCAL).total(False, chosen) / (3 * 4.5)
    expected = Reference().start - tiny.RATE * total
    assert torch.allclose(after_a_round(plan), expected, atol=3e-6)


@pytest.mark.slow
def test_rules_and_trust_make_a_difference() -> None:
    """Guards the comparison: every combination moves the model in a way of its own."""
    found = [after_a_round(release_plan(trust, weights=rule)) for trust in (LOCAL, SECURE) for rule in RULES]
    for i, first in enumerate(found):
        for second in found[:i]:
            assert float((first - second).norm()) > 1e-4
    assert torch.equal(after_a_round(release_plan(SECURE)), after_a_round(release_plan(CENTRAL)))


@pytest.mark.parametrize("items", [None, 1, 2])
def test_subject_sampling_is_dp_sgd_over_subjects(items: int | None) -> None:
    """Every local step: the drawn subjects' means, clipped to C, over the public divisor; then the mean of models."""
    plan = sampling_plan(steps=3, sampling_probability=0.6, items=items)
    run = tiny.tiny_run(plan)
    reference, models = SubjectReference(BudgetWeights.UNIFORM, LOCAL), []
    for silo in range(3):
        theta = reference.start.clone()
        for step in range(3):
            batch = run.step(ROUND, silo, step).sample_batch()
            total = torch.zeros_like(theta)
            for subject in set(batch.owners.tolist()):
                own = [int(a) for a, o in zip(batch.addresses, batch.owners, strict=True) if o == subject]
                assert items is None or len(own) <= items
                total += reference.clip(reference.mean_gradient(theta, own))
            theta = theta - tiny.RATE * total / 4.5
        models.append(theta)
    assert torch.allclose(after_a_round(plan), torch.stack(models).mean(0), atol=3e-6)


def test_coins_are_shared_by_all_silos_of_a_release_and_by_no_others() -> None:
    """A subject of a release is drawn at all of its silos or at none; elsewhere each silo and step draws anew."""

    def drawn(plan: PrivacyPlan, round_: int, step: int = 0) -> list[set[int]]:
        run = tiny.tiny_run(plan)
        batches = [run.step(round_, silo, step).sample_batch() for silo in range(3)]
        return [set(batch.owners.tolist()) for batch in batches]

    everywhere = [set(tiny.tiny_partition().silo(silo)[1].tolist()) for silo in range(3)]
    differing = 0
    for round_ in range(1, 20):
        found = drawn(release_plan(sampling_probability=0.5), round_)
        union = set().union(*found)
        assert found == [held & union for held in everywhere]
        own = drawn(sampling_plan(sampling_probability=0.5), round_)
        union = set().union(*own)
        differing += own != [held & union for held in everywhere]
        assert own != drawn(sampling_plan(sampling_probability=0.5), round_, 1)
    assert differing > 10


def test_rows_tell_noise_and_clipping_of_each_release() -> None:
    run = tiny.tiny_run(release_plan(noise=1.5))
    run.run_round(ROUND)
    rows = run.rows
    assert [(row.silo, row.step, row.noise_multiplier) for row in rows] == [(silo, 0, 1.5) for silo in range(3)]
    assert [row.items for row in rows] == list(tiny.ITEMS)
    assert all(0.0 < row.clipped_fraction <= 1.0 for row in rows)


def test_sums_of_subjects_with_items_that_are_not_numbers_stay_bounded() -> None:
    """Neither a gradient nor an update that is not finite contributes, and the others' do."""
    for updates in (False, True):
        plan = release_plan(LOCAL, updates)
        run = tiny.tiny_run(plan, model=LINEAR)
        items, owners = run.federation.partition.silo(0)
        bad = int(owners[0])
        run.federation.data.inputs[items[0]] = math.inf  # type: ignore[attr-defined]
        step = run.step(ROUND, 0, 0)
        batch = step.sample_batch()
        total = step.subject_update_sum(batch) if updates else step.subject_sum(batch)
        assert torch.isfinite(total).all()
        assert float(total.norm()) > 0
        bounds = run.federation.subject_clip_norms(0, np.unique(owners[owners != bad]))
        assert float(total.norm()) <= float(bounds.sum()) * (1 + 1e-5)


def test_clip_norms_take_memory_for_who_is_where_alone() -> None:
    """A table of silos and people of 50 MB, 560,000 people at 1,000 silos, took more than 13 GB and was killed."""
    silos, people = 200, 5000
    owners = np.arange(people).reshape(-1, silos).T.ravel()  # of silo 0, of silo 1, ...
    none = np.zeros(0, np.int32)
    counts = {"counts": {"subjects": people}}
    partition = Partition(owners, owners, np.arange(silos + 1) * (people // silos), none, none, counts)
    run = tiny.tiny_run(release_plan())
    federation = replace(run.federation, partition=partition)
    tracemalloc.start()
    found = federation.subject_clip_norms(3, owners[75:80])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == pytest.approx([tiny.CLIP] * 5)
    assert most < 2e6 < silos * people * 4


def test_a_round_leaves_the_engine_at_the_new_model() -> None:
    run = tiny.tiny_run(release_plan(updates=True, local_steps=2))
    run.run_round(ROUND)
    assert torch.equal(run.federation.engine.flat.vector, run.theta)
    before = run.theta.clone()
    run.result(2, 0)
    assert torch.equal(before, run.theta)
