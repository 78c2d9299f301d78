"""How much noise each algorithm adds, and where: before or after the division, once or at each silo.

The noise is the difference between a round with noise and the same round without; with one local step it is linear in
the drawn Gaussian, so that its standard deviation is a closed form of σ, C, the divisor, the rate and the silos.
"""

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import nn

from algorithms import tiny
from subjectdp.plan.plan import AccountingMode, PrivacyPlan

PUBLISHED, SOUND = AccountingMode.AS_PUBLISHED, AccountingMode.SOUND
NOISE = 2.0
WIDE = nn.Sequential(nn.Linear(tiny.FEATURES, 400), nn.Tanh(), nn.Linear(400, tiny.CLASSES))


def measured(plan: PrivacyPlan, quiet: PrivacyPlan) -> torch.Tensor:
    models = []
    for each in (plan, quiet):
        run = tiny.tiny_run(each, model=WIDE)
        run.run_round(1)
        models.append(run.theta.double())
    return models[0] - models[1]


def plans(name: str, variant: str | None, mode: AccountingMode) -> tuple[PrivacyPlan, PrivacyPlan]:
    noisy, quiet = (tiny.tiny_plan(name, variant, mode, steps=1, noise=noise) for noise in (NOISE, 0.0))
    return noisy, quiet


BATCH, MEAN_OF_3 = tiny.BATCH, 1 / math.sqrt(3)


def variance_fits(noise: torch.Tensor, std: float) -> bool:
    statistic = float(noise.square().sum()) / std**2
    low, high = stats.chi2.ppf([5e-6, 1 - 5e-6], noise.numel())
    return bool(low < statistic < high)


@pytest.mark.parametrize("name", ["local_group_dp", "central_sub_dp"])
def test_published_group_noise_grows_with_the_largest_group(name: str) -> None:
    """σ_Z = Z σ_1 in the hand-made plan; CentralSubDP's noise stands outside the 1/B."""
    variant = "v0" if name == "central_sub_dp" else None
    noisy, quiet = plans(name, variant, PUBLISHED)
    run = tiny.tiny_run(noisy, model=WIDE)
    run.run_round(1)
    groups = [row.batch.largest_group for row in run.rows]
    used = [row.noise_multiplier for row in run.rows]
    assert used == [NOISE * z for z in groups]
    assert max(groups) > 1
    divisor = 1 if name == "central_sub_dp" else BATCH
    std = tiny.RATE * tiny.CLIP * math.sqrt(sum(u * u for u in used)) / (3 * divisor)
    assert variance_fits(measured(noisy, quiet), std)


def test_an_empty_batch_is_still_a_step_with_noise() -> None:
    noisy, _ = plans("local_item_dp", None, PUBLISHED)
    empty = replace(noisy, silos=tuple(replace(s, sampling_probability=1e-12) for s in noisy.silos))
    run = tiny.tiny_run(empty, model=WIDE)
    start = run.theta.clone()
    run.run_round(1)
    assert [row.batch.items for row in run.rows] == [0, 0, 0]
    assert variance_fits((run.theta - start).double(), tiny.RATE * NOISE * tiny.CLIP * MEAN_OF_3 / BATCH)
