"""The orders that can be best: never another ε than that of all orders, and far fewer divergences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from opacus.accountants import RDPAccountant

from subjectdp.accounting.events import MixtureSteps, PrivacyLoss
from subjectdp.accounting.renyi import (
    ORDERS,
    best_epsilon,
    contenders,
    opacus_epsilon,
    renyi_epsilon,
    step_divergences,
)
from subjectdp.accounting.shifts import sampled_gaussian

SETTINGS = [
    (sigma, q, steps, delta)
    for sigma, q in [(0.3, 0.01), (0.7, 0.3), (1.1, 0.02), (4.0, 0.04), (60.0, 0.9), (2.0, 1.0)]
    for steps in (1, 900)
    for delta in (0.4, 1e-5, 1e-11)
]


def loss(sigma: float, q: float, steps: int) -> PrivacyLoss:
    return (MixtureSteps(sigma, sampled_gaussian(q), steps),)


@pytest.mark.parametrize(("sigma", "q", "steps", "delta"), SETTINGS[::8])
def test_dp_accountings_divergences_give_the_epsilon_of_all_orders(
    sigma: float, q: float, steps: int, delta: float
) -> None:
    every = steps * step_divergences(sigma, sampled_gaussian(q))
    assert renyi_epsilon(loss(sigma, q, steps), delta) == best_epsilon(
        np.asarray(ORDERS), every, math.log(delta)
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("sigma", "q", "steps", "delta"), SETTINGS[::8])
def test_opacus_gives_the_epsilon_of_all_orders(sigma: float, q: float, steps: int, delta: float) -> None:
    theirs = RDPAccountant()
    theirs.history = [(sigma, q, steps)]
    orders = [*RDPAccountant.DEFAULT_ALPHAS, *(order for order in ORDERS if order > 63)]
    assert opacus_epsilon(loss(sigma, q, steps), delta) == theirs.get_epsilon(delta, alphas=orders)


@pytest.mark.parametrize("scale", [1e-4, 0.05, 0.3, 40.0])
def test_few_divergences_are_asked_for(scale: float) -> None:
    asked = []

    def gaussian(order: float) -> float:
        asked.append(order)
        return scale * order

    found = contenders(gaussian, ORDERS, math.log(1e-5))
    everywhere = [
        best_epsilon(np.array([order]), np.array([scale * order]), math.log(1e-5)) for order in ORDERS
    ]
    assert [ORDERS[int(np.argmin(everywhere))]] == list(found)
    assert len(asked) < 0.6 * len(ORDERS)


def test_an_order_without_a_divergence_bounds_no_other() -> None:
    """dp-accounting gives infinity at orders where its series does not converge."""
    orders = (2.0, 2.5, 3.0, 8.0)
    divergences = {2.0: math.inf, 2.5: math.inf, 3.0: math.inf, 8.0: 1.0}
    assert contenders(divergences.__getitem__, orders, math.log(1e-5)) == (8.0,)
    assert contenders(lambda order: math.inf, orders, math.log(1e-5)) == orders


def test_a_number_that_is_too_large_at_a_broken_order_bounds_no_other() -> None:
    divergences = {2.0: 0.1, 2.5: 90.0, 3.0: 0.2}
    assert contenders(divergences.__getitem__, divergences, math.log(1e-5)) == (3.0,)
