"""Rényi accounting: mixtures of Gaussians by quadrature, sampled Gaussians by dp-accounting.

Last, the joint-noise paper's own (Heikkilä et al., arXiv 2407.19286, Theorem 4.7).
"""

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from subjectdp.accounting.events import Joined, PrivacyLoss, Shift, Told, Turned
from subjectdp.accounting.gaussian import clt_mu
from subjectdp.errors import PrivacyError, expected

Floats = NDArray[np.float64]

ORDERS: tuple[float, ...] = (
    *(1.0 + step / 10 for step in range(1, 100)),
    *(float(order) for order in range(11, 65)),
    *(float(order) for order in (72, 80, 96, 128, 160, 192, 256, 384, 512, 768, 1024)),
)
INTEGER_ORDERS = tuple(order for order in ORDERS if order >= 2 and order == round(order))
_FEW_ORDERS = (
    *(1.0001, 1.0003, 1.001, 1.003, 1.01, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5),
    *(2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0),
)
NEAR_ONE: tuple[float, ...] = (1.0001, 1.0003, 1.001, 1.003, 1.01, 1.03, 1.1, 1.3, 1.7)
_RISES = 4  # the search stops after so many orders in a row without a better bound
_NODES = 4001
_MOST_NODES = 4_000_000
_TERMS = 1 << 16  # of a mixture's density at a time: they stay in the processor's cache
_REACH = 12.0  # standard deviations of the integrand that the quadrature covers on each side


def renyi_epsilon(loss: PrivacyLoss, delta: float, integer_orders: bool = False) -> float:
    """ε at δ: the sum of the parts' Rényi divergences (the larger direction of each), converted at the best order.

    An upper bound, about 5 % above the tight ε. ``integer_orders`` uses bounds that hold for Skellam noise too.
    Conversion: Canonne, Kamath, Steinke (arXiv 2004.00010, proposition 12).
    """
    log_delta = math.log(delta)
    if any(part.noise_multiplier <= 0 for part in loss):
        return math.inf
    if integer_orders:
        whole = sum(p.steps * integer_bounds(p.noise_multiplier, p.shift) for p in loss)
        return best_epsilon(np.asarray(INTEGER_BOUND_ORDERS), np.asarray(whole), log_delta)
    simple = [part for part in loss if _has_closed_form(part.shift)]
    mixtures = tuple(part for part in loss if not _has_closed_form(part.shift))

    def divergences(orders: tuple[float, ...]) -> Floats:
        steps = (part.steps * step_divergences(part.noise_multiplier, part.shift, orders) for part in simple)
        return np.asarray(sum(steps, np.zeros(len(orders))))

    if mixtures:
        others = zip(ORDERS, divergences(ORDERS), strict=True)
        return _ascending((quadrature_epsilon(mixtures, log_delta, (a,), more) for a, more in others), _RISES)
    orders = orders_around_the_best(divergences, ORDERS, log_delta)
    return best_epsilon(np.asarray(orders), divergences(orders), log_delta)


def orders_around_the_best(
    divergences: Callable[[tuple[float, ...]], Floats], orders: Sequence[float], log_delta: float
) -> tuple[float, ...]:
    """The orders from the whole one before the best whole one to the one after it: one of them is the best of all.

    The bound at an order a is a convex function of a over a - 1. Accountants sum a short series at whole orders only.
    """
    whole = sorted(order for order in orders if order == round(order))
    best, low = math.inf, 1.0
    for before, order in zip([1.0, *whole], whole, strict=False):
        bound = float(converted(np.array([order]), divergences((order,)), log_delta)[0])
        if bound > best:
            return tuple(each for each in orders if low <= each <= order)
        best, low = bound, before
    return tuple(each for each in orders if each >= low)


def _has_closed_form(shift: Shift) -> bool:
    """A Gaussian, or a sampled one."""
    values = shift.sensitivities
    return type(shift) is Shift and (len(values) == 1 or (len(values) == 2 and values[0] == 0.0))


def rough_bound(loss: PrivacyLoss, delta: float) -> float:
    """A quick upper bound on ε from a few orders by quadrature, for losses too large for a grid."""
    return _ascending((quadrature_epsilon(loss, math.log(delta), (order,)) for order in _FEW_ORDERS), 2)


def _ascending(bounds: Iterable[float], rises: int) -> float:
    """The best bound over ascending orders, which fall, then rise: until so many in a row are no better."""
    best, worse = math.inf, 0
    for bound in bounds:
        worse = worse + 1 if bound > best else 0
        best = min(best, bound)
        if worse == rises:
            break
    return best


def quick_bounds(losses: Sequence[PrivacyLoss], delta: float) -> list[float]:
    """An upper bound on ε of each of many losses, at the three orders around the best one of what seems the largest."""
    log_delta = math.log(delta)
    largest = max(losses, key=clt_mu)
    best = 4 + int(np.argmin([quadrature_epsilon(largest, log_delta, (order,)) for order in _FEW_ORDERS[4:]]))
    orders = _FEW_ORDERS[best - 1 : best + 2]
    return [quadrature_epsilon(loss, log_delta, orders) for loss in losses]


def quadrature_epsilon(loss: PrivacyLoss, log_delta: float, orders: tuple[float, ...], others: float = 0.0) -> float:
    """:func:`renyi_epsilon` at any orders above 1, by quadrature, and at log δ: δ may underflow.
    ``others``: the divergence of what else is composed, at the one order."""
    total = np.full(len(orders), others)
    for part in loss:
        step = [mixture_divergence(order, part.noise_multiplier, part.shift) for order in orders]
        total += part.steps * np.asarray(step)
    return best_epsilon(np.asarray(orders), total, log_delta)


def orders_for(epsilon: float, log_delta: float) -> tuple[float, ...]:
    """Orders around 1 + 2 log(1/δ)/ε, the best order of a Gaussian mechanism with a small ε."""
    best = -2 * log_delta / epsilon
    return tuple(1.0 + best * factor for factor in (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5))


def best_epsilon(orders: Floats, divergences: Floats, log_delta: float) -> float:
    """min over orders of D + log((a-1)/a) - (log δ + log a)/(a-1), at least 0."""
    values = converted(orders, divergences, log_delta)
    finite = values[np.isfinite(values)]
    return max(0.0, float(finite.min())) if finite.size else math.inf


def converted(orders: Floats, divergences: Floats, log_delta: float) -> Floats:
    """The bound on ε at each order."""
    return divergences + np.log1p(-1 / orders) - (log_delta + np.log(orders)) / (orders - 1)


def mironov_epsilon(orders: Floats, divergences: Floats, log_delta: float) -> tuple[float, float]:
    """(ε, best order) by Mironov's own conversion, D + log(1/δ)/(a-1) (arXiv 1702.07476, proposition 3)."""
    values = divergences - log_delta / (orders - 1)
    best = int(np.nanargmin(values))
    return float(values[best]), float(orders[best])


@lru_cache(maxsize=8192)
def loss_spread(sigma: float, shift: Shift) -> float:
    """Standard deviation of one step's privacy loss log P/Q under P, by the trapezoid rule."""
    if isinstance(shift, Joined):
        return max(math.sqrt(steps) * loss_spread(sigma * ratio, part) for ratio, steps, part in shift.parts)
    reach = _REACH * sigma
    low, high = shift.sensitivities[0] - reach, shift.sensitivities[-1] + reach
    points = np.linspace(low, high, min(max(_NODES, int((high - low) / sigma * 16) + 1), _MOST_NODES))
    losses = _log_likelihood_ratio(points, sigma, shift)
    masses = np.exp(losses - 0.5 * (points / sigma) ** 2)
    masses /= masses.sum()
    mean = float(masses @ losses)
    return math.sqrt(float(masses @ (losses - mean) ** 2))


@lru_cache(maxsize=8192)
def step_divergences(sigma: float, shift: Shift, orders: tuple[float, ...] = ORDERS) -> Floats:
    """Rényi divergences of one step at the given orders: the larger of the two directions."""
    values, weights = shift.sensitivities, shift.probabilities
    if not _has_closed_form(shift):
        return np.array([mixture_divergence(order, sigma, shift) for order in orders])
    if len(values) == 1:
        return np.asarray(orders) * (values[0] / sigma) ** 2 / 2
    return _sampled_gaussian(weights[1], sigma / values[1], orders)


def _sampled_gaussian(q: float, sigma: float, orders: tuple[float, ...]) -> Floats:
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(list(orders))
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)  # dp-accounting warns of each fractional order that it skips
    try:
        accountant.compose(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma)))
    finally:
        logger.setLevel(level)
    return np.asarray(accountant._rdp, dtype=np.float64)


@lru_cache(maxsize=1 << 15)
def mixture_divergence(order: float, sigma: float, shift: Shift) -> float:
    """max of D_a(P‖Q) and D_a(Q‖P) for Q = N(0, σ²), P = Σ p_j N(s_j, σ²), by the trapezoid rule.

    They are logs of E_Q[L^a] and E_Q[L^(1-a)] with L = P/Q. The integrands are smooth and concentrate between
    (1-a)·s_max and a·s_max, so the trapezoid rule converges faster than any power of the step.
    """
    if isinstance(shift, Told):
        parts = [
            math.log(weight) + (order - 1) * sum(n * mixture_divergence(order, sigma * r, s) for r, n, s in series)
            for weight, series in shift.parts
        ]
        return float(np.logaddexp.reduce(parts)) / (order - 1)
    if isinstance(shift, Joined):
        return max(steps * mixture_divergence(order, sigma * r, part) for r, steps, part in shift.parts)
    if isinstance(shift, Turned):
        return _turned_divergence(order, sigma, shift)
    top = shift.sensitivities[-1]
    # The step must resolve a Gaussian of width sigma over a reach that grows with the order.
    low, high = -(order - 1) * top - _REACH * sigma, order * top + _REACH * sigma
    if (count := max(_NODES, int((high - low) / sigma * 16) + 1)) > _MOST_NODES:
        return math.inf
    points = np.linspace(low, high, count)
    log_ratio = _log_likelihood_ratio(points, sigma, shift)
    log_base = -0.5 * (points / sigma) ** 2 - math.log(sigma * math.sqrt(2 * math.pi))
    width = math.log(points[1] - points[0])
    forward = _log_sum(order * log_ratio + log_base) + width
    backward = _log_sum((1 - order) * log_ratio + log_base) + width
    return max(0.0, forward, backward) / (order - 1)


def _turned_divergence(order: float, sigma: float, shift: Turned) -> float:
    """D_a of the symmetric law of ``events.Turned``, by the trapezoid rule over outcomes beyond the middle.
    With P and Q of its pair, E[(P*/Q*)^a] = ∫ (P^a Q^(1-a) + Q^a P^(1-a)) + 1 - ∫ (P + Q), over x > 1 - b/2."""
    moved, q = shift.sensitivities[1], shift.probabilities[1]
    low = 1.0 - moved / 2
    high = max(1.0, 1.0 + (order - 1) * moved, order * 1.0) + _REACH * sigma
    if (count := max(_NODES, int((high - low) / sigma * 64) + 1)) > _MOST_NODES:
        return math.inf
    points, width = np.linspace(low, high, count, retstep=True)
    absent = math.log1p(-q) - 0.5 * (points / sigma) ** 2
    ends = [np.logaddexp(absent, math.log(q) - 0.5 * ((points - s) / sigma) ** 2) for s in (1.0, 1.0 - moved)]
    scale = math.log(width / (sigma * math.sqrt(2 * math.pi)))
    first, second = (end + scale for end in ends)
    halves = np.ones(count)
    halves[[0, -1]] = 0.5
    terms = np.log(halves) + np.logaddexp(order * first + (1 - order) * second, order * second + (1 - order) * first)
    rest = 1.0 - float(halves @ (np.exp(first) + np.exp(second)))
    return max(0.0, float(np.logaddexp(np.logaddexp.reduce(terms), math.log(max(rest, 1e-300))))) / (order - 1)


def _log_likelihood_ratio(points: Floats, sigma: float, shift: Shift) -> Floats:
    values, weights = np.asarray(shift.sensitivities)[:, None], np.log(shift.probabilities)[:, None]
    result, size = np.empty_like(points), max(1, _TERMS // len(values))  # all at once may take gigabytes
    for start in range(0, len(points), size):
        terms = weights + (values * points[start : start + size] - values**2 / 2) / sigma**2
        peak = terms.max(axis=0)
        result[start : start + size] = peak + np.log(np.exp(terms - peak).sum(axis=0))
    return result


def _log_sum(values: Floats) -> float:
    peak = float(values.max())
    return peak + math.log(float(np.exp(values - peak).sum()))


def opacus_epsilon(loss: PrivacyLoss, delta: float) -> float:
    """ε from Opacus' RDP accountant, as papers that used Opacus claim it; for Poisson-sampled Gaussians only.

    Orders above Opacus' 63 are for a small ε, which its own do not reach (at δ = 1e-5 nothing below 0.1). Raises
    PrivacyError for other mechanisms, and where Opacus is not installed.
    """
    try:
        from opacus import accountants  # here: an optional package
    except ModuleNotFoundError as missing:
        allowed = "one that needs no Opacus (pip install 'subjectdp[opacus]' installs it)"
        raise expected("accountant", "opacus", allowed, PrivacyError) from missing
    if not all(_has_closed_form(part.shift) for part in loss):
        raise expected("mechanism for Opacus' accountant", "mixture of Gaussians", "a sampled Gaussian", PrivacyError)
    accountant: Any = accountants.RDPAccountant()
    atoms = ((p.shift.sensitivities[-1], p.shift.probabilities[-1]) for p in loss)
    accountant.history = [(p.noise_multiplier / s, q, p.steps) for p, (s, q) in zip(loss, atoms, strict=True)]

    def divergences(orders: tuple[float, ...]) -> Floats:
        compute = accountants.analysis.rdp.compute_rdp
        steps = (compute(q=q, noise_multiplier=s, steps=n, orders=orders) for s, q, n in accountant.history)
        return np.asarray(sum(steps))

    every = [*map(float, accountant.DEFAULT_ALPHAS), *(order for order in ORDERS if order > 63)]
    orders = orders_around_the_best(divergences, every, math.log(delta))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the best order is the first or the last
        return float(accountant.get_epsilon(delta=delta, alphas=list(orders)))


INTEGER_BOUND_ORDERS = NEAR_ONE + INTEGER_ORDERS


def integer_bounds(sigma: float, shift: Shift) -> Floats:
    """Bounds that hold for integer noise on one step's Rényi divergence, at the ``INTEGER_BOUND_ORDERS``."""
    if isinstance(shift, Joined):
        return np.asarray(np.max([n * integer_bounds(sigma * r, part) for r, n, part in shift.parts], axis=0))
    near, whole = divergences_near_one(sigma, shift), integer_divergences(sigma, shift, INTEGER_ORDERS)
    return np.concatenate([near, whole])


def divergences_near_one(sigma: float, shift: Shift) -> Floats:
    """Bounds on the Rényi divergence of one step, either direction, at the orders ``NEAR_ONE``."""
    beyond = np.asarray(NEAR_ONE)[:, None] - 1
    squares = (np.asarray(shift.sensitivities) / sigma) ** 2
    return np.asarray(logsumexp(np.log(shift.probabilities) + beyond * squares, axis=1) / beyond[:, 0])


@lru_cache(maxsize=512)
def integer_divergences(sigma: float, shift: Shift, orders: tuple[float, ...]) -> Floats:
    """Bounds on the Rényi divergence of one step at integer orders: the larger of the two directions."""
    if isinstance(shift, Told | Turned):
        raise PrivacyError("No bound is known for integer noise and draws that are known or shared.")
    values, weights = np.asarray(shift.sensitivities), np.asarray(shift.probabilities)
    moved = values > 0
    if (chance := float(weights[moved].sum())) == 0.0:
        return np.zeros(len(orders))
    squares = values[moved] ** 2 / (2 * sigma**2)
    log_weights = np.log(weights[moved] / weights[moved].sum())

    def divergence(order: int) -> float:
        powers = np.arange(order + 1.0)
        below = np.maximum(powers - 1.0, 0.0)  # l - 1; both ends, l = 0 and 1, have the moment 1
        together = powers * logsumexp(log_weights[:, None] + below * squares[:, None], axis=0)
        forward = _moment(order, min(1.0, chance), together[None, :])[0]
        if len(squares) == 1:
            return float(forward) / (order - 1)
        alone = _moment(order, min(1.0, chance), powers * below * squares[:, None])
        return max(float(forward), float(logsumexp(log_weights + alone))) / (order - 1)

    return np.array([divergence(round(order)) for order in orders])


def _moment(order: int, chance: float, log_moments: Floats) -> Floats:
    """log Σ_l C(a,l) (1-p)^(a-l) p^l e^(moment_l) for each row of ``log_moments`` (rows, a + 1)."""
    if chance == 1.0:
        return np.asarray(log_moments[:, -1])
    powers = np.arange(order + 1.0)
    chosen = gammaln(order + 1) - gammaln(powers + 1) - gammaln(order - powers + 1)
    law = chosen + (order - powers) * math.log1p(-chance) + powers * math.log(chance)
    return np.asarray(logsumexp(law + log_moments, axis=1))


# --- the joint-noise paper's accounting: the Skellam mechanism under Poisson sampling ------------------------------

PARAMETERS = 10_250  # of the paper's model
SKELLAM_ORDERS = tuple(range(2, 64))


@dataclass(frozen=True)
class SkellamMechanism:
    """Integer noise Skellam(μ, μ) with variance (scale·σ)² on gradients clipped to 1, scaled by ``scale`` and rounded.

    ``noise_multiplier``: of the whole sum. ``scale``: quantisation steps in a clip norm; ``dimension``: of parameters.
    """

    noise_multiplier: float
    scale: float = 2.0**16
    dimension: int = PARAMETERS

    def divergence(self, order: int) -> float:
        """Agarwal et al., Theorem 3.5, with Δ₁ = min(√d Δ₂, Δ₂²)."""
        l2 = self.scale
        l1 = min(math.sqrt(self.dimension) * l2, l2 * l2)
        variance = (self.scale * self.noise_multiplier) ** 2
        correction = min(((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
        return order * l2**2 / (2 * variance) + correction


def sampled_divergences(mechanism: SkellamMechanism, q: float, orders: tuple[int, ...] = SKELLAM_ORDERS) -> Floats:
    """Divergences of one Poisson-sampled step at integer orders (Zhu and Wang, ICML 2019, theorem 6)."""
    inner = np.array([mechanism.divergence(j) for j in range(max(orders) + 1)])
    inner[0] = 0.0
    moments = np.arange(-1.0, len(inner) - 1) * inner
    return np.array([_moment(a, q, moments[None, : a + 1])[0] / (a - 1) for a in orders])


def skellam_epsilon(mechanism: SkellamMechanism, q: float, steps: int, delta: float) -> tuple[float, float]:
    """(ε, best order) of ``steps`` sampled Skellam steps, by the paper's conversion."""
    divergences = steps * sampled_divergences(mechanism, q)
    return mironov_epsilon(np.asarray(SKELLAM_ORDERS, dtype=np.float64), divergences, math.log(delta))


def claimed_epsilon(loss: PrivacyLoss, delta: float) -> float:
    """The ε that the paper's accounting gives for Poisson-sampled steps, with Skellam noise on 32 bits.
    At 32 bits the divergences are those of Gaussian noise to ten digits. Raises PrivacyError for other mechanisms."""
    if not all(_has_closed_form(part.shift) for part in loss):
        raise expected("mechanism of the joint-noise paper", "a mixture", "a sampled step", PrivacyError)
    total = np.zeros(len(SKELLAM_ORDERS))
    for part in loss:
        mechanism = SkellamMechanism(part.noise_multiplier / part.shift.sensitivities[-1], scale=2.0**32)
        total += part.steps * sampled_divergences(mechanism, part.shift.probabilities[-1])
    return mironov_epsilon(np.asarray(SKELLAM_ORDERS, dtype=np.float64), total, math.log(delta))[0]
