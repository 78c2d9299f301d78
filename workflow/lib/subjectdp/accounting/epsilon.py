"""ε of a loss: dp-accounting's privacy loss distributions as the authority, RDP as the alternative."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from subjectdp.accounting import gaussian, renyi
from subjectdp.accounting.events import PrivacyLoss, Shift, single_steps
from subjectdp.accounting.mixture_pld import composed, epsilon_at, largest_loss, step_pld
from subjectdp.errors import expected, unknown
from subjectdp.plan.plan import Accountant

ACCOUNTANTS = tuple(Accountant)
SEARCH, FINAL = 10.0, 25.0  # grid points for each standard deviation of one step's privacy loss
_COARSEST = 5e-4  # widest grid of a final value (search: five times that)
_SMALL_DELTA = 1e-8  # below, what millions of steps lose of the Fourier transforms is as large as δ
_SMALLEST_DELTA = 1e-12  # below, so is the rounding of a single one
_LARGEST_EPSILON = 2000.0  # above, the grid follows the spread of the losses and their far tails are cut
_LARGE_MU = 4.0  # from here on ε is so large that the grid is chosen against ε itself
_RELATIVE_GRID = 2e-5
_WORTH_TRUNCATING = 50.0  # Rényi bounds above it are tried without the far tails
_TAIL_SHARE = 1e-3  # of δ, charged for the far tails of a step's shift: a grid for them would be a coarse one
_POINTS_A_SPREAD = 20.0  # grid points for each standard deviation of one step's loss, for an ε of thousands
_WINDOW = 25.0  # standard deviations that a composed loss is kept over
_MOST_POINTS = 2**19  # of its grid
_LONG_REACH = 3.0  # a loss that a grid made for the usual ones would have too many points up to
_GRID_OF_RARE_LOSSES = 1e-4  # there; dp-accounting's own
_COMPARED_POINTS = 2**15  # of the grid that silos are compared on
_COARSER = 16.0  # times that for people, of whom there may be thousands
_WIDEST_GRID = 700.0  # e to it is still a floating-point number
_SHARE = 0.05  # of δ, charged for the tails
_step_pld = lru_cache(maxsize=64)(step_pld)


def epsilon_of(loss: PrivacyLoss, delta: float, accountant: str = "pld", resolution: float = FINAL) -> float:
    """The smallest ε the accountant can prove at δ for a composition; infinite without noise.

    ``resolution``: grid points for each standard deviation of a step's loss; a coarser grid errs on the safe side.
    Raises ConfigError for an unknown accountant, PrivacyError where it cannot handle the mechanism.
    """
    loss = tuple(part for part in loss if part.steps > 0 and part.shift.sensitivities[-1] > 0)
    if accountant not in ACCOUNTANTS:
        raise unknown("accountant", accountant, ACCOUNTANTS)
    if not 0 < delta < 1:
        raise expected("delta", delta, "between 0 and 1")
    if not loss:
        return 0.0
    if any(not part.noise_multiplier > 0 for part in loss):
        return math.inf
    if accountant in ("rdp", "rdp_integer"):
        return _renyi_or_truncated(loss, delta, accountant == "rdp_integer")
    if accountant == "opacus":
        return renyi.opacus_epsilon(loss, delta)
    if accountant == "mironov":
        return renyi.claimed_epsilon(loss, delta)
    return _pld_or_bound(loss, delta, resolution)


def _renyi_or_truncated(loss: PrivacyLoss, delta: float, integer_orders: bool) -> float:
    """The Rényi bound. A large one is compared with the bound for truncated tails, which orders near 1 improve."""

    def bound(part: PrivacyLoss, remaining: float) -> float:
        epsilon = renyi.renyi_epsilon(part, remaining, integer_orders)
        return epsilon if integer_orders else min(epsilon, renyi.rough_bound(part, remaining))

    whole = renyi.renyi_epsilon(loss, delta, integer_orders)
    return whole if whole < _WORTH_TRUNCATING else min(whole, truncated_tail_bound(loss, delta, bound))


@lru_cache(maxsize=512)  # a run's statements ask for the same losses again
def _pld_or_bound(loss: PrivacyLoss, delta: float, resolution: float) -> float:
    """The closed form if there is one, else the PLD; the Rényi bound where it is less or δ too small for a grid."""
    if (exact := gaussian.exact_mu(loss)) is not None:
        return gaussian.gdp_epsilon(exact, delta)
    least = renyi.renyi_epsilon(loss, delta) if delta < _SMALL_DELTA else math.inf
    if delta < _SMALLEST_DELTA:
        return least
    return min(least, truncated_tail_bound(loss, delta, partial(_pld_or_large, resolution=resolution), _TAIL_SHARE))


def _pld_or_large(loss: PrivacyLoss, delta: float, resolution: float) -> float:
    """The PLD on a grid chosen for ε; :func:`large_epsilon` where a rough bound says that ε is in the thousands."""
    mu = gaussian.clt_mu(loss)
    bound = renyi.rough_bound(loss, delta) if mu > _LARGE_MU else 0.0
    if bound > _LARGEST_EPSILON:
        return min(bound, truncated_tail_bound(loss, delta, large_epsilon))
    epsilon = pld_epsilon(loss, delta, max(grid_width(loss, mu, resolution), _RELATIVE_GRID * bound))
    return epsilon if math.isfinite(epsilon) else renyi.rough_bound(loss, delta)


def large_epsilon(loss: PrivacyLoss, delta: float) -> float:
    """The PLD on a grid for ε in the thousands: coarse against 1, fine against the spread of a step's loss.
    Where a loss without its far tails is too small for that, the grid is that of a smaller ε."""
    finest = min(renyi.loss_spread(part.noise_multiplier, part.shift) for part in loss) / _POINTS_A_SPREAD
    widest = max(part.shift.sensitivities[-1] ** 2 / part.noise_multiplier**2 for part in loss)
    epsilon = pld_epsilon(loss, delta, max(finest, _WINDOW * total_spread(loss) / _MOST_POINTS, widest / _MOST_POINTS))
    if math.isfinite(epsilon):
        return epsilon
    grid = grid_width(loss, gaussian.clt_mu(loss), FINAL)
    return pld_epsilon(loss, delta, max(grid, _RELATIVE_GRID * renyi.rough_bound(loss, delta)))


def total_spread(loss: PrivacyLoss) -> float:
    """Standard deviation of a composed loss; finite where moments of the likelihood ratio are not."""
    return math.sqrt(sum(p.steps * renyi.loss_spread(p.noise_multiplier, p.shift) ** 2 for p in loss))


def grid_width(loss: PrivacyLoss, mu: float, resolution: float) -> float:
    """The grid width of the PLD: fine against one step's loss, since rounding adds variance at each step.
    A rare unit has a rare large loss and else next to none: against their spread a grid would take gigabytes."""
    per_step = min(
        gaussian.step_chi_square(sigma, shift)
        for part in loss
        for sigma, shift in single_steps(part.noise_multiplier, part.shift)
    )
    coarsest = _COARSEST if resolution >= FINAL else 5 * _COARSEST
    finest = 4e-5 * mu if math.isfinite(mu) else 0.0
    fine = max(min(coarsest, math.sqrt(max(per_step, 1e-300)) / resolution), min(finest, coarsest))
    reach = max(largest_loss(part.noise_multiplier, part.shift) for part in loss)
    return max(fine, _GRID_OF_RARE_LOSSES if reach > _LONG_REACH else reach / _MOST_POINTS)


def pld_epsilon(loss: PrivacyLoss, delta: float, grid: float = 1e-4) -> float:
    """ε at δ by privacy loss distributions on a grid; infinite where quotients of masses leave the range of floats."""
    if grid > _WIDEST_GRID:
        return math.inf
    return epsilon_at(loss_distribution(loss, grid), delta)


def loss_distribution(loss: PrivacyLoss, grid: float) -> Any:
    """dp-accounting's PrivacyLossDistribution of a composition."""
    return composed([(_step_pld(part.noise_multiplier, part.shift, grid), part.steps) for part in loss])


def coarse_bounds(losses: Sequence[PrivacyLoss], delta: float) -> list[float]:
    """An upper bound on ε of each of many losses that share parts, by privacy loss distributions on one coarse grid."""
    grid = _COARSER * comparing_grid(max(losses, key=gaussian.clt_mu))

    run = cache(lambda part: loss_distribution((part,), grid))
    return [epsilon_at(composed([(run(part), 1) for part in loss]), delta) for loss in losses]


def comparing_grid(loss: PrivacyLoss) -> float:
    """A grid width at which the losses of silos are compared: coarse, and not too fine for ε in the thousands."""
    return max(grid_width(loss, gaussian.clt_mu(loss), SEARCH), _WINDOW * total_spread(loss) / _COMPARED_POINTS)


def truncated_shift(shift: Shift, tail: float) -> tuple[Shift, float]:
    """The shift given that it is ≤ c, and P(shift > c), for the smallest c where that is ≤ ``tail``; one on a coin as
    it is."""
    if type(shift) is not Shift:
        return shift, 0.0
    probabilities = np.asarray(shift.probabilities)
    above = np.append(np.cumsum(probabilities[::-1])[::-1][1:], 0.0)
    kept = int(np.argmax(above <= tail)) + 1
    masses = probabilities[:kept] / probabilities[:kept].sum()
    return Shift.of(shift.sensitivities[:kept], masses.tolist()), float(above[kept - 1])


def truncated(loss: PrivacyLoss, probability: float) -> tuple[PrivacyLoss, float]:
    """The loss with each step's shift truncated, and τ ≤ ``probability``, the chance that any exceeds its limit."""
    tail = probability / sum(part.steps for part in loss)
    parts, log_kept = [], 0.0
    for part in loss:
        shift, missed = truncated_shift(part.shift, tail)
        parts.append(replace(part, shift=shift))
        log_kept += part.steps * math.log1p(-missed)
    return tuple(parts), -math.expm1(log_kept)


def truncated_tail_bound(
    loss: PrivacyLoss, delta: float, bound: Callable[[PrivacyLoss, float], float], share: float = _SHARE
) -> float:
    """ε at δ by ``bound``, of a loss and a δ, of the loss truncated at the cost of ``share`` of δ."""
    parts, missed = truncated(loss, share * delta)
    moving = tuple(part for part in parts if part.shift.sensitivities[-1] > 0)  # others cost their tail alone
    return (bound(moving, delta - missed) if moving else 0.0) - math.log1p(-missed)


def truncated_tail_bounds(
    losses: Sequence[PrivacyLoss], delta: float, bounds: Callable[[list[PrivacyLoss], float], list[float]]
) -> list[float]:
    """``bounds`` at δ of many losses, truncated at a small share of δ; a loss of tails alone stays as it is."""
    missed = _TAIL_SHARE * delta
    shorter = [truncated(loss, missed)[0] for loss in losses]
    some = [
        a if all(part.shift.sensitivities[-1] > 0 for part in a) else b for a, b in zip(shorter, losses, strict=True)
    ]
    return [bound - math.log1p(-missed) for bound in bounds(some, delta - missed)]
