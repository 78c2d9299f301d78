"""Section 4's bounds against numbers worked out by hand, and the properties that the text states of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subjectdp.utility.bounds import (
    Problem,
    Schedule,
    best_learning_rate,
    constant_of,
    empirical_bound,
    higrad_bound,
    item_noise,
    local_group_bound,
    stability,
    user_bound,
)

PROBLEM = Problem(lipschitz=2.0, radius=3.0, dimension=10, items=1000)
SCHEDULE = Schedule(
    learning_rate=0.1, steps=50, sampling_probability=0.02, epsilon=4.0, delta=math.exp(-10), constant=1.5
)


def test_the_terms_by_hand() -> None:
    """M²/(2ηT) = 9/10, ηL²/2 = 0.2, L²η(T+1)/n = 0.0204, σ = 1.5·0.02·√500/4, ησ²d = 0.1·10·σ²."""
    assert empirical_bound(PROBLEM, 0.1, 50, 0.0) == pytest.approx(1.1)
    assert empirical_bound(PROBLEM, 0.1, 50, 0.5) == pytest.approx(1.1 + 0.25)
    assert stability(PROBLEM, 0.1, 50) == pytest.approx(0.0204)
    sigma = 0.0075 * math.sqrt(500)
    assert item_noise(SCHEDULE) == pytest.approx(sigma)
    assert local_group_bound(PROBLEM, SCHEDULE, 1) == pytest.approx(1.1 + sigma**2 + 0.0204)


def test_theorem_4_8_with_groups_by_hand() -> None:
    """k = 3: (c₂kq/ε)² = 0.0225², T·log(3 e^{8/3} e^{10}) = 50·(ln 3 + 12.6667)."""
    noise = 0.1 * 10 * 0.0225**2 * 50 * (1.0986122886681098 + 12.666666666666666)
    assert local_group_bound(PROBLEM, SCHEDULE, 3) == pytest.approx(1.1 + noise + 0.0204)


def test_theorem_4_9_is_4_8_with_the_mini_batch_as_the_group_and_no_sampling() -> None:
    """m = 20, q = 1: (1.5·20/4)² · 0.1·10 · 50·(ln 20 + 3.8 + 10)."""
    noise = 7.5**2 * 50 * (math.log(20) + 3.8 + 10)
    assert user_bound(PROBLEM, SCHEDULE, 20) == pytest.approx(1.1 + noise + 0.0204)


def test_theorem_4_11_by_hand() -> None:
    """k = 4: (16·9 + 0.01·50·4)/(2·4·0.1·50) = 146/40, noise 0.1·10·(1.5·4·0.02/4)²·50·10."""
    assert higrad_bound(PROBLEM, SCHEDULE, 4) == pytest.approx(3.65 + 0.03**2 * 500 + 0.0204)


@given(st.floats(1, 50), st.floats(1.01, 3))
def test_noise_grows_with_the_square_of_the_group(group: float, factor: float) -> None:
    """ "The noise term amplifies quadratically with group size": at least, for LocalGroupDP's logarithm grows too."""

    def plain(k: float) -> float:
        return empirical_bound(PROBLEM, 0.1, 50, 0.0, k) + stability(PROBLEM, 0.1, 50)

    one = empirical_bound(PROBLEM, 0.1, 50, 0.0) + stability(PROBLEM, 0.1, 50)
    small, large = (local_group_bound(PROBLEM, SCHEDULE, k) - one for k in (group, factor * group))
    assert large >= factor**2 * small * (1 - 1e-9)
    small, large = (higrad_bound(PROBLEM, SCHEDULE, k) - plain(k) for k in (group, factor * group))
    assert large == pytest.approx(factor**2 * small, rel=1e-6)


def test_one_item_a_subject_is_the_item_level_bound() -> None:
    assert higrad_bound(PROBLEM, SCHEDULE, 1) == pytest.approx(local_group_bound(PROBLEM, SCHEDULE, 1))


@given(st.floats(0, 5), st.floats(0.2, 5))
def test_the_best_learning_rate_is_the_least(noise: float, factor: float) -> None:
    best = best_learning_rate(PROBLEM, 50, noise)
    least = empirical_bound(PROBLEM, best, 50, noise)
    assert least <= empirical_bound(PROBLEM, best * factor, 50, noise) * (1 + 1e-12)
    assert least == pytest.approx(3 * math.sqrt((4 + 20 * noise**2) / 50))


def test_the_constant_gives_the_noise_that_it_was_fitted_to() -> None:
    fitted = constant_of(2.5, SCHEDULE)
    again = Schedule(0.1, 50, 0.02, 4.0, math.exp(-10), fitted)
    assert item_noise(again) == pytest.approx(2.5)
