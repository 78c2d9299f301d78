"""Joint noise: S local steps, silos that differ, integer noise through secure aggregation, honest but curious silos."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from algorithms import tiny
from algorithms.test_rules import ROUND, SEED, Reference
from subjectdp.errors import ConfigError, DataError, PrivacyError
from subjectdp.noise.secure_sum import modular_sum
from subjectdp.noise.skellam import rounded_l2_bound
from subjectdp.plan.plan import AccountingMode, NoiseDistribution, PrivacyPlan
from subjectdp.training import integer_noise

PUBLISHED = AccountingMode.AS_PUBLISHED
WIDE = nn.Sequential(nn.Linear(tiny.FEATURES, 400), nn.Tanh(), nn.Linear(400, tiny.CLASSES))
SIZE = sum(p.numel() for p in WIDE.parameters())


def joint_plan(steps: int = 1, noise: float = 0.0, bits: int | None = None) -> PrivacyPlan:
    plan = tiny.tiny_plan("joint_noise", None, PUBLISHED, steps, noise)
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
    """Float64 loop with each silo's number of fused steps, no noise."""
    reference = Reference(plan.silos[0].steps_per_round)
    models = []
    for silo, terms in enumerate(plan.silos):
        theta = reference.start.clone()
        for step in range(terms.local_steps):
            total = torch.zeros_like(theta)
            for address, _ in reference.batch(silo, step):
                gradient = reference.gradient(theta, address)
                limit = tiny.CLIP / terms.fused_steps
                total += gradient / max(1.0, float(gradient.norm()) / limit)
            theta = theta - tiny.RATE * total / tiny.BATCH
        models.append(theta)
    return torch.stack(models).mean(0)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("bits", [None, 18])
def test_a_round_of_local_steps_is_the_papers_round(steps: int, bits: int | None) -> None:
    plan = joint_plan(steps, 0.0, bits)
    assert torch.allclose(after_a_round(plan), silo_average(plan), atol=1e-5)


@pytest.mark.parametrize("bits", [None, 18])
def test_the_sum_has_the_noise_of_all_silos(bits: int | None) -> None:
    """Variance γ²/(NB)² Σ_i (C σ_i)², the appendix's formula; not of σ x 0.8 or x 1.25."""
    plan = joint_plan(1, 2.0, bits)
    std = tiny.RATE / tiny.BATCH / 3 * math.sqrt(3) * 2.0 * tiny.CLIP
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
    run = tiny.tiny_run(joint_plan(3, 1.5, 8), seed=SEED)
    before = run.theta.clone()
    run.run_round(ROUND)
    integers = (run.theta - before).double() * 3 / run.federation.integer_noise.unit
    assert float((integers - integers.round()).abs().max()) < 0.05
    assert float(integers.abs().max()) > 100
    again = after_a_round(joint_plan(3, 1.5, 8))
    assert torch.equal(again, run.theta.double())
    assert [row.noise_multiplier for row in run.rows] == [1.5] * 9


def test_a_sum_that_leaves_the_ring_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integer_noise, "modular_sum", partial(modular_sum, modulus=256))
    with pytest.raises(DataError, match="wrapped around"):
        tiny.tiny_run(joint_plan(1, 1.0, 10)).run_round(ROUND)


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
