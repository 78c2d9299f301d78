"""Several views of an item: every algorithm's round against a float64 loop over subjects, items and views.

The loops of the rounds without views (test_rules.py, test_subject_release.py) are taken, with the gradient of an item
written out as the mean over its views. What neighbours move stays what it is without views.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from algorithms import tiny
from algorithms.test_rules import CASES as RULES
from algorithms.test_rules import PUBLISHED, ROUND, SEED, SOUND, Reference
from algorithms.test_sensitivity import check, moves_of_items, moves_of_subjects
from algorithms.test_subject_release import (
    LOCAL,
    SECURE,
    SubjectReference,
    after_a_round,
    moves,
    release_plan,
    sampling_plan,
)
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.plan.plan import AccountingMode, NoiseDistribution, PrivacyPlan
from subjectdp.plan.subject_settings import BudgetWeights
from subjectdp.training.steps.augmented import clipped_items
from subjectdp.training.steps.integer_noise import Rounding, rounded_sum

VIEWS = 3
UNIFORM = BudgetWeights.UNIFORM
REACHED = tiny.CLIP / (1 + 2.0**-18)  # the engine's room for rounding


class ViewsReference(Reference):
    """The gradient of an item is the mean over its views."""

    def gradient(self, theta: Tensor, address: int) -> Tensor:
        plain = self.data.inputs.clone()
        found = []
        for number in range(VIEWS):
            self.data.inputs[address] = tiny.augmented_copy(plain[address], number)
            found.append(super().gradient(theta, address))
            self.data.inputs.copy_(plain)
        return torch.stack(found).mean(0)


def clipped(gradient: Tensor) -> Tensor:
    return gradient * min(1.0, REACHED / float(gradient.norm()))


class SubjectViewsReference(ViewsReference, SubjectReference):
    """The same for algorithms that clip subjects."""


def run_of(plan: PrivacyPlan, at_once: int = 4) -> tiny.TinyRun:
    run = tiny.tiny_run(tiny.with_copies(plan, VIEWS), seed=SEED)
    run.federation.engine.physical_batch_size = at_once
    return run


# --- one round -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [2, 64])
@pytest.mark.parametrize(("name", "variant", "mode", "rule"), RULES)
def test_a_round_is_the_loop_over_items_and_views(
    name: str, variant: str | None, mode: AccountingMode, rule: str, at_once: int
) -> None:
    run = run_of(tiny.tiny_plan(name, variant, mode, 2), at_once)
    run.run_round(ROUND)
    reference = ViewsReference(2)
    expected = reference.averaged(rule)
    assert torch.allclose(run.theta.double(), expected, atol=3e-6)
    assert float((expected - reference.start).norm()) > 0.01
    assert float((expected - Reference(2).averaged(rule)).norm()) > 0.01, "views must matter"


@pytest.mark.parametrize("mode", [PUBLISHED, SOUND])
def test_a_central_round_is_the_loop_over_items_and_views(mode: AccountingMode) -> None:
    run = run_of(tiny.tiny_plan("central_sub_dp", "v0", mode))
    run.run_round(ROUND)
    assert torch.allclose(run.theta.double(), ViewsReference(1).central(), atol=3e-6)


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [2, 16, 512])
@pytest.mark.parametrize("trust", [LOCAL, SECURE])
@pytest.mark.parametrize("updates", [False, True])
def test_a_release_is_the_loop_over_subjects_items_and_views(
    trust: object, updates: bool, at_once: int
) -> None:
    steps = 3 if updates else 1
    run = run_of(release_plan(trust, updates, local_steps=steps), at_once)  # type: ignore[arg-type]
    run.run_round(ROUND)
    reference = SubjectViewsReference(UNIFORM, trust, steps)  # type: ignore[arg-type]
    total = reference.total(updates, np.ones(51, bool)) / (3 * 4.5)
    expected = reference.start + (total if updates else -tiny.RATE * total)
    assert torch.allclose(run.theta.double(), expected, atol=3e-6)
    without = after_a_round(release_plan(trust, updates, local_steps=steps))  # type: ignore[arg-type]
    assert float((expected - without).norm()) > 0.003, "views must matter"


def test_sampled_subjects_are_the_loop_over_subjects_items_and_views() -> None:
    run = run_of(sampling_plan(steps=1, sampling_probability=0.6, items=2))
    reference = ViewsReference(1)
    for silo in range(3):
        step = run.step(ROUND, silo, 0)
        batch = step.sample_batch()
        expected = torch.zeros_like(reference.start)
        for subject in set(batch.owners.tolist()):
            own = [int(a) for a, o in zip(batch.addresses, batch.owners, strict=True) if o == subject]
            mean = torch.stack([reference.gradient(reference.start, a) for a in own]).mean(0)
            expected += clipped(mean)
        assert float((step.subject_sum(batch).double() - expected).abs().max()) < 1e-6


@pytest.mark.parametrize("weighted", [False, True])
def test_clipped_sums_and_norms_are_those_of_the_mean_over_views(weighted: bool) -> None:
    """Weights come after the norm, and an item of weight 0 is not there."""
    run = run_of(tiny.tiny_plan("local_item_dp", None, PUBLISHED))
    step, reference = run.step(ROUND, 0, 0), ViewsReference(1)
    batch = step.sample_batch()
    weights = torch.linspace(0, 1, batch.items) if weighted else torch.ones(batch.items)
    gradients = [reference.gradient(reference.start, int(a)) for a in batch.addresses]
    expected = sum(float(w) * clipped(g) for w, g in zip(weights, gradients, strict=True))
    given = weights if weighted else None
    total, norms = clipped_items(run.federation.engine, batch.inputs, batch.labels, VIEWS, tiny.CLIP, given)
    assert float((total.double() - expected).abs().max()) < 1e-6
    lengths = torch.stack([g.norm() for g in gradients])
    seen = weights > 0
    assert torch.allclose(norms.double()[seen], lengths[seen], atol=1e-6)
    assert seen.sum() >= 3 and (lengths > tiny.CLIP).any()


def test_everything_is_counted_in_items() -> None:
    """Rows of the log, group sizes and divisors are those without views."""
    plan = tiny.tiny_plan("higrad_avg_dp", "v3", PUBLISHED)
    rows = []
    for views in (1, VIEWS):
        run = tiny.tiny_run(tiny.with_copies(plan, views), seed=SEED)
        run.run_round(ROUND)
        rows.append([row[:4] for row in run.rows])
        batch = run.step(ROUND, 0, 0).sample_batch()
        assert len(batch.labels) == views * batch.items == views * len(batch.group_sizes)
    assert rows[0] == rows[1]


def test_an_empty_mini_batch_has_a_sum_of_zero() -> None:
    plan = sampling_plan(steps=1, sampling_probability=1e-9)
    for name in ("subject_sum", "clipped_sum", "gradient_sum"):
        step = run_of(plan).step(ROUND, 0, 0)
        batch = step.sample_batch()
        assert batch.items == 0
        assert not getattr(step, name)(batch).any()


# --- what neighbours move --------------------------------------------------------------------------------------------

MOVED = [
    ("local_item_dp", None, PUBLISHED, 0.95),
    ("user_ldp", None, PUBLISHED, 0.3),
    ("higrad_avg_dp", "v3", SOUND, 0.95),
    ("capped_item_dp", None, SOUND, 0.95),
    ("central_sub_dp", "v0", PUBLISHED, 0.95),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant", "mode", "tight"), MOVED)
def test_neither_a_subject_nor_an_item_moves_the_sum_by_more_than_without_views(
    name: str, variant: str | None, mode: AccountingMode, tight: float
) -> None:
    plan = tiny.with_copies(tiny.tiny_plan(name, variant, mode, steps=1), VIEWS)
    check(moves_of_subjects(plan), 120, tight=tight)
    check(moves_of_items(plan), 120, tight=tight)


@pytest.mark.slow
@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("trust", [LOCAL, SECURE])
def test_a_subject_moves_a_release_by_at_most_the_clip_norm(trust: object, updates: bool) -> None:
    plan = tiny.with_copies(release_plan(trust, updates), VIEWS)  # type: ignore[arg-type]
    check(moves(plan), 56, tight=0.95 if trust is LOCAL else 0.5)


def test_an_item_moves_the_sum_on_the_grid_by_one_items_bound() -> None:
    """Views are averaged before they are rounded: a silo of one item has one rounding."""
    plan = tiny.with_copies(tiny.tiny_plan("joint_noise", None, PUBLISHED, steps=1, noise=1.0), VIEWS)
    changes = {"noise_distribution": NoiseDistribution.SKELLAM, "gradient_bits": 12}
    plan = replace(plan, settings=replace(plan.settings, **changes))  # type: ignore[arg-type]
    run, reference = tiny.tiny_run(plan, seed=SEED), ViewsReference(1)
    batch = run.step(ROUND, 1, 0).sample_batch()
    grid = run.federation.integer_noise.grids[1]
    generator = numpy_generator(3, Purpose.DITHER, 1)
    total, clipped = rounded_sum(
        run.federation.engine, batch, Rounding(grid, tiny.CLIP, copies=VIEWS), generator
    )
    gradients = [reference.gradient(reference.start, int(a)) for a in batch.addresses]
    expected = torch.stack([reference.clip(g) for g in gradients]).sum(0)
    assert float((total * grid.step - expected).abs().max()) <= batch.items * grid.step * 1.01
    assert clipped == np.mean([float(g.norm()) > tiny.CLIP for g in gradients])
    assert batch.items > 2
