"""Noise levels that depend on the data: the shortcut's law, the numbers, and the training loop's own step."""

import numpy as np
import pytest
from scipy import stats

from auditing.worst_case_federation import plan, real_run
from subjectdp.auditing.suite import divisor_leak, divisor_separation, noise_level_leak
from subjectdp.plan.plan import AccountingMode

PUBLISHED = AccountingMode.AS_PUBLISHED


@pytest.mark.parametrize(
    ("parameters", "separation"), [(10_000, 0.30), (100_000, 0.94), (1_000_000, 2.97), (6_603_710, 7.64)]
)
def test_separation_of_divisors(parameters: int, separation: float) -> None:
    assert divisor_separation(475, parameters) == pytest.approx(separation, abs=0.02)


def test_divisor_leak_grows_with_the_model() -> None:
    small, large = (divisor_leak(475, parameters, 20_000, 1e-5, 0) for parameters in (10_000, 6_603_710))
    assert small.epsilon < 1 and large.epsilon > 7
    assert large.true_positive_rate > 0.999 and large.false_positive_rate < 0.001


def test_group_noise_tells_who_is_there() -> None:
    leaky = plan("local_group_dp", None, PUBLISHED)
    found = noise_level_leak(leaky, 1000, 1, 400, 0)
    low = stats.binom.sf(1, 4, 0.15)  # the canary has 2 items or more in the mini-batch
    assert found.true_positive_rate > low, "others have groups as well here"


def test_the_real_step_has_the_noise_level_of_the_group() -> None:
    """Empty of everything but noise and group, the release's size follows Z."""
    real = real_run(plan("local_group_dp", None, PUBLISHED), others=0.0)
    local_step = real.federation.rule.local_step
    sizes: dict[int, list[float]] = {}
    for round_ in range(1, 400):
        step = real.step(round_, 0, 0)
        batch = step.sample_batch()
        if (batch.owners != 12).all():  # without the canary the sum is 0
            sizes.setdefault(batch.largest_group, []).append(float(local_step(step).square()))
    assert np.mean(sizes[2]) > 2 * np.mean(sizes[1]), "σ_2 = 2 σ_1: four times the square"
