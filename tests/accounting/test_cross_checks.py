"""dp-accounting against Opacus on 200 plans: two projects, one answer."""

import itertools
import math
import os

import numpy as np
import pytest
from opacus.accountants import RDPAccountant
from opacus.accountants.analysis import rdp as opacus

from subjectdp.accounting import renyi
from subjectdp.accounting.epsilon import SEARCH, epsilon_of
from subjectdp.accounting.events import MixtureSteps, PrivacyLoss
from subjectdp.accounting.shifts import sampled_gaussian

GRID = list(
    itertools.product(
        (0.002, 0.01, 0.0201773, 0.1, 0.4), (0.7, 1.0, 1.709, 4.0, 12.0), (1, 20, 300, 5000), (1e-5, 1e-7)
    )
)

STRIDE = 1 if os.environ.get("SUBJECTDP_FULL_TESTS") == "1" else 7  # prime to every axis: all values occur


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
    assert renyi.renyi_epsilon(loss(q, sigma, steps), delta) == best
    theirs = RDPAccountant()
    theirs.history = [(sigma, q, steps)]
    orders = [*RDPAccountant.DEFAULT_ALPHAS, *(order for order in renyi.ORDERS if order > 63)]
    assert renyi.opacus_epsilon(loss(q, sigma, steps), delta) == theirs.get_epsilon(delta, alphas=orders)


@pytest.mark.slow
def test_rdp_against_opacus_rdp() -> None:
    """Same divergences, ours at more orders: never above, and equal where Opacus' orders hold the optimum."""
    orders = np.array([order for order in renyi.ORDERS if 2 <= order <= 63 and float(order).is_integer()])
    picked = [renyi.ORDERS.index(order) for order in orders]
    for q, sigma, steps, _ in GRID[::STRIDE]:
        theirs = opacus.compute_rdp(q=q, noise_multiplier=sigma, steps=steps, orders=orders.tolist())
        ours = steps * renyi.step_divergences(sigma, sampled_gaussian(q))[picked]
        assert ours == pytest.approx(np.asarray(theirs), rel=1e-6, abs=1e-12)


@pytest.mark.slow
def test_pld_lies_below_rdp_and_near_it() -> None:
    for q, sigma, steps, delta in GRID[::STRIDE]:
        plan = loss(q, sigma, steps)
        tight = epsilon_of(plan, delta, "pld", SEARCH)
        bound = renyi.opacus_epsilon(plan, delta)
        assert tight <= bound * (1 + 1e-2) + 1e-3, (q, sigma, steps, delta)


def test_quadrature_against_dp_accounting_rdp() -> None:
    """The quadrature for mixtures, at two atoms, is the sampled Gaussian's divergence."""
    shift = sampled_gaussian(0.05)
    exact = renyi.step_divergences(1.5, shift)
    for order in (2.0, 5.0, 16.0, 40.0):
        found = renyi.mixture_divergence(order, 1.5, shift)
        assert found == pytest.approx(exact[renyi.ORDERS.index(order)], rel=1e-5)
