"""Rényi bounds that hold for Skellam noise: against exact sums over the integers, quadrature and dp-accounting."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from accounting.plans import FIXED, ITEM, POISSON, SUBJECT
from subjectdp.accounting import renyi
from subjectdp.accounting.events import unit_shift
from subjectdp.accounting.renyi import NEAR_ONE, divergences_near_one, integer_divergences
from subjectdp.accounting.shifts import Shift, sampled_gaussian
from subjectdp.noise.skellam import skellam_variance
from subjectdp.plan.plan import Clipping

ORDERS = (2.0, 3.0, 5.0, 12.0)


def items(q: float, k: int) -> Shift:
    return unit_shift(Clipping.PER_ITEM, SUBJECT, POISSON, q, k, 10_000)


def exact(orders: tuple[float, ...], log_p: np.ndarray, log_q: np.ndarray) -> list[float]:
    """max of both directions of D_a between two laws on the same points."""
    found = []
    for a in orders:
        sides = [logsumexp(a * u + (1 - a) * v) / (a - 1) for u, v in ((log_p, log_q), (log_q, log_p))]
        found.append(float(max(sides)))
    return found


def skellam_laws(sigma: float, shift: Shift, unit: int) -> tuple[np.ndarray, np.ndarray]:
    """log laws of one integer release with and without the unit; a clip norm is ``unit`` steps, one parameter."""
    mean = skellam_variance(sigma, unit, 1) / 2
    reach = int(40 * math.sqrt(2 * mean))
    x = np.arange(-reach, reach + int(shift.sensitivities[-1]) * unit)
    without = _log_skellam(x, mean)
    parts = [
        math.log(p) + _log_skellam(x - round(s) * unit, mean)
        for s, p in zip(shift.sensitivities, shift.probabilities, strict=True)
    ]
    return logsumexp(parts, axis=0), without


def _log_skellam(x: np.ndarray, mean: float) -> np.ndarray:
    from scipy.special import ive

    with np.errstate(divide="ignore"):
        return np.maximum(np.log(ive(np.abs(x), 2 * mean)), -700.0)


@pytest.mark.parametrize("unit", [1, 3, 20])
@pytest.mark.parametrize(("q", "k", "sigma"), [(0.1, 1, 1.0), (0.1, 5, 2.0), (0.3, 8, 3.0), (1.0, 2, 4.0)])
def test_bounds_hold_for_skellam_noise(q: float, k: int, sigma: float, unit: int) -> None:
    shift = items(q, k)
    log_p, log_q = skellam_laws(sigma, shift, unit)
    for orders, bounds in (
        (ORDERS, integer_divergences(sigma, shift, ORDERS)),
        (NEAR_ONE, divergences_near_one(sigma, shift)),
    ):
        for found, bound in zip(exact(orders, log_p, log_q), bounds, strict=True):
            assert found <= bound * (1 + 1e-6) + 1e-12
    assert exact((2.0,), log_p, log_q)[0] > 0.3 * integer_divergences(sigma, shift, (2.0,))[0]


@pytest.mark.parametrize("sigma", [0.8, 2.0])
def test_a_sampled_shift_has_the_sampled_gaussians_divergence(sigma: float) -> None:
    for q in (0.01, 0.3, 1.0):
        ours = integer_divergences(sigma, sampled_gaussian(q), ORDERS)
        theirs = renyi.step_divergences(sigma, sampled_gaussian(q), ORDERS)
        assert ours == pytest.approx(theirs, rel=1e-9)
    moved = unit_shift(Clipping.PER_ITEM, ITEM, FIXED, 0.1, 1, 1000)
    assert integer_divergences(sigma, moved, ORDERS) == pytest.approx(
        renyi.step_divergences(sigma, moved, ORDERS), rel=1e-9
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(q=st.floats(1e-3, 0.6), k=st.integers(2, 15), sigma=st.floats(0.7, 12.0))
def test_bounds_are_above_the_gaussian_mixtures_divergences(q: float, k: int, sigma: float) -> None:
    """Gaussian noise is one of those that they hold for."""
    shift = items(q, k)
    bounds = integer_divergences(sigma, shift, ORDERS)
    for order, bound in zip(ORDERS, bounds, strict=True):
        assert renyi.mixture_divergence(order, sigma, shift) <= bound * (1 + 1e-6)
    for order, bound in zip(NEAR_ONE[3:], divergences_near_one(sigma, shift)[3:], strict=True):
        assert renyi.mixture_divergence(order, sigma, shift) <= bound * (1 + 1e-6)
