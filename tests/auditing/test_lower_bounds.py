"""Limits and bounds against scipy, binomial tails, fractions, the exact ε of Gaussians and the page's ten lines."""

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import MixtureSteps, Shift, sampled_gaussian, subject_sampling_probability
from subjectdp.accounting.gaussian import gdp_epsilon
from subjectdp.auditing.lower_bounds import (
    Guesses,
    clopper_pearson_lower,
    clopper_pearson_upper,
    counts_epsilon,
    guess,
    least_epsilon,
    one_run_epsilon,
    p_value,
    split_bound,
)
from subjectdp.errors import PrivacyError

pytestmark = pytest.mark.slow

DELTA = 1e-5


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.floats(0, 1), st.sampled_from([0.001, 0.0125, 0.025, 0.05]))
def test_limits_are_scipys_exact_interval(trials: int, share: float, error: float) -> None:
    successes = round(share * trials)
    interval = stats.binomtest(successes, trials).proportion_ci(1 - 2 * error, method="exact")
    assert clopper_pearson_lower(successes, trials, error) == pytest.approx(interval.low, abs=1e-9)
    assert clopper_pearson_upper(successes, trials, error) == pytest.approx(interval.high, abs=1e-9)


def test_epsilon_of_counts() -> None:
    many = 10**9
    assert counts_epsilon(many // 2, many, int(many / 2 / math.e**2), many, 0.0) == pytest.approx(2.0, abs=1e-3)
    assert counts_epsilon(1000, many, 1, many, DELTA) == 0.0, "δ alone explains it"
    assert counts_epsilon(many // 10, many, many // 2, many, 0.0) == 0.0
    assert counts_epsilon(2000, 2000, 0, 2000, DELTA) == pytest.approx(6.29, abs=0.005)


def normal_scores(mu: float, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(mu, 1, runs).astype(np.float32), generator.normal(0, 1, runs).astype(np.float32)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
def test_the_bound_holds_and_comes_near(mu: float) -> None:
    truth = gdp_epsilon(mu, DELTA)
    bounds = [split_bound(*normal_scores(mu, 4000, seed), DELTA).epsilon for seed in range(60)]
    assert sum(bound > truth for bound in bounds) <= 3, "at most 5 %"
    assert max(split_bound(*normal_scores(mu, 200_000, seed), DELTA).epsilon for seed in range(2)) > 0.45 * truth


def test_the_judging_half_is_untouched_by_the_choice() -> None:
    """Pure noise, searched for the best threshold: the judged bound is not fooled."""
    fooled = [split_bound(*normal_scores(0.0, 2000, seed), DELTA).epsilon > 0 for seed in range(100)]
    assert sum(fooled) <= 5 + 4


def test_scores_must_be_numbers_and_enough() -> None:
    good = np.zeros(10, np.float32)
    with pytest.raises(PrivacyError):
        split_bound(good[:3], good, DELTA)
    with pytest.raises(PrivacyError):
        split_bound(good, np.append(good, np.float32("nan")), DELTA)


# --- one run -------------------------------------------------------------------------------------------------------


def exact_p_value(m: int, r: int, v: int, odds: Fraction, delta: Fraction) -> Fraction:
    """Theorem 5.2 of arXiv 2305.08846 with e^ε = ``odds``, every probability a fraction."""
    right = odds / (1 + odds)
    mass = [math.comb(r, k) * right**k * (1 - right) ** (r - k) for k in range(r + 1)]
    beta = sum(mass[v:], Fraction(0))
    alpha = max((sum(mass[max(0, v - i) : v], Fraction(0)) / i for i in range(1, m + 1)), default=Fraction(0))
    return min(Fraction(1), beta + 2 * m * delta * alpha)


@pytest.mark.parametrize(("m", "r", "v"), [(40, 20, 18), (40, 40, 25), (30, 10, 10), (12, 6, 1), (8, 4, 0)])
@pytest.mark.parametrize("odds", [Fraction(1), Fraction(5, 2), Fraction(20)])
def test_p_value_is_the_papers(m: int, r: int, v: int, odds: Fraction) -> None:
    for delta in (Fraction(0), Fraction(1, 10_000)):
        expected = float(exact_p_value(m, r, v, odds, delta))
        assert p_value(Guesses(m, r, v), math.log(odds), float(delta)) == pytest.approx(expected, rel=1e-9)


def test_known_bounds() -> None:
    """999 of 1000 right with 2000 canaries; 597 of 600 and 700 of 700 with 1000 (independent implementation)."""
    assert one_run_epsilon(Guesses(2000, 1000, 999), 1e-5) == pytest.approx(5.32, abs=0.01)
    assert one_run_epsilon(Guesses(1000, 600, 597), 1e-5) == pytest.approx(4.32, abs=0.02)
    assert one_run_epsilon(Guesses(1000, 700, 700), 1e-5) == pytest.approx(5.42, abs=0.01)
    assert one_run_epsilon(Guesses(1000, 500, 250), 1e-5) == 0.0


def test_randomised_response_is_not_refuted() -> None:
    epsilon, m = 1.0, 400
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    above = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        members = generator.random(m) < 0.5
        answers = np.where(generator.random(m) < right, members, ~members)
        scores = answers + generator.random(m) * 0.5
        above += one_run_epsilon(guess(scores, members, 200), 0.0) > epsilon
    assert above <= 10 + 8


def test_guesses_are_the_extremes() -> None:
    scores = np.array([0.1, 5.0, -3.0, 2.0, -1.0, 0.0])
    members = np.array([True, True, False, False, True, True])
    assert guess(scores, members, 2) == Guesses(6, 2, 2)
    assert guess(scores, members, 4) == Guesses(6, 4, 2)
    for wrong in (3, 0, 8):
        with pytest.raises(PrivacyError):
            guess(scores, members, wrong)


# --- the sum of all steps ------------------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parents[2] / "docs" / "findings.md"
Q_S = subject_sampling_probability(512 / 25_375, 8)
SIGMA = 1.8155  # Opacus' RDP accountant, (4, 1e-5), 5,000 steps of q = 512 / 25,375


def test_without_sampling_it_is_the_gaussian_mechanisms_epsilon() -> None:
    """The sum tells all: μ = s √N / σ."""
    loss = MixtureSteps(50.0, sampled_gaussian(1.0, 2.0), 400)
    assert least_epsilon(loss, 1e-5) == pytest.approx(gdp_epsilon(2 * 20 / 50, 1e-5), abs=1e-4)


@pytest.mark.parametrize(("steps", "least"), [(1_250, 16.74), (20_000, 119.12)])
def test_v1_at_the_papers_scale_is_below_the_accountants_value(steps: int, least: float) -> None:
    loss = MixtureSteps(SIGMA, sampled_gaussian(Q_S), steps)
    found = least_epsilon(loss, 1e-5)
    assert found == pytest.approx(least, abs=0.02)
    assert found < epsilon_of((loss,), 1e-5, "pld") < 1.1 * found


def test_steps_that_move_by_several_values_are_refused() -> None:
    with pytest.raises(PrivacyError, match="0 and one other"):
        least_epsilon(MixtureSteps(1.0, Shift((0.0, 1.0, 2.0), (0.5, 0.3, 0.2)), 3), 1e-5)


def test_the_pages_ten_lines_print_what_the_page_says() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert "subjectdp" not in code, "no code under test"
    names: dict[str, Any] = {}
    exec(code, names)
    printed = [float(value) for value in re.findall(r"# ([\d.]+)$", code, re.MULTILINE)]
    calls = re.findall(r"^print\((.*)\)\s+#", code, re.MULTILINE)
    assert [round(eval(call, names), 1) for call in calls] == printed
    loss = MixtureSteps(1.816, sampled_gaussian(Q_S), 1_250)
    assert printed[0] == pytest.approx(least_epsilon(loss, 1e-5), abs=0.06)
