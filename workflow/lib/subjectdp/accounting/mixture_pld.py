"""Privacy loss distributions of mixtures of Gaussians, without dp-accounting's loops in Python.

Hand-written because these loops take nearly all of the time (to be offered upstream). The inverse of the loss comes
from Newton's steps. The connect-the-dots discretisation and its pessimistic rounding are dp-accounting's
formulas on arrays, and its numbers to the last digit (a test).
"""

import math
from collections.abc import Callable, Sequence
from copy import copy
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from subjectdp.accounting.events import Joined, Shift, Told, Turned

Floats = NDArray[np.float64]

_NEWTON_STEPS = 60  # at most
_NEAR = 1e-9  # a step this small against the outcome has found it: δ's error is of the second order
_TERMS = 1 << 16  # atoms times points at a time: they stay in the processor's cache
_FAR = 10.0  # standard deviations; the mass beyond counts as an infinite loss
_SIDES = ("_pmf_remove", "_pmf_add")
_RARE = 1e-10  # below, 1 - (1 - p) is no longer p, which dp-accounting's range of losses rests on


def _dp() -> Any:
    """dp-accounting's modules of privacy losses, loaded where they are needed: light processes do without."""
    from dp_accounting import pld

    return pld


def step_pld(sigma: float, shift: Shift, grid: float) -> Any:
    """dp-accounting's PrivacyLossDistribution of one step of any shift; pessimistic, add/remove adjacency."""
    if isinstance(shift, Told):
        one = cache(lambda ratio, part: step_pld(sigma * ratio, part, grid))  # a silo is in many of the draws
        every = ((weight, [(one(r, s), n) for r, n, s in series]) for weight, series in shift.parts)
        return _mixed([(weight, composed(steps)) for weight, steps in every], grid)
    if isinstance(shift, Joined):
        return _joined([composed([(step_pld(sigma * r, s, grid), n)]) for r, n, s in shift.parts], grid)
    if isinstance(shift, Turned):
        return _turned_pld(sigma, shift, grid)
    values, laws = shift.sensitivities, _dp().privacy_loss_distribution
    if values == (0.0,):
        return laws.identity(value_discretization_interval=grid)
    if len(values) == 1:
        return laws.from_gaussian_mechanism(sigma, sensitivity=values[0], value_discretization_interval=grid)
    return mixture_pld(sigma, shift, grid)


Sides = tuple[int, list[Floats], list[float]]  # first grid point, then masses from it on and infinite mass of each run


def _side(runs: Sequence[Any], name: str) -> Sides:
    """The losses of runs in one direction, on the same points of their grid."""
    dense = [getattr(run, name).to_dense_pmf() for run in runs]
    low = min(pmf._lower_loss for pmf in dense)
    size = max(pmf._lower_loss + len(pmf._probs) for pmf in dense) - low
    masses = [np.pad(p._probs, (p._lower_loss - low, size - len(p._probs) - p._lower_loss + low)) for p in dense]
    return low, masses, [pmf._infinity_mass for pmf in dense]


def _combined(runs: list[Any], grid: float, combine: Callable[[list[Floats], list[float]], Any]) -> Any:
    """A distribution whose sides have the (masses, infinite mass) that ``combine`` makes of those of the runs."""
    sides = []
    for name in _SIDES:
        low, masses, infinite = _side(runs, name)
        combined, beyond = combine(masses, infinite)
        sides.append(_dp().pld_pmf.DensePLDPmf(grid, low, combined, beyond, True))
    return _dp().privacy_loss_distribution.PrivacyLossDistribution(*sides)


def excess(worse: Any, better: Any, grid: float) -> float:
    """By how much δ of ``better`` is above that of ``worse`` at most, at any ε, below 0 too, in either direction."""
    largest = 0.0
    for name in _SIDES:
        _, masses, infinite = _side([worse, better], name)
        first, second = (hockey_sticks(each, grid) + beyond for each, beyond in zip(masses, infinite, strict=True))
        largest = max(largest, float(np.max(second - first)))
    return largest


def _mixed(parts: list[tuple[float, Any]], grid: float) -> Any:
    """The losses of steps of which one is drawn with its weight, and the draw is told."""
    weights = [weight for weight, _ in parts]

    def mean(masses: list[Floats], infinite: list[float]) -> tuple[Floats, float]:
        total = sum((w * each for w, each in zip(weights, masses, strict=True)), np.zeros_like(masses[0]))
        return total, sum(w * each for w, each in zip(weights, infinite, strict=True))

    return _combined([step for _, step in parts], grid, mean)


def _joined(runs: list[Any], grid: float) -> Any:
    """The losses whose δ is the largest of the runs' at every point of the grid."""

    def largest(masses: list[Floats], infinite: list[float]) -> tuple[Floats, float]:
        of_runs = [hockey_sticks(each, grid) + beyond for each, beyond in zip(masses, infinite, strict=True)]
        deltas = np.maximum.accumulate(np.clip(np.max(of_runs, axis=0), 0, 1)[::-1])[::-1]
        return connected_dots(deltas, grid), deltas[-1]

    return _combined(runs, grid, largest)


def _turned_pld(sigma: float, shift: Turned, grid: float) -> Any:
    """The symmetric losses of ``events.Turned``: δ(ε) = h(e^ε), and δ(-ε) = 1 - e^-ε + e^-ε h(e^ε)."""
    moved, q = shift.sensitivities[1], shift.probabilities[1]
    epsilons: Floats = np.arange(math.ceil(largest_loss(sigma, shift) / grid) + 1.0) * grid
    deltas = turned_deltas(epsilons, sigma, q, moved)
    below = -np.expm1(-epsilons[:0:-1]) + np.exp(-epsilons[:0:-1]) * deltas[:0:-1]
    whole = np.concatenate([below, deltas])
    return _dp().privacy_loss_distribution.PrivacyLossDistribution(
        _dp().pld_pmf.DensePLDPmf(grid, 1 - len(epsilons), connected_dots(whole, grid), deltas[-1], True)
    )


def largest_loss(sigma: float, shift: Shift) -> float:
    """The loss at an outcome that is ten standard deviations off: about the reach of a step's losses."""
    if isinstance(shift, Told):
        return max(sum(n * largest_loss(sigma * r, part) for r, n, part in series) for _, series in shift.parts)
    if isinstance(shift, Joined):
        return max(largest_loss(sigma * ratio, part) for ratio, _, part in shift.parts)
    values, weights = np.asarray(shift.sensitivities), np.log(shift.probabilities)
    if isinstance(shift, Turned):
        gone = -_FAR * np.array([1.0, values[1]]) / sigma - np.array([1.0, values[1]]) ** 2 / (2 * sigma**2)
        absent, turned = weights + gone
        return float(np.logaddexp(weights[1], absent) - np.logaddexp(absent, turned))
    far = values[-1] + _FAR * sigma
    return float(np.logaddexp.reduce(weights + (values * far - values**2 / 2) / sigma**2))


def turned_deltas(epsilons: Floats, sigma: float, q: float, moved: float) -> Floats:
    """h(e^ε) of ``events.Turned`` for ascending ε ≥ 0.

    The outcome c below which N(0) exceeds the mixture solves log(((1-q)(α-1)/q) e^((2c-1)/2σ²) +
    α e^((2bc-b²)/2σ²)) = 0.
    """
    with np.errstate(divide="ignore"):
        rise = epsilons + np.log(-np.expm1(-epsilons))  # log(α - 1)
    offsets, reaches = np.stack([math.log((1 - q) / q) + rise, epsilons]), np.array([1.0, moved])
    points = _roots(offsets - reaches[:, None] ** 2 / (2 * sigma**2), reaches / sigma**2)
    kept = q * special.ndtr(points / sigma)
    lost = np.exp(math.log(q) + offsets + special.log_ndtr((points - reaches[:, None]) / sigma)).sum(axis=0)
    return np.maximum.accumulate(np.clip(kept - lost, 0, 1)[::-1])[::-1]


def _roots(offsets: Floats, slopes: Floats) -> Floats:
    """x with log Σ_i e^(a_i + b_i x) = 0 for each column a of ``offsets``, all b_i > 0: convex and rising, so that
    Newton's steps from above fall to it."""
    points: Floats = (-offsets / slopes[:, None]).min(axis=0)
    for _ in range(_NEWTON_STEPS):
        terms = offsets + slopes[:, None] * points
        peak = terms.max(axis=0)
        np.exp(np.subtract(terms, peak, out=terms), out=terms)
        total = terms.sum(axis=0)
        # a matrix product would start a thread for each core, which wait for those of other processes
        falls = (peak + np.log(total)) * total / np.einsum("i,ij->j", slopes, terms)
        points = points - falls
        if not (falls > _NEAR * np.abs(points)).any():
            break
    return points


def mixture_pld(sigma: float, shift: Shift, grid: float) -> Any:
    """dp-accounting's PrivacyLossDistribution of one step; pessimistic, add/remove adjacency."""
    loss_class, values = _fast_loss(), shift.sensitivities
    if values[0] == 0.0 and shift.probabilities[0] < _RARE:
        # a subject at many silos is absent from all mini-batches of a round with a probability such as 1e-30, which
        # moves to the next value: that can only increase ε
        return step_pld(sigma, Shift.of((values[1], *values[1:]), shift.probabilities), grid)
    adjacencies = _dp().privacy_loss_mechanism.AdjacencyType
    both, sides = loss_class(sigma, shift.sensitivities, shift.probabilities), []
    for adjacency in (adjacencies.REMOVE, adjacencies.ADD):
        loss = copy(both)  # making one takes scipy a millisecond
        loss.adjacency_type = adjacency
        bounds = loss.connect_dots_bounds()
        low, high = math.floor(bounds.epsilon_lower / grid), math.ceil(bounds.epsilon_upper / grid)
        deltas = _deltas(loss, np.arange(low, high + 1) * grid)
        dense = _dp().pld_pmf.DensePLDPmf(grid, low, connected_dots(deltas, grid), deltas[-1], True)
        sides.append(dense)  # dp-accounting tries whether sparse ones stay so
    return _dp().privacy_loss_distribution.PrivacyLossDistribution(*sides)


def _deltas(loss: Any, epsilons: Floats) -> Floats:
    """``loss.get_delta_for_epsilon`` of ascending values, without its loop over them."""
    absent = math.log1p(-loss._sampling_prob) if loss._sampling_prob < 1 else -math.inf
    adds = loss.adjacency_type.name == "ADD"
    between = epsilons < -absent if adds else epsilons > absent
    result = np.zeros_like(epsilons)
    if not adds:
        result[~between] = -np.expm1(epsilons[~between])
    points = loss.inverse_privacy_losses(epsilons[between])
    result[between] = loss.mu_upper_cdf(points) - np.exp(epsilons[between] + loss.mu_lower_log_cdf(points))
    # rounding may let δ rise with ε
    return np.maximum.accumulate(np.clip(result, 0, 1)[::-1])[::-1]


def connected_dots(deltas: Floats, grid: float) -> Floats:
    """The masses on a grid whose δ at each of its points is ``deltas`` (falling), as few as can be.
    Algorithm 1 of arXiv 2207.04380: between two grid points δ is linear in e^ε, which is never below the real one."""
    if len(deltas) == 1:
        return 1 - deltas
    rise = np.diff(deltas)
    masses = np.empty_like(deltas)
    masses[0] = 1 - deltas[0] + rise[0] / math.expm1(grid)
    masses[1:-1] = (rise[1:] - rise[:-1] * math.exp(grid)) / math.expm1(grid)
    masses[-1] = rise[-1] / math.expm1(-grid)
    return np.maximum(0.0, masses)


@lru_cache(maxsize=1)
def _fast_loss() -> Any:
    mechanism = _dp().privacy_loss_mechanism

    class FastMixtureLoss(mechanism.MixtureGaussianPrivacyLoss):  # type: ignore[misc, name-defined]
        """dp-accounting's mixture loss; the binary search and loops over points are replaced."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            if self.sensitivities.min() > 0.0:
                self._sampling_prob = 1.0  # the sum of the probabilities, without its rounding

        def noise_cdf(self, x: Any) -> Any:
            return special.ndtr(np.asarray(x) / self._standard_deviation)

        def noise_log_cdf(self, x: Any) -> Any:
            return special.log_ndtr(np.asarray(x) / self._standard_deviation)

        def _inverse_privacy_losses_with_range(
            self, privacy_losses: Floats, bounds: tuple[float, float], precision: float = 1e-6
        ) -> Floats:
            sign = 1.0 if self.adjacency_type == mechanism.AdjacencyType.ADD else -1.0
            offsets, values = np.asarray(self._precompute_privacy_loss_constants), -sign * np.asarray(privacy_losses)
            moving = self.sensitivities > 0
            if not moving.all():
                values = values + np.log(-np.expm1(offsets[~moving] - values))  # log(e^value - p_0)
            offsets, slopes = offsets[moving, None], self.sensitivities[moving] / self._variance
            parts = np.array_split(values, 1 + len(values) * len(slopes) // _TERMS)
            return np.clip(sign * np.concatenate([_roots(offsets - part, slopes) for part in parts]), *bounds)

    return FastMixtureLoss


_ORDERS = 6  # of Chernoff's bound, each twice the one before; more would weigh the transforms' rounding
_TRUNCATED = 1e-15  # mass that may be cut, which counts as an infinite loss; dp-accounting's default
_NEGLIGIBLE = 1e-60  # of a spectrum whose largest value is 1


def composed(runs: Sequence[tuple[Any, int]]) -> Any:
    """So many independent steps of each of dp-accounting's PrivacyLossDistributions (pessimistic)."""
    if len(runs) == 1 and runs[0][1] == 1:
        return runs[0][0]

    def side(name: str) -> Any:
        parts = [(getattr(step, name).to_dense_pmf(), times) for step, times in runs]
        low, masses = convolved([(part._probs, times) for part, times in parts])
        infinite = _TRUNCATED - math.expm1(sum(times * math.log1p(-part._infinity_mass) for part, times in parts))
        lowest, first = low + sum(part._lower_loss * times for part, times in parts), parts[0][0]
        return type(first)(first._discretization, lowest, masses, infinite, first._pessimistic_estimate)

    sides = map(side, _SIDES[:1] if all(step._symmetric for step, _ in runs) else _SIDES)
    return _dp().privacy_loss_distribution.PrivacyLossDistribution(*sides)


def epsilon_at(composed: Any, delta: float) -> float:
    """``composed.get_epsilon_for_delta(delta)`` of a dense distribution without its loop, or infinity.
    Solves δ(ε) = Σ of (1 - e^(ε - loss)) p over the losses above ε, and the infinite one, for the smallest ε ≥ 0."""

    def solved(side: Any) -> float:
        if side._infinity_mass > delta or not math.isfinite(side._probs.sum()):  # the powers of a spectrum may overflow
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
        reached = (above[:-1] > delta) & (shrunk[:-1] > 0) & (solutions[:-1] >= losses)
        last = int(np.argmax(reached)) if reached.any() else len(losses)
        return 0.0 if above[last] <= shrunk[last] + delta else float(solutions[last])

    return max(solved(getattr(composed, name).to_dense_pmf()) for name in _SIDES[: 1 if composed._symmetric else 2])


def hockey_sticks(masses: Floats, grid: float) -> Floats:
    """δ at each point of a grid with these masses of losses: Σ over the losses l above of (1 - e^(ε - l)) p."""
    from scipy import signal  # here: it takes 0.6 s to load, and few plans need it

    above = np.cumsum(masses[::-1])[::-1] - masses
    shrink = math.exp(-grid)  # Σ e^(ε - l) p, from the top down
    shrunk = signal.lfilter([0.0, shrink], [1.0, -shrink], masses[::-1])[::-1]
    return np.asarray(above - shrunk)


def convolved(parts: Sequence[tuple[Floats, int]]) -> tuple[int, Floats]:
    """(offset, masses of the sum of so many draws from each from ``offset`` on), without ``_TRUNCATED`` at most."""
    low, high = _kept(parts)
    length = fft.next_fast_len(max(high - low + 1, *(len(masses) for masses, _ in parts)), real=True)
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    for masses, times in parts:
        each = fft.rfft(masses, length)
        large = np.abs(each) > _NEGLIGIBLE ** (1 / times)  # the powers of most frequencies are as good as 0
        spectrum[large] *= each[large] ** times
        spectrum[~large] = 0.0
    whole: Floats = fft.irfft(spectrum, length)
    return low, np.maximum(0.0, np.roll(whole, -low)[: high - low + 1])  # rounding may leave less


def _kept(parts: Sequence[tuple[Floats, int]]) -> tuple[int, int]:
    """The range outside of which Chernoff's bound leaves at most ``_TRUNCATED``."""
    size = max(len(masses) for masses, _ in parts)
    low, high = 0, sum((len(masses) - 1) * times for masses, times in parts)
    rising, order = np.exp(np.arange(size) / size), 1
    for _ in range(_ORDERS):
        for sign, powers in ((1, rising), (-1, 1 / rising)):
            moments = sum(times * math.log((powers[: len(masses)] * masses).sum()) for masses, times in parts)
            bound = (moments + math.log(2 / _TRUNCATED)) * size / (sign * order)
            if sign > 0:
                high = min(high, math.ceil(bound))
            else:
                low = max(low, math.floor(bound))
        rising, order = rising * rising, 2 * order
    return low, high
