"""Limits and bounds against scipy, binomial tails and the exact ε of Gaussians."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from subjectdp.accounting.gaussian import gdp_epsilon
from subjectdp.auditing.lower_bounds import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    counts_epsilon,
    gaussian_estimate,
    split_bound,
)
from subjectdp.errors import PrivacyError

DELTA = 1e-5


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.floats(0, 1), st.sampled_from([0.001, 0.0125, 0.025, 0.05]))
def test_limits_are_scipys_exact_interval(trials: int, share: float, error: float) -> None:
    successes = round(share * trials)
    interval = stats.binomtest(successes, trials).proportion_ci(1 - 2 * error, method="exact")
    assert clopper_pearson_lower(successes, trials, error) == pytest.approx(interval.low, abs=1e-9)
    assert clopper_pearson_upper(successes, trials, error) == pytest.approx(interval.high, abs=1e-9)


@pytest.mark.parametrize(("successes", "trials"), [(3, 50), (49, 50), (120, 1000)])
def test_limits_solve_the_binomial_tails(successes: int, trials: int) -> None:
    low, high = (
        clopper_pearson_lower(successes, trials, 0.025),
        clopper_pearson_upper(successes, trials, 0.025),
    )
    assert stats.binom.sf(successes - 1, trials, low) == pytest.approx(0.025)
    assert stats.binom.cdf(successes, trials, high) == pytest.approx(0.025)


def test_limits_at_the_ends() -> None:
    assert clopper_pearson_lower(0, 10, 0.025) == 0.0
    assert clopper_pearson_upper(10, 10, 0.025) == 1.0
    assert clopper_pearson_upper(0, 1000, 0.025) == pytest.approx(1 - 0.025 ** (1 / 1000))
    for wrong in ((-1, 10, 0.1), (11, 10, 0.1), (1, 0, 0.1), (1, 10, 0.0)):
        with pytest.raises(PrivacyError):
            clopper_pearson_lower(*wrong)


def test_epsilon_of_counts() -> None:
    many = 10**9
    assert counts_epsilon(many // 2, many, int(many / 2 / math.e**2), many, 0.0) == pytest.approx(
        2.0, abs=1e-3
    )
    assert counts_epsilon(1000, many, 1, many, DELTA) == 0.0, "δ alone explains it"
    assert counts_epsilon(many // 10, many, many // 2, many, 0.0) == 0.0
    assert counts_epsilon(2000, 2000, 0, 2000, DELTA) == pytest.approx(6.29, abs=0.005)


def normal_scores(mu: float, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(mu, 1, runs).astype(np.float32), generator.normal(0, 1, runs).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
def test_the_bound_holds_and_comes_near(mu: float) -> None:
    truth = gdp_epsilon(mu, DELTA)
    bounds = [split_bound(*normal_scores(mu, 4000, seed), DELTA).epsilon for seed in range(60)]
    assert sum(bound > truth for bound in bounds) <= 3, "at most 5 %"
    assert (
        max(split_bound(*normal_scores(mu, 200_000, seed), DELTA).epsilon for seed in range(2)) > 0.45 * truth
    )


@pytest.mark.slow
def test_the_bound_is_right_at_a_point_where_it_is_tight() -> None:
    """Randomised response: a bound above ε = 1 happens in at most 5 % of repetitions, and not never."""
    right = math.e / (1 + math.e)
    bounds = []
    for seed in range(300):
        generator = np.random.default_rng(seed)
        present = (generator.random(600) < right).astype(np.float32)
        absent = (generator.random(600) > right).astype(np.float32)
        bounds.append(split_bound(present, absent, 0.0).epsilon)
    assert sum(bound > 1.0 for bound in bounds) <= 15 + 10
    assert np.mean(bounds) > 0.6


def test_both_directions_are_tried() -> None:
    """A subject that is seen only by its absence: scores are never low with it."""
    generator = np.random.default_rng(0)
    absent = generator.normal(0, 1, 20_000).astype(np.float32)
    present = np.abs(generator.normal(0, 1, 20_000)).astype(np.float32)
    turned = split_bound(present, absent, DELTA)
    assert turned.direction == "absent"
    assert turned.epsilon > 6
    assert turned.true_positive_rate == pytest.approx(0.5, abs=0.02)
    assert split_bound(-absent, -present, DELTA).direction == "present"


def test_scores_that_are_all_alike_are_told_apart() -> None:
    """Every run of a world at one score, as where both lie off the table of scores: all that the runs can prove."""
    present, absent = np.full(2000, 7.0, np.float32), np.full(2000, -7.0, np.float32)
    assert split_bound(present, absent, DELTA).epsilon == counts_epsilon(1000, 1000, 0, 1000, DELTA)
    assert split_bound(absent, absent, DELTA).epsilon == 0.0


def test_the_judging_half_is_untouched_by_the_choice() -> None:
    """Pure noise, searched for the best threshold: the judged bound is not fooled."""
    fooled = [split_bound(*normal_scores(0.0, 2000, seed), DELTA).epsilon > 0 for seed in range(100)]
    assert sum(fooled) <= 5 + 4


def test_estimate_recovers_the_separation() -> None:
    assert gaussian_estimate(*normal_scores(1.0, 200_000, 1), DELTA) == pytest.approx(
        gdp_epsilon(1.0, DELTA), rel=0.05
    )


def test_scores_must_be_numbers_and_enough() -> None:
    good = np.zeros(10, np.float32)
    with pytest.raises(PrivacyError):
        split_bound(good[:3], good, DELTA)
    with pytest.raises(PrivacyError):
        split_bound(good, np.append(good, np.float32("nan")), DELTA)
