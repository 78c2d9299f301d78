"""Joint noise on whole updates: local steps without noise, one clipping and one noise a silo and round."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from algorithms import tiny
from algorithms.test_joint_noise import WIDE, variance_fits
from algorithms.test_rules import ROUND, SEED, Reference
from algorithms.test_sensitivity import World
from subjectdp.algorithms.joint_noise import ALGORITHM
from subjectdp.plan.plan import AccountingMode, PrivacyPlan
from subjectdp.training.silo_step import UPDATE

LONG, SHORT = 0.02, 50.0  # clip norms that cut every update, and none


def update_plan(steps: int = 3, noise: float = 0.0, clip_norm: float = LONG) -> PrivacyPlan:
    plan = tiny.tiny_plan("joint_noise", None, AccountingMode.SOUND, steps, noise)
    if ALGORITHM.of_updates is None:
        raise AssertionError("joint noise declares no mechanism for updates")
    settings = replace(plan.settings, clip_norm=clip_norm)
    return replace(plan, mechanism=ALGORITHM.of_updates, settings=settings)


def after_a_round(plan: PrivacyPlan, model: torch.nn.Module | None = None) -> torch.Tensor:
    run = tiny.tiny_run(plan, model=model, seed=SEED)
    run.run_round(ROUND)
    return run.theta.double()


def expected_model(plan: PrivacyPlan) -> torch.Tensor:
    """Float64 loop: plain local steps, the update scaled to C at most, the mean over silos."""
    reference = Reference(plan.silos[0].steps_per_round)
    updates = []
    for silo, terms in enumerate(plan.silos):
        theta = reference.start.clone()
        for step in range(terms.steps_per_round):
            total = torch.zeros_like(theta)
            for address, _ in reference.batch(silo, step):
                total += reference.gradient(theta, address)
            theta = theta - tiny.RATE * total / tiny.BATCH
        update = theta - reference.start
        updates.append(update / max(1.0, float(update.norm()) / plan.settings.clip_norm))
    return reference.start + torch.stack(updates).mean(0)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("clip_norm", [LONG, SHORT])
def test_a_round_is_the_float64_loop(steps: int, clip_norm: float) -> None:
    plan = update_plan(steps, 0.0, clip_norm)
    expected = expected_model(plan)
    found = after_a_round(plan)
    assert torch.allclose(found, expected, atol=1e-5)
    moved = float((expected - Reference(1).start).norm())
    assert 1e-3 < moved <= clip_norm
    if clip_norm == LONG:  # clipping items instead would be another round
        gradients = replace(plan, mechanism=ALGORITHM.mechanism(None, AccountingMode.SOUND))
        assert not torch.allclose(after_a_round(gradients), expected, atol=1e-3)


def test_an_update_that_is_short_is_federated_averaging() -> None:
    plain = tiny.tiny_run(tiny.tiny_plan("fed_avg", None, AccountingMode.AS_PUBLISHED, 3), seed=SEED)
    plain.run_round(ROUND)
    assert torch.allclose(after_a_round(update_plan(3, 0.0, SHORT)), plain.theta.double(), atol=1e-6)


# --- noise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 5])
def test_the_sum_has_one_noise_a_silo_whatever_the_steps(steps: int) -> None:
    """Variance Σ_i (C σ_i)² / N²; not of σ x 0.8 or x 1.25, and not of a noise in every step."""
    plan = update_plan(steps, 2.0)
    quiet = replace(plan, silos=tuple(replace(s, noise_multiplier=0.0) for s in plan.silos))
    noise = (after_a_round(plan, WIDE) - after_a_round(quiet, WIDE)).numpy()
    std = LONG / 3 * math.sqrt(3) * 2.0
    assert variance_fits(noise, std)
    for factor in (0.8, 1.25, 5**0.5):
        assert not variance_fits(noise, std * factor)
    assert stats.kstest(noise / std, "norm").pvalue > 1e-4


def test_silos_and_rounds_never_share_noise() -> None:
    run = tiny.tiny_run(update_plan(2, 1.0), seed=SEED)
    zero = torch.zeros_like(run.theta)
    draws = [run.step(r, s, UPDATE).release(zero.clone()) for r in (1, 2) for s in range(3)]
    assert len({float(draw[0]) for draw in draws}) == 6
    again = run.step(1, 0, UPDATE).release(zero.clone())
    assert torch.equal(again, draws[0])


def test_steps_are_recorded_with_noise_and_clipping_at_the_last_one() -> None:
    run = tiny.tiny_run(update_plan(3, 1.5), seed=SEED)
    run.run_round(ROUND)
    rows = run.rows
    assert [(row.silo, row.step, row.noise_multiplier) for row in rows] == [
        (silo, step, 1.5 if step == 2 else 0.0) for silo in range(3) for step in range(3)
    ]
    assert [row.clipped_fraction for row in rows[2::3]] == [1.0] * 3
    assert all(math.isnan(row.clipped_fraction) for row in rows[0::3])
    assert all(row.batch.items > 0 for row in rows)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 3e38])
def test_an_update_that_is_not_finite_contributes_nothing(bad: float) -> None:
    """Local steps without clipping may diverge; what has no length cannot be brought to one."""
    run = tiny.tiny_run(update_plan(2, 0.0), seed=SEED)
    update = torch.ones_like(run.theta)
    update[:3] = bad
    released = run.step(ROUND, 0, UPDATE).release(update)
    assert torch.equal(released, torch.zeros_like(released))


# --- sensitivity -------------------------------------------------------------------------------------------------


def release(world: World, keep: NDArray[np.bool_], silo: int) -> torch.Tensor:
    """A silo's clipped update from a federation with these items, every item in every mini-batch."""
    return world.holding(keep).result(1, silo)


def test_one_subject_can_turn_an_update_around() -> None:
    """Without the subject the silo's update points the other way: the bound of 2C is reached, C would be wrong."""
    world = World(update_plan(2, 0.0, tiny.CLIP), 1)
    run = world.run
    world.rate(1000.0)
    world.owners = np.where(np.arange(len(world.owners)) % 3 == 0, 1, 0)
    inputs = torch.ones_like(run.federation.data.inputs) * 5  # type: ignore[attr-defined]
    run.change(data=tiny.TinyData(inputs, torch.from_numpy(world.owners)))
    start = torch.full_like(run.theta, -50.0)
    weights = run.federation.engine.flat.views(start)
    weights["weight"].zero_()
    weights["bias"][:2] = 0.0
    run.theta.copy_(start)
    silo = int(np.argmax(np.bincount(world.silos)))
    world.plan = replace(world.plan, silos=tuple(replace(s, steps_per_round=1) for s in world.plan.silos))
    moved = release(world, world.everything, silo) - release(world, world.owners != 0, silo)
    assert float(moved.norm()) == pytest.approx(2 * tiny.CLIP, rel=1e-3)


def test_a_unit_that_no_mini_batch_holds_changes_nothing() -> None:
    """What the sampling probability 1 - (1 - q)^(k S) of the accountant rests on."""
    plan = update_plan(3, 0.0)
    run = tiny.tiny_run(plan, seed=SEED)
    drawn = {a for silo in range(3) for step in range(3) for a, _ in Reference(3).batch(silo, step)}
    absent = sorted(set(range(sum(tiny.ITEMS))) - drawn)
    assert absent, "the draws of this seed must leave an item out"
    run.run_round(ROUND)
    changed = tiny.tiny_run(plan, seed=SEED)
    changed.federation.data.inputs[absent] = 1e6  # type: ignore[attr-defined]
    changed.run_round(ROUND)
    assert torch.equal(run.theta, changed.theta)
