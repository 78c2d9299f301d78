"""The joint-noise paper's accounting: Rényi divergences of the Skellam mechanism under Poisson sampling.

Sources: Heikkilä et al., arXiv 2407.19286 (joint noise, Theorem 4.7); Agarwal, Kairouz, Liu, NeurIPS 2021 (Skellam's
divergence); Zhu, Wang, ICML 2019 (Poisson subsampling at integer orders); Mironov, arXiv 1702.07476 (conversion).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import gammaln, logsumexp

from subjectdp.accounting.events import PrivacyLoss
from subjectdp.accounting.renyi import mironov_epsilon
from subjectdp.errors import PrivacyError, expected

Floats = NDArray[np.float64]

PARAMETERS = 10_250  # of the paper's model
ORDERS = tuple(range(2, 64))


@dataclass(frozen=True)
class SkellamMechanism:
    """Integer noise Skellam(μ, μ) with variance (scale·σ·C)² on gradients scaled by ``scale`` and rounded.

    ``noise_multiplier``: std of the noise over the clip norm, of the whole sum. ``scale``: quantisation steps per unit
    of the gradient; ``dimension``: number of parameters (for the L1 sensitivity).
    """

    noise_multiplier: float
    clip_norm: float = 1.0
    scale: float = 2.0**16
    dimension: int = PARAMETERS

    def divergence(self, order: int) -> float:
        """Agarwal et al., Theorem 3.5, with Δ₁ = min(√d Δ₂, Δ₂²)."""
        l2 = self.scale * self.clip_norm
        l1 = min(math.sqrt(self.dimension) * l2, l2 * l2)
        variance = (self.scale * self.noise_multiplier * self.clip_norm) ** 2
        correction = min(((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
        return order * l2**2 / (2 * variance) + correction


def sampled_divergences(mechanism: SkellamMechanism, q: float, orders: tuple[int, ...] = ORDERS) -> Floats:
    """Divergences of one Poisson-sampled step at integer orders (Zhu and Wang, Theorem 6)."""
    if not 0 < q <= 1:
        raise expected("sampling probability", q, "in (0, 1]")
    inner = np.array([mechanism.divergence(j) for j in range(max(orders) + 1)])
    if q == 1:
        return inner[list(orders)]
    return np.array([_sampled(order, q, inner) for order in orders])


def _sampled(order: int, q: float, inner: Floats) -> float:
    j = np.arange(2, order + 1)
    chosen = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
    terms = chosen + (order - j) * math.log1p(-q) + j * math.log(q) + (j - 1) * inner[j]
    first = (order - 1) * math.log1p(-q) + math.log1p((order - 1) * q)
    return float(logsumexp(np.append(terms, first))) / (order - 1)


def skellam_epsilon(mechanism: SkellamMechanism, q: float, steps: int, delta: float) -> tuple[float, float]:
    """(ε, best order) of ``steps`` sampled Skellam steps, by the paper's conversion."""
    divergences = steps * sampled_divergences(mechanism, q)
    return mironov_epsilon(np.asarray(ORDERS, dtype=np.float64), divergences, math.log(delta))


def claimed_epsilon(loss: PrivacyLoss, delta: float) -> float:
    """The ε that the paper's accounting gives for Poisson-sampled steps, with Skellam noise on 32 bits.

    At 32 bits the divergences are those of Gaussian noise to ten digits. Raises PrivacyError for other mechanisms.
    """
    total = np.zeros(len(ORDERS))
    for part in loss:
        values, weights = part.shift.sensitivities, part.shift.probabilities
        if len(values) > 2 or (len(values) == 2 and values[0] != 0.0):
            raise expected("mechanism of the joint-noise paper", "a mixture", "a sampled step", PrivacyError)
        mechanism = SkellamMechanism(part.noise_multiplier / values[-1], scale=2.0**32)
        total += part.steps * sampled_divergences(mechanism, weights[-1])
    return mironov_epsilon(np.asarray(ORDERS, dtype=np.float64), total, math.log(delta))[0]


@lru_cache(maxsize=64)
def skellam_noise(
    epsilon: float, delta: float, q: float, steps: int, scale: float = 2.0**16, dimension: int = PARAMETERS
) -> float:
    """The noise multiplier at which the paper's accounting gives exactly ε for one party."""

    def gap(log_sigma: float) -> float:
        mechanism = SkellamMechanism(math.exp(log_sigma), scale=scale, dimension=dimension)
        return skellam_epsilon(mechanism, q, steps, delta)[0] - epsilon

    low, high = math.log(0.1), math.log(2.0)
    while gap(high) > 0:
        high += 1.0
    while gap(low) < 0:
        low -= 0.5
    return math.exp(float(optimize.brentq(gap, low, high, xtol=1e-13)))
