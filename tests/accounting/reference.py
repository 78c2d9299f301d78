"""ε by a composition apart from this project's accounting and from dp-accounting, and ε by dp-accounting itself.

Pairs of Gaussian mixtures, privacy losses on a grid, Fourier transforms. The laws are written down by the tests, from
the algorithms' pseudo-code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import comb
from typing import Any

import numpy as np
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from scipy import stats

DELTA, BINS, REACH = 1e-5, 2**18, 40.0  # losses on a grid of width 3e-4, from -40 to 40
STILL = {0.0: 1.0}

Law = Mapping[float, float]
"""How far an outcome is moved, and the probability of that."""


@dataclass(frozen=True)
class Release:
    """``times`` releases with noise N(0, σ²), moved by ``there`` or, in the neighbour, by ``gone``.

    Each happens with the probability ``chance``, as everybody knows then; if it does, there are ``at_once``.
    """

    there: Law
    sigma: float
    times: int
    gone: Law
    chance: float = 1.0
    at_once: int = 1


def sampled(q: float, moved: float = 1.0) -> Law:
    return {0.0: 1.0 - q, moved: q} if moved else {0.0: 1.0}


def binomial(n: int, q: float) -> Law:
    return {float(j): comb(n, j) * q**j * (1 - q) ** (n - j) for j in range(n + 1)}


def added(*laws: Law) -> Law:
    """The law of the sum of independent moves."""
    total: dict[float, float] = {}
    for moves in product(*(law.items() for law in laws)):
        value = sum(move for move, _ in moves)
        total[value] = total.get(value, 0.0) + float(np.prod([p for _, p in moves]))
    return total


def epsilon(releases: Sequence[Release], delta: float = DELTA, reach: float = REACH) -> float:
    """ε of all releases together, on losses up to ``reach``: the larger of both directions."""
    return max(_smallest(releases, delta, reach, forwards) for forwards in (True, False))


def composed(law: Law, sigma: float, steps: int) -> float:
    return epsilon([Release(law, sigma, steps, STILL)])


def _smallest(releases: Sequence[Release], delta: float, reach: float, forwards: bool) -> float:
    width = 2 * reach / BINS
    spectrum = np.ones(BINS // 2 + 1, complex)
    for release in releases:
        one = np.fft.rfft(np.roll(_losses(release, forwards, reach), -BINS // 2))
        spectrum *= (1 - release.chance + release.chance * one**release.at_once) ** release.times
    masses = np.roll(np.fft.irfft(spectrum, BINS), BINS // 2)
    losses = np.arange(BINS) * width - reach

    def divergence(level: float) -> float:
        above = losses > level
        return float(np.sum(masses[above] * -np.expm1(level - losses[above])))

    low, high = 0.0, 0.9 * reach
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(middle) > delta else (low, middle)
    return high


def _losses(release: Release, forwards: bool, reach: float) -> np.ndarray:
    """Masses of one release's loss; each loss is split between two grid points."""
    first, second = (release.there, release.gone) if forwards else (release.gone, release.there)
    ends = [*first, *second]
    y = np.linspace(min(ends) - 12 * release.sigma, max(ends) + 12 * release.sigma, 60_001)
    one, other = _log_density(y, first, release.sigma), _log_density(y, second, release.sigma)
    mass = np.exp(one) * (y[1] - y[0]) / (release.sigma * np.sqrt(2 * np.pi))
    place = np.clip((one - other + reach) * BINS / (2 * reach), 0, BINS - 2)
    low = np.floor(place).astype(int)
    share = place - low
    return np.bincount(low, mass * (1 - share), BINS) + np.bincount(low + 1, mass * share, BINS)


def _log_density(y: np.ndarray, law: Law, sigma: float) -> np.ndarray:
    terms = [np.log(p) - 0.5 * ((y - move) / sigma) ** 2 for move, p in law.items() if p > 0]
    return np.logaddexp.reduce(terms, axis=0)


def by_dp_accounting(*parts: tuple[Any, int], grid: float = 2e-3) -> float:
    """ε at δ = 1e-5 of events and how often they happen; a coarse grid errs by at most a percent upwards."""
    accountant: Any = PLDAccountant(value_discretization_interval=grid)
    for event, times in parts:
        accountant.compose(event, times)
    return float(accountant.get_epsilon(DELTA))


def sampled_gaussian_event(q: float, sigma: float) -> Any:
    return dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma))


def items_of_a_subject(q: float, k: int, sigma: float) -> Any:
    weights = stats.binom.pmf(range(k + 1), k, q).tolist()
    return dp_event.MixtureOfGaussiansDpEvent(sigma, list(range(k + 1)), weights)
