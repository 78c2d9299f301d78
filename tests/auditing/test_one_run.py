"""The one-run p-value against a re-computation in exact arithmetic, and its validity in simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from subjectdp.auditing.lower_bounds import Guesses, guess, one_run_epsilon, p_value
from subjectdp.errors import PrivacyError


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


def test_without_delta_it_is_the_binomial_limit() -> None:
    """r of r right: (e^ε/(1+e^ε))^r = 0.05."""
    share = 0.05 ** (1 / 300)
    assert one_run_epsilon(Guesses(900, 300, 300), 0.0) == pytest.approx(
        math.log(share / (1 - share)), abs=1e-9
    )


def test_more_right_guesses_prove_more_and_delta_less() -> None:
    bounds = [one_run_epsilon(Guesses(1000, 200, v), 1e-5) for v in range(100, 201, 10)]
    assert bounds == sorted(bounds)
    assert one_run_epsilon(Guesses(1000, 200, 190), 1e-3) < one_run_epsilon(Guesses(1000, 200, 190), 1e-5)


@pytest.mark.slow
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
    with pytest.raises(PrivacyError):
        p_value(Guesses(10, 4, 5), 1.0, 0.0)
