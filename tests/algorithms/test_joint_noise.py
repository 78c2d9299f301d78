"""Joint noise: S local steps, silos that differ, integer noise through secure aggregation, whole updates."""

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from algorithms import tiny
from algorithms.reference import Reference
from subjectdp.algorithms.joint_noise import ALGORITHM
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.errors import DataError, PrivacyError
from subjectdp.noise.skellam import Grid, modular_sum, rounded_l2_bound
from subjectdp.plan.plan import AccountingMode, NoiseDistribution, PrivacyPlan
from subjectdp.training import rounds
from subjectdp.training.silo_step import UPDATE, rounded_sum

PUBLISHED = AccountingMode.AS_PUBLISHED
SIZE = sum(p.numel() for p in tiny.WIDE.parameters())
LONG, SHORT = 0.02, 50.0  # clip norms that cut every update, and none


def joint_plan(steps: int = 1, noise: float = 0.0, bits: int | None = None) -> PrivacyPlan:
    plan = tiny.tiny_plan("joint_noise", None, PUBLISHED, steps, noise)
    if bits is None:
        return plan
    skellam = replace(plan.settings, noise_distribution=NoiseDistribution.SKELLAM, gradient_bits=bits)
    return replace(plan, settings=skellam)


def silo_average(plan: PrivacyPlan) -> Tensor:
    """Float64 loop with each silo's number of fused steps, no noise."""
    reference = Reference()

    def local_model(silo: int) -> Tensor:
        terms = plan.silos[silo]
        limit = tiny.CLIP / terms.fused_steps
        return reference.descended(
            silo, terms.local_steps, lambda *given: reference.item_sum(*given, limit) / tiny.BATCH
        )

    return torch.stack([local_model(silo) for silo in range(len(plan.silos))]).mean(0)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_round_of_integer_steps_is_the_papers_round(steps: int) -> None:
    plan = joint_plan(steps, 0.0, 18)
    assert torch.allclose(tiny.after_a_round(plan), silo_average(plan), atol=1e-5)


def test_the_integer_sum_has_the_noise_of_all_silos() -> None:
    """Variance γ²/(NB)² Σ_i (C σ_i)², the appendix's formula; not of σ x 0.8 or x 1.25."""
    std = tiny.RATE / tiny.BATCH / 3 * math.sqrt(3) * 2.0 * tiny.CLIP
    noise = tiny.noise_of_a_round(joint_plan(1, 2.0, 18))
    assert [tiny.fits(noise, std * factor) for factor in (0.8, 1.0, 1.25)] == [False, True, False]


def test_coarse_integers_carry_the_noise_that_their_rounding_needs() -> None:
    """At 6 bits the rounded sensitivity is well above the clip norm, and the noise with it."""
    bits, sigma = 6, 2.0
    inflation = rounded_l2_bound(2.0**bits, SIZE) / 2.0**bits
    assert inflation > 1.2
    std = tiny.RATE * sigma * tiny.CLIP * inflation / tiny.BATCH / math.sqrt(3)
    noise = tiny.noise_of_a_round(joint_plan(1, sigma, bits))
    assert tiny.fits(noise, std) and not tiny.fits(noise, std / inflation)


def test_updates_are_whole_multiples_of_the_unit_and_reproducible() -> None:
    run = tiny.tiny_run(joint_plan(3, 1.5, 8))
    before = run.theta.clone()
    run.run_round(tiny.ROUND)
    integers = (run.theta - before).double() * 3 / run.federation.integer_noise.unit
    assert float((integers - integers.round()).abs().max()) < 0.05
    assert float(integers.abs().max()) > 100
    assert torch.equal(tiny.after_a_round(joint_plan(3, 1.5, 8)), run.theta.double())
    assert [row.noise_multiplier for row in run.rows] == [1.5] * 9


def test_an_item_moves_the_sum_on_the_grid_by_no_more_than_the_rounded_bound() -> None:
    """The last item comes and goes, the others' roundings stay what they are."""
    engine = ClippingEngine(FlatParameters(tiny.LINEAR))
    grid = Grid.of_bits(3, tiny.CLIP, engine.flat.size)
    ratios = []
    for seed in range(300):
        draws = torch.Generator().manual_seed(seed)
        inputs = torch.randn(4, tiny.FEATURES, generator=draws) * 10 ** (2.5 * torch.rand(4, 1, generator=draws) - 1.5)
        sums = []
        for items in (4, 3):
            batch: Any = SimpleNamespace(inputs=inputs[:items], labels=torch.arange(items), items=items)
            sums.append(rounded_sum(engine, batch, grid, tiny.CLIP, np.random.default_rng(seed))[0])
        ratios.append(float((sums[0] - sums[1]).double().norm()) / grid.l2)
    assert 0.5 < max(ratios) <= 1.0


def test_a_sum_that_leaves_the_ring_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "modular_sum", partial(modular_sum, modulus=256))
    with pytest.raises(DataError, match="wrapped around"):
        tiny.tiny_run(joint_plan(1, 1.0, 10)).run_round(tiny.ROUND)


def test_what_integers_cannot_do_is_refused_before_training() -> None:
    plan = joint_plan(1, 1.0, 10)
    with pytest.raises(PrivacyError, match="clips nothing|positive number"):
        tiny.tiny_run(replace(plan, settings=replace(plan.settings, clip_norm=math.inf)))
    with pytest.raises(PrivacyError, match="joint.bits"):
        tiny.tiny_run(joint_plan(1, 1e5, 32))


# --- whole updates: local steps without noise, one clipping and one noise a silo and round ---------------------------


def update_plan(steps: int, noise: float = 0.0, clip_norm: float = LONG) -> PrivacyPlan:
    plan = tiny.tiny_plan("joint_noise", None, AccountingMode.SOUND, steps, noise)
    if ALGORITHM.of_updates is None:
        raise AssertionError("joint noise declares no mechanism for updates")
    return replace(plan, mechanism=ALGORITHM.of_updates, settings=replace(plan.settings, clip_norm=clip_norm))


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("clip_norm", [LONG, SHORT])
def test_a_round_of_updates_is_the_float64_loop(steps: int, clip_norm: float) -> None:
    """Plain local steps, the update scaled to C at most, the mean over silos."""
    reference, updates = Reference(), []
    for silo in range(3):
        model = reference.descended(silo, steps, lambda *given: reference.item_sum(*given, math.inf) / tiny.BATCH)
        updates.append(reference.clip(model - reference.start, clip_norm))
    moved = torch.stack(updates).mean(0)
    plan = update_plan(steps, 0.0, clip_norm)
    assert torch.allclose(tiny.after_a_round(plan), reference.start + moved, atol=1e-5)
    assert 1e-3 < float(moved.norm()) <= clip_norm
    if clip_norm == LONG:  # clipping items instead would be another round
        gradients = replace(plan, mechanism=ALGORITHM.mechanism(None, AccountingMode.SOUND))
        assert not torch.allclose(tiny.after_a_round(gradients), reference.start + moved, atol=1e-3)


def test_steps_are_recorded_with_noise_and_clipping_at_the_last_one() -> None:
    run = tiny.tiny_run(update_plan(3, 1.5))
    run.run_round(tiny.ROUND)
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
    run = tiny.tiny_run(update_plan(2))
    update = torch.ones_like(run.theta)
    update[:3] = bad
    released = run.step(tiny.ROUND, 0, UPDATE).release(update)
    assert torch.equal(released, torch.zeros_like(released))


def test_a_unit_that_no_mini_batch_holds_changes_nothing() -> None:
    """What the sampling probability 1 - (1 - q)^(k S) of the accountant rests on."""
    run, changed = tiny.tiny_run(update_plan(3)), tiny.tiny_run(update_plan(3))
    drawn = {a for silo in range(3) for step in range(3) for a, _ in Reference().batch(silo, step)}
    absent = sorted(set(range(sum(tiny.ITEMS))) - drawn)
    assert absent, "the draws of this seed must leave an item out"
    changed.federation.data.inputs[absent] = 1e6  # type: ignore[attr-defined]
    run.run_round(tiny.ROUND)
    changed.run_round(tiny.ROUND)
    assert torch.equal(run.theta, changed.theta)
