"""Rényi divergences against Opacus, PLD and quadrature; bounds for integer noise against sums over the integers."""

import itertools
import math
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import RDPAccountant
from opacus.accountants.analysis import rdp as opacus
from scipy.special import ive, logsumexp
from scipy.stats import norm

from accounting.plans import FIXED, ITEM, items
from subjectdp.accounting import renyi
from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import MixtureSteps, PrivacyLoss, Shift, Turned, sampled_gaussian, unit_shift
from subjectdp.accounting.renyi import NEAR_ONE, divergences_near_one, integer_divergences
from subjectdp.noise.skellam import skellam_variance
from subjectdp.plan.plan import Clipping

pytestmark = pytest.mark.slow

ORDERS = (2.0, 3.0, 5.0, 12.0)


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
    theirs = renyi.step_divergences(sigma, moved, ORDERS)
    assert integer_divergences(sigma, moved, ORDERS) == pytest.approx(theirs, rel=1e-9)


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


# --- Gaussian noise ---------------------------------------------------------------------------------------------------


AXES = (0.002, 0.01, 0.0201773, 0.1, 0.4), (0.7, 1.0, 1.709, 4.0, 12.0), (1, 20, 300, 5000), (1e-5, 1e-7)
GRID = list(itertools.product(*AXES))
STRIDE = 1 if os.environ.get("SUBJECTDP_FULL_TESTS") == "1" else 13  # prime to every axis: all values occur


def loss(q: float, sigma: float, steps: int) -> PrivacyLoss:
    return (MixtureSteps(sigma, sampled_gaussian(q), steps),)


SETTINGS = [
    (sigma, q, steps, delta)
    for sigma, q in [(0.3, 0.01), (0.7, 0.3), (1.1, 0.02), (4.0, 0.04), (60.0, 0.9), (2.0, 1.0)]
    for steps in (1, 900)
    for delta in (0.4, 1e-5, 1e-11)
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("sigma", "q", "steps", "delta"), SETTINGS[::3])
def test_few_orders_give_the_epsilon_of_all_orders(sigma: float, q: float, steps: int, delta: float) -> None:
    every = steps * renyi.step_divergences(sigma, sampled_gaussian(q))
    best = renyi.best_epsilon(np.asarray(renyi.ORDERS), every, math.log(delta))
    assert 0 <= renyi.renyi_epsilon(loss(q, sigma, steps), delta) == best
    theirs = RDPAccountant()
    theirs.history = [(sigma, q, steps)]
    orders = [*RDPAccountant.DEFAULT_ALPHAS, *(order for order in renyi.ORDERS if order > 63)]
    twice = (MixtureSteps(2 * sigma, sampled_gaussian(q, 2.0), steps),)
    assert renyi.opacus_epsilon(twice, delta) == theirs.get_epsilon(delta, alphas=orders)


def test_rdp_against_opacus_rdp() -> None:
    """Same divergences, ours at more orders: never above, and equal where Opacus' orders hold the optimum."""
    orders = np.array([order for order in renyi.ORDERS if 2 <= order <= 63 and float(order).is_integer()])
    picked = [renyi.ORDERS.index(order) for order in orders]
    for q, sigma, steps, _ in GRID[::STRIDE]:
        theirs = opacus.compute_rdp(q=q, noise_multiplier=sigma, steps=steps, orders=orders.tolist())
        ours = steps * renyi.step_divergences(sigma, sampled_gaussian(q))[picked]
        assert ours == pytest.approx(np.asarray(theirs), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("shift", "sigma", "there", "gone", "loose"),
    [
        (items(0.3, 3), 1.5, range(4), (0.0,) * 4, 1e-9),
        (Turned.by(0.3, 2.0), 1.0, (0.0, 1.0), (0.0, -1.0), 1e-9),
        (Turned.by(0.05, 2.0), 0.6, (0.0, 1.0), (0.0, -1.0), 1e-9),
        (Turned.by(0.5, 0.7), 2.0, (0.0, 1.0), (0.0, 0.3), 0.2),  # of a law that is at least as bad
    ],
)
def test_quadrature_on_the_densities(shift: Shift, sigma: float, there: Any, gone: Any, loose: float) -> None:
    x, width = np.linspace(-40 - 14 * sigma, 40 + 14 * sigma, 200_001, retstep=True)
    masses = np.log(width * np.array(shift.probabilities))
    pair = (
        logsumexp([m + norm.logpdf(x, s, sigma) for m, s in zip(masses, law, strict=True)], 0) for law in (there, gone)
    )
    for order, expected in zip(ORDERS, exact(ORDERS, *pair), strict=True):
        found = renyi.mixture_divergence(order, sigma, shift)
        assert expected * (1 - 1e-9) <= found <= expected * (1 + loose)


def test_renyi_of_a_mixture_by_quadrature() -> None:
    """Bin(8, q) at the papers' scale: 4.33 by Rényi divergences where PLD gives 4.0006."""
    loss = (MixtureSteps(12.385, items(0.0201773, 8), 5000),)
    assert epsilon_of(loss, 1e-5, "rdp") == pytest.approx(4.33, abs=0.03)
    assert epsilon_of(loss, 1e-5) == pytest.approx(4.0006, rel=1e-3)
