"""A privacy loss distribution composed with itself, and its ε: several times faster than dp-accounting does it.

Hand-written because nearly all of dp-accounting's time goes into the tails: it takes 40 moments of a step's loss by
scipy's logsumexp. Their exponents lie within 20 of 0, so that plain sums do (to be offered upstream). The bounds and
the truncated mass are dp-accounting's. So is the search for ε, which there is a loop over the points of the grid.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, signal

Floats = NDArray[np.float64]

_ORDERS = 20  # moments on each side of 0, as in dp-accounting
_TRUNCATED = 1e-15  # mass that may be cut, which counts as an infinite loss; dp-accounting's default
_NEGLIGIBLE = 1e-60  # of a spectrum whose largest value is 1


def self_composed(step: Any, times: int) -> Any:
    """``times`` independent steps of a dp-accounting PrivacyLossDistribution (pessimistic)."""
    from dp_accounting.pld import privacy_loss_distribution as pld  # here: light commands need not load it

    if times == 1:
        return step
    sides = [step._pmf_remove] if step._symmetric else [step._pmf_remove, step._pmf_add]
    return pld.PrivacyLossDistribution(*(_composed(side.to_dense_pmf(), times) for side in sides))


def composed(first: Any, second: Any) -> Any:
    """``first.compose(second)`` without dp-accounting's search for the tails, a loop over the points of the grid."""
    whole = first.compose(second, 0.0)
    sides = [whole._pmf_remove] if whole._symmetric else [whole._pmf_remove, whole._pmf_add]
    if not all(hasattr(side, "_probs") for side in sides):  # sparse: a few points
        return first.compose(second)
    return type(whole)(*map(_truncated, sides))


def _truncated(side: Any) -> Any:
    """Tails of at most half of ``_TRUNCATED`` each: the lower one counts as the lowest loss, the upper as infinite."""
    masses = side._probs
    low = _tail(masses)
    high = max(len(masses) - _tail(masses[::-1]), low + 1)
    kept = masses[low:high].copy()
    kept[0] += masses[:low].sum()
    infinite = side._infinity_mass + masses[high:].sum()
    return type(side)(
        side._discretization, side._lower_loss + low, kept, infinite, side._pessimistic_estimate
    )


def _tail(masses: Floats) -> int:
    """How many masses from the front on add up to at most half of ``_TRUNCATED``."""
    beyond = np.add.accumulate(masses) > _TRUNCATED / 2
    return int(np.argmax(beyond)) if beyond.any() else len(masses)


def epsilon_at(composed: Any, delta: float) -> float:
    """``composed.get_epsilon_for_delta(delta)`` of a dense distribution: the smallest ε ≥ 0 at δ, or infinity."""
    sides = [composed._pmf_remove] if composed._symmetric else [composed._pmf_remove, composed._pmf_add]
    return max(_epsilon(side.to_dense_pmf(), delta) for side in sides)


def hockey_sticks(masses: Floats, grid: float) -> Floats:
    """δ at each point of a grid with these masses of losses: Σ over the losses l above of (1 - e^(ε - l)) p."""
    above = np.cumsum(masses[::-1])[::-1] - masses
    shrink = math.exp(-grid)  # Σ e^(ε - l) p, from the top down
    shrunk = signal.lfilter([0.0, shrink], [1.0, -shrink], masses[::-1])[::-1]
    return np.asarray(above - shrunk)


def _epsilon(side: Any, delta: float) -> float:
    """Solves δ(ε) = Σ of (1 - e^(ε - loss)) p over the losses above ε, and the infinite one."""
    if side._infinity_mass > delta:
        return math.inf
    masses, width = side._probs[::-1], side._discretization
    steps = np.full(len(masses), -width)
    steps[0] = (side._lower_loss + len(masses) - 1) * width
    losses = np.add.accumulate(steps)  # downwards, by additions as in dp-accounting
    losses = losses[losses > 0]
    masses = masses[: len(losses)]
    above = np.cumsum(np.append(side._infinity_mass, masses))
    shrunk = np.cumsum(np.append(0.0, np.exp(-losses) * masses))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        solutions = np.log((above - delta) / shrunk)  # with the losses before each point
    unseen = (above >= delta) & (shrunk == 0)  # e^-loss is 0 for losses above 745
    unseen[0] = False
    if unseen.any():
        return float(losses[int(np.argmax(unseen)) - 1])
    found = (above[:-1] > delta) & (shrunk[:-1] > 0) & (solutions[:-1] >= losses)
    last = int(np.argmax(found)) if found.any() else len(losses)
    return 0.0 if above[last] <= shrunk[last] + delta else float(solutions[last])


def _composed(side: Any, times: int) -> Any:
    low, masses = self_convolved(side._probs, times)
    infinite = _TRUNCATED - math.expm1(times * math.log1p(-side._infinity_mass))
    lowest = side._lower_loss * times + low
    return type(side)(side._discretization, lowest, masses, infinite, side._pessimistic_estimate)


def self_convolved(masses: Floats, times: int) -> tuple[int, Floats]:
    """(offset, masses of the sum of ``times`` draws from ``offset`` on), without at most ``_TRUNCATED`` of the mass."""
    low, high = _kept(masses, times)
    length = fft.next_fast_len(max(high - low + 1, len(masses)), real=True)
    spectrum = fft.rfft(masses, length)
    large = np.abs(spectrum) > _NEGLIGIBLE ** (1 / times)  # the powers of most frequencies are as good as 0
    powers = np.zeros_like(spectrum)
    powers[large] = spectrum[large] ** times
    whole: Floats = fft.irfft(powers, length)
    return low, np.roll(whole, -low)[: high - low + 1]


def _kept(masses: Floats, times: int) -> tuple[int, int]:
    """The range outside of which Chernoff's bound leaves at most ``_TRUNCATED``."""
    size = len(masses)
    low, high = 0, (size - 1) * times
    growth = np.exp(np.arange(size) / size)
    rising = np.ones(size)
    for order in range(1, _ORDERS + 1):
        rising *= growth
        for sign, moment in ((1, (rising * masses).sum()), (-1, (masses / rising).sum())):
            bound = (times * math.log(moment) + math.log(2 / _TRUNCATED)) * size / (sign * order)
            if sign > 0:
                high = min(high, math.ceil(bound))
            else:
                low = max(low, math.floor(bound))
    return low, high
