"""Rényi divergences of sampled Skellam noise, whose divergence at integer orders is at most a Gaussian's.

Known of the noise: for a shift of s clip norms, D_a(shifted ‖ unshifted) ≤ a s²/(2σ²) at every integer order
a ≥ 2, and both are symmetric about a point between them, so that their divergences agree in both directions
(``noise.skellam``). Quadrature of a Gaussian mixture would be no proof, as its cross terms are the Gaussian's own.

One step has the law P = (1 - p) Q + p P', where P' = Σ_j w_j P_j holds the shifts s_j > 0 and p is their chance.

- D_a(P ‖ Q): E_Q[(P/Q)^a] = Σ_l C(a,l) (1-p)^(a-l) p^l E_Q[(P'/Q)^l], and by Minkowski's inequality
  E_Q[(P'/Q)^l]^(1/l) ≤ Σ_j w_j E_Q[(P_j/Q)^l]^(1/l) ≤ Σ_j w_j e^((l-1) s_j²/(2σ²)); both are 1 for l = 0 and 1.
- D_a(Q ‖ P): E_Q[(P/Q)^(1-a)] is convex in P = Σ_j w_j ((1-p) Q + p P_j), hence at most the mean over w_j of that with
  one shift, which is at most E_Q[(((1-p) Q + p P_j)/Q)^a], the other direction (Mironov, Talwar, Zhang,
  arXiv 1908.10530, theorem 5: the reflection that swaps Q and P_j).

For ε in the thousands the best order is near 1. Divergences do not decrease in the order, so that those of 1 < a < 2
are at most s²/σ², the bound of order 2; E_Q[(P/Q)^a] and E_Q[(P/Q)^(1-a)] are convex in P, and both directions of the
mixture are at most log(Σ_j p_j e^((a-1) s_j²/σ²))/(a-1), sampling included.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from subjectdp.accounting.shifts import Shift, Told, Turned
from subjectdp.errors import PrivacyError

Floats = NDArray[np.float64]


NEAR_ONE: tuple[float, ...] = (1.0001, 1.0003, 1.001, 1.003, 1.01, 1.03, 1.1, 1.3, 1.7)


def divergences_near_one(sigma: float, shift: Shift) -> Floats:
    """Bounds on the Rényi divergence of one step, either direction, at the orders ``NEAR_ONE``."""
    beyond = np.asarray(NEAR_ONE)[:, None] - 1
    squares = (np.asarray(shift.sensitivities) / sigma) ** 2
    moments: Floats = np.asarray(logsumexp(np.log(shift.probabilities) + beyond * squares, axis=1))
    bounds: Floats = moments / beyond[:, 0]
    return bounds


@lru_cache(maxsize=512)
def integer_divergences(sigma: float, shift: Shift, orders: tuple[float, ...]) -> Floats:
    """Bounds on the Rényi divergence of one step at integer orders: the larger of the two directions."""
    if isinstance(shift, Turned):
        return _turned(sigma, shift, orders)
    if isinstance(shift, Told):
        raise PrivacyError("No bound is known for integer noise and draws that the observer knows.")
    values, weights = np.asarray(shift.sensitivities), np.asarray(shift.probabilities)
    moved = values > 0
    chance = float(weights[moved].sum())
    if chance == 0.0:
        return np.zeros(len(orders))
    chance = min(1.0, chance)
    squares = values[moved] ** 2 / (2 * sigma**2)
    log_weights = np.log(weights[moved] / weights[moved].sum())
    return np.array([_divergence(round(order), chance, squares, log_weights) for order in orders])


def _turned(sigma: float, shift: Turned, orders: tuple[float, ...]) -> Floats:
    """E_Q[(P/Q)^a] is jointly convex: at most (1 - q) + q e^(a(a-1)b²/(2σ²)) for a coin that both neighbours share."""
    squares, logs = (np.asarray(shift.sensitivities) / sigma) ** 2, np.log(shift.probabilities)
    powers = np.asarray(orders)[:, None]
    moments: Floats = np.asarray(logsumexp(logs + powers * (powers - 1) / 2 * squares, axis=1))
    divergences: Floats = moments / (np.asarray(orders) - 1)
    return divergences


def _divergence(order: int, chance: float, squares: Floats, log_weights: Floats) -> float:
    powers = np.arange(order + 1.0)
    below = np.maximum(powers - 1.0, 0.0)  # l - 1; both ends, l = 0 and 1, have the moment 1
    together = powers * logsumexp(log_weights[:, None] + below * squares[:, None], axis=0)
    forward = _moment(order, chance, together[None, :])[0]
    if len(squares) == 1:
        return float(forward) / (order - 1)
    alone = _moment(order, chance, powers * below * squares[:, None])
    backward = logsumexp(log_weights + alone)
    return max(float(forward), float(backward)) / (order - 1)


def _moment(order: int, chance: float, log_moments: Floats) -> Floats:
    """log Σ_l C(a,l) (1-p)^(a-l) p^l e^(moment_l) for each row of ``log_moments`` (rows, a + 1)."""
    if chance == 1.0:
        return np.asarray(log_moments[:, -1])
    powers = np.arange(order + 1.0)
    chosen = gammaln(order + 1) - gammaln(powers + 1) - gammaln(order - powers + 1)
    law = chosen + (order - powers) * math.log1p(-chance) + powers * math.log(chance)
    return np.asarray(logsumexp(law + log_moments, axis=1))
