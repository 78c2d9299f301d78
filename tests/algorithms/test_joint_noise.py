"""Joint noise: S local steps, silos that differ, integer noise through secure aggregation, honest but curious silos."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from algorithms import tiny
from algorithms.test_rules import ROUND, SEED, Reference
from subjectdp.accounting.silo_terms import joint_noise_multiplier
from subjectdp.errors import ConfigError, DataError, PrivacyError
from subjectdp.noise.secure_sum import Ring
from subjectdp.noise.skellam import rounded_l2_bound
from subjectdp.plan.plan import AccountingMode, NoiseDistribution, PrivacyPlan

PUBLISHED = AccountingMode.AS_PUBLISHED
WIDE = nn.Sequential(nn.Linear(tiny.FEATURES, 400), nn.Tanh(), nn.Linear(400, tiny.CLASSES))
SIZE = sum(p.numel() for p in WIDE.parameters())
FACTORS = ((1.0, 0.5, 2.0), (1.0, 3.0, 0.5), (1.0, 2.0, 1.5))  # clip norms, learning rates, noise


def joint_plan(
    steps: int = 1, noise: float = 0.0, bits: int | None = None, factors: tuple[tuple[float, ...], ...] = ()
) -> PrivacyPlan:
    plan = tiny.tiny_plan("joint_noise", None, PUBLISHED, steps, noise)
    if factors:
        terms = zip(plan.silos, *factors, strict=True)
        silos = [
            replace(s, clip_norm_factor=c, learning_rate_factor=r, noise_factor=f, noise_multiplier=noise * f)
            for s, c, r, f in terms
        ]
        plan = replace(plan, silos=tuple(silos))
    if bits is None:
        return plan
    skellam = replace(plan.settings, noise_distribution=NoiseDistribution.SKELLAM, gradient_bits=bits)
    return replace(plan, settings=skellam)


def after_a_round(plan: PrivacyPlan, model: nn.Module | None = None) -> torch.Tensor:
    run = tiny.tiny_run(plan, model=model, seed=SEED)
    run.run_round(ROUND)
    return run.theta.double()


def noise_of_a_round(plan: PrivacyPlan) -> np.ndarray:
    """Noise on the model: a round with noise minus the same without, in the same integers where there are any."""
    quiet = replace(plan, silos=tuple(replace(s, noise_multiplier=0.0) for s in plan.silos))
    return (after_a_round(plan, WIDE) - after_a_round(quiet, WIDE)).numpy()


def variance_fits(noise: np.ndarray, std: float) -> bool:
    low, high = stats.chi2.ppf([5e-6, 1 - 5e-6], noise.size)
    return bool(low < float((noise**2).sum()) / std**2 < high)


def silo_average(plan: PrivacyPlan) -> torch.Tensor:
    """Float64 loop with each silo's own clip norm, learning rate and number of fused steps, no noise."""
    reference = Reference(plan.silos[0].steps_per_round)
    models = []
    for silo, terms in enumerate(plan.silos):
        theta = reference.start.clone()
        for step in range(terms.local_steps):
            total = torch.zeros_like(theta)
            for address, _ in reference.batch(silo, step):
                gradient = reference.gradient(theta, address)
                limit = tiny.CLIP * terms.clip_norm_factor / terms.fused_steps
                total += gradient / max(1.0, float(gradient.norm()) / limit)
            factor = (plan.settings.step_factors or (1.0,) * (step + 1))[step // terms.fused_steps]
            theta = theta - tiny.RATE * terms.learning_rate_factor * factor * total / tiny.BATCH
        models.append(theta)
    return torch.stack(models).mean(0)


def test_local_steps_of_different_rates_are_the_papers_equation_20() -> None:
    plan = joint_plan(3, 0.0, None, FACTORS)
    stepped = replace(plan, settings=replace(plan.settings, step_factors=(2.0, 0.5, 1.5)))
    assert torch.allclose(after_a_round(stepped), silo_average(stepped), atol=1e-5)
    assert not torch.allclose(after_a_round(stepped), silo_average(plan), atol=1e-3)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("bits", [None, 18])
@pytest.mark.parametrize("factors", [(), FACTORS])
def test_a_round_of_local_steps_is_the_papers_round(
    steps: int, bits: int | None, factors: tuple[tuple[float, ...], ...]
) -> None:
    plan = joint_plan(steps, 0.0, bits, factors)
    expected = silo_average(plan)
    assert torch.allclose(after_a_round(plan), expected, atol=1e-5)
    plain = silo_average(joint_plan(steps))
    assert bool(factors) == (not torch.allclose(expected, plain, atol=1e-3)), "the factors must matter"


@pytest.mark.parametrize("bits", [None, 18])
@pytest.mark.parametrize("factors", [(), FACTORS])
def test_the_sum_has_the_noise_of_all_silos(bits: int | None, factors: tuple[tuple[float, ...], ...]) -> None:
    """Variance γ²/(NB)² Σ_i (C_i σ_i γ_i/γ)², the appendix's formula; not of σ x 0.8 or x 1.25."""
    plan = joint_plan(1, 2.0, bits, factors)
    each = [s.clip_norm_factor * s.learning_rate_factor * s.noise_multiplier * tiny.CLIP for s in plan.silos]
    std = tiny.RATE / tiny.BATCH / 3 * math.sqrt(sum(value**2 for value in each))
    noise = noise_of_a_round(plan)
    assert variance_fits(noise, std)
    assert not variance_fits(noise, std * 0.8)
    assert not variance_fits(noise, std * 1.25)
    assert stats.kstest(noise / std, "norm").pvalue > 1e-4


def test_coarse_integers_carry_the_noise_that_their_rounding_needs() -> None:
    """At 6 bits the rounded sensitivity is well above the clip norm, and the noise with it."""
    bits, sigma = 6, 2.0
    plan = joint_plan(1, sigma, bits)
    inflation = rounded_l2_bound(2.0**bits, SIZE) / 2.0**bits
    assert inflation > 1.2
    std = tiny.RATE * sigma * tiny.CLIP * inflation / tiny.BATCH / math.sqrt(3)
    assert variance_fits(noise_of_a_round(plan), std)
    assert not variance_fits(noise_of_a_round(plan), std / inflation)


def test_updates_are_whole_multiples_of_the_unit_and_reproducible() -> None:
    run = tiny.tiny_run(joint_plan(3, 1.5, 8, FACTORS), seed=SEED)
    before = run.theta.clone()
    run.run_round(ROUND)
    integers = (run.theta - before).double() * 3 / run.federation.integer_noise.unit
    assert float((integers - integers.round()).abs().max()) < 0.05
    assert float(integers.abs().max()) > 100
    again = after_a_round(joint_plan(3, 1.5, 8, FACTORS))
    assert torch.equal(again, run.theta.double())
    assert [row.noise_multiplier for row in run.rows] == [1.5] * 3 + [3.0] * 3 + [2.25] * 3


def test_the_ring_holds_the_update_of_all_steps_and_silos() -> None:
    one, many = (tiny.tiny_run(joint_plan(s, 1.0, 10)).federation.integer_noise.ring for s in (1, 64))
    assert many.bits >= one.bits + 5
    too_small = joint_plan(64, 1.0, 10)
    too_small = replace(too_small, settings=replace(too_small.settings, ring_bits=one.bits))
    with pytest.raises(ConfigError, match=rf"joint.ring_bits to be at least {many.bits}: .*update"):
        tiny.tiny_run(too_small)


def test_a_sum_that_leaves_the_ring_stops_the_run() -> None:
    run = tiny.tiny_run(joint_plan(1, 1.0, 10))
    small = replace(run.federation.integer_noise, ring=Ring.of_bits(8))
    run.federation.__dict__["integer_noise"] = small  # where the property keeps it
    with pytest.raises(DataError, match="wrapped around"):
        run.run_round(ROUND)


def test_what_integers_cannot_do_is_refused_before_training() -> None:
    plan = joint_plan(1, 1.0, 10)
    with pytest.raises(PrivacyError, match="clips nothing|positive number"):
        tiny.tiny_run(tiny.without_clipping(plan))
    other = tiny.tiny_plan("local_item_dp", None, PUBLISHED, 1, 1.0)
    skellam = replace(other.settings, noise_distribution=NoiseDistribution.SKELLAM)
    with pytest.raises(ConfigError, match="gaussian with algorithm local_item_dp"):
        tiny.tiny_run(replace(other, settings=skellam))
    with pytest.raises(PrivacyError, match="joint.bits"):
        tiny.tiny_run(joint_plan(1, 1e5, 32))


@given(
    st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9), st.floats(0.1, 9)), min_size=1, max_size=6),
    st.floats(0.1, 9),
)
@settings(max_examples=200, deadline=None)
def test_the_appendix_formula(terms: list[tuple[float, float, float]], scale: float) -> None:
    """√Σ (C_i σ_i γ_i/γ_1)² over max C_i γ_i/γ_1, whatever the common unit."""
    clips, rates, sigmas = zip(*terms, strict=True)
    reaches = [c * r * scale for c, r in zip(clips, rates, strict=True)]
    noise = math.sqrt(sum((c * s * r / rates[0]) ** 2 for c, r, s in zip(clips, rates, sigmas, strict=True)))
    sensitivity = max(c * r / rates[0] for c, r in zip(clips, rates, strict=True))
    assert joint_noise_multiplier(sigmas, reaches) == pytest.approx(noise / sensitivity)


def test_the_numbers_of_the_papers_example() -> None:
    """Equal clip norms and noise, rates γ/l_i: C²σ²(1 + Σ 1/l_i²), sensitivity C for l_i ≥ 1."""
    l_values = (2.0, 4.0)
    reaches = [1.0, *(1 / value for value in l_values)]
    assert joint_noise_multiplier([3.0] * 3, reaches) == pytest.approx(3 * math.sqrt(1 + 1 / 4 + 1 / 16))
    assert joint_noise_multiplier([3.0] * 2, [1.0, 2.0]) == pytest.approx(3 * math.sqrt(5) / 2)


def test_honest_but_curious_silos_know_their_own_noise() -> None:
    """N - 1 where one silo looks on; with unequal silos the loudest one may be the one that looks."""
    assert joint_noise_multiplier([0.9] * 10, [1.0] * 10) == pytest.approx(0.9 * math.sqrt(10))
    assert joint_noise_multiplier([0.9] * 10, [1.0] * 10, colluding_silos=1) == pytest.approx(0.9 * 3)
    assert joint_noise_multiplier([0.9] * 10, [1.0] * 10, 5, 1) == pytest.approx(0.9 * 2)
    unequal = joint_noise_multiplier([1.0, 1.0, 7.0], [1.0] * 3, colluding_silos=1)
    assert unequal == pytest.approx(math.sqrt(2))
    assert joint_noise_multiplier([1.0, 2.0], [1.0] * 2, colluding_silos=1) == pytest.approx(1.0)
    for bad in ({"colluding_silos": 3}, {"silos_per_round": 4}, {"colluding_silos": -1}):
        with pytest.raises(PrivacyError, match="colluding silos"):
            joint_noise_multiplier([1.0] * 3, [1.0] * 3, **bad)
    with pytest.raises(PrivacyError, match="one for each of 2"):
        joint_noise_multiplier([1.0], [1.0, 1.0])
    with pytest.raises(PrivacyError, match="positive"):
        joint_noise_multiplier([1.0], [0.0])
