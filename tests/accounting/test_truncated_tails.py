"""Losses without their far tails, and an ε of thousands: upper bounds, and much lower ones than before."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from accounting.plans import DELTA, items
from accounting.reference import STILL, Release, epsilon
from subjectdp.accounting import renyi, sound
from subjectdp.accounting.epsilon import (
    coarse_bounds,
    epsilon_of,
    large_epsilon,
    truncated,
    truncated_shift,
    truncated_tail_bound,
    truncated_tail_bounds,
)
from subjectdp.accounting.events import MixtureSteps, PrivacyLoss, Shift, Turned, sampled_gaussian
from subjectdp.accounting.gaussian import clt_mu, gdp_epsilon
from subjectdp.accounting.renyi import quick_bounds


def lower_epsilon(loss: PrivacyLoss, delta: float, grid: float, size: int = 2**17) -> float:
    """ε with every step's loss rounded down to the grid, all atoms kept; composed by one Fourier transform."""
    return max(_one_way(loss, delta, grid, size, removed) for removed in (True, False))


def _one_way(loss: PrivacyLoss, delta: float, grid: float, size: int, removed: bool) -> float:
    spectrum, lowest, mean = np.ones(size // 2 + 1, dtype=complex), 0, 0.0
    for part in loss:
        sigma, shifts = part.noise_multiplier, np.asarray(part.shift.sensitivities)
        x = np.linspace(-13 * sigma, shifts[-1] + 13 * sigma, 20_001)
        log_ratio = np.full(x.shape, -np.inf)
        for s, probability in zip(shifts, part.shift.probabilities, strict=True):
            log_ratio = np.logaddexp(log_ratio, math.log(probability) + (s * x - s * s / 2) / sigma**2)
        masses = np.exp(log_ratio * removed - 0.5 * (x / sigma) ** 2)
        masses /= masses.sum()
        steps = np.floor((log_ratio if removed else -log_ratio) / grid).astype(int)
        steps = np.minimum(steps, steps.min() + size - 1)
        spectrum *= np.fft.rfft(np.bincount(steps - steps.min(), masses, size), size) ** part.steps
        lowest, mean = lowest + int(steps.min()) * part.steps, mean + float(masses @ steps) * part.steps
    law = np.maximum(np.fft.irfft(spectrum, size), 0.0)
    start = int(mean) - size // 2  # the transform wraps around: values lie around the mean
    values = (start + (np.arange(size) + lowest - start) % size) * grid

    def gap(epsilon: float) -> float:
        return float(law @ np.maximum(-np.expm1(np.minimum(epsilon - values, 0.0)), 0.0)) - delta

    return float(optimize.brentq(gap, 0.0, float(values.max()))) if gap(0.0) > 0 else 0.0


def test_a_part_that_hardly_ever_happens_costs_its_tail_alone() -> None:
    """Such a part has nothing left once its tail is cut: dp-accounting refuses a Gaussian of sensitivity 0."""
    large = MixtureSteps(0.2, items(0.1, 40), 250)
    rare = MixtureSteps(0.2, sampled_gaussian(1e-12), 250)
    alone, both = (epsilon_of(loss, DELTA) for loss in ((large,), (large, rare)))
    assert both == pytest.approx(alone, rel=1e-3)  # the two have grids of their own
    assert truncated_tail_bound((rare,), DELTA, lambda parts, delta: math.inf) == pytest.approx(250e-12, rel=1e-3)


def test_millions_of_steps_at_a_small_delta_have_the_epsilon_of_their_limit() -> None:
    """Rounding of their Fourier transform alone would cost 16.5."""
    loss = (MixtureSteps(10.0, sampled_gaussian(0.01), 1_000_000),)
    assert 1.0 <= epsilon_of(loss, 1e-11) / gdp_epsilon(clt_mu(loss), 1e-11) < 1.1


@pytest.mark.parametrize(("q", "k", "sigma", "steps"), [(1.69e-5, 64, 1.56, 5000), (1.33e-4, 25, 0.9, 5000)])
def test_more_items_than_any_mini_batch_holds_cost_nothing(q: float, k: int, sigma: float, steps: int) -> None:
    """Whatever the grid of the accountant: a mini-batch holds eight items of a subject with a chance below 1e-15."""
    law = {float(j): float(stats.binom.pmf(j, k, q)) for j in range(8)}
    expected = epsilon([Release(law, sigma, steps, STILL)], DELTA, reach=3.0)
    assert expected * 0.9999 <= epsilon_of((MixtureSteps(sigma, items(q, k), steps),), DELTA) <= 1.001 * expected


@pytest.mark.slow
def test_a_rare_subject_with_a_small_part_has_a_grid_that_fits_into_memory() -> None:
    """One of a hundred fixed weights, turned by an item: a grid for the spread of its losses had 2^31 points."""
    rare, sigma, steps, moved = 1e-5, 0.5, 1000, 0.02
    law, turned = ({0.0: 1 - rare, far: rare} for far in (1.0, 1.0 - moved))
    expected = epsilon([Release(law, sigma, steps, turned)], DELTA, reach=0.6)
    assert expected * 0.99 <= epsilon_of((MixtureSteps(sigma, Turned.by(rare, moved), steps),), DELTA) < 1e-3


# --- the cut -----------------------------------------------------------------------------------------------------


def test_the_limit_is_the_smallest_count_whose_tail_is_paid() -> None:
    q, k, tail = 0.1, 30, 1e-6
    shift, missed = truncated_shift(items(q, k), tail)
    most = int(shift.sensitivities[-1])
    assert missed == pytest.approx(stats.binom.sf(most, k, q), rel=1e-6)
    assert stats.binom.sf(most, k, q) <= tail < stats.binom.sf(most - 1, k, q)
    law = stats.binom.pmf(range(most + 1), k, q)
    assert shift.probabilities == pytest.approx(law / law.sum(), rel=1e-9)


def test_the_chance_that_any_step_exceeds_its_limit() -> None:
    loss = (MixtureSteps(1.0, items(0.1, 30), 70), MixtureSteps(2.0, items(0.3, 9), 30))
    parts, missed = truncated(loss, 1e-3)
    kept = 1.0
    for part, (q, k) in zip(parts, ((0.1, 30), (0.3, 9)), strict=True):
        kept *= stats.binom.cdf(part.shift.sensitivities[-1], k, q) ** part.steps
    assert missed == pytest.approx(1 - kept, rel=1e-6)
    assert 0 < missed <= 1e-3
    assert [(part.noise_multiplier, part.steps) for part in parts] == [(1.0, 70), (2.0, 30)]


def exact_epsilon(sigma: float, shift: Shift, delta: float) -> float:
    """One step, both directions, by integrating the densities."""
    x = np.linspace(-14 * sigma, shift.sensitivities[-1] + 14 * sigma, 40_001)
    width = x[1] - x[0]
    without = stats.norm.pdf(x, 0, sigma) * width
    moves = zip(shift.sensitivities, shift.probabilities, strict=True)
    with_unit = sum(p * stats.norm.pdf(x, s, sigma) * width for s, p in moves)

    def gap(epsilon: float) -> float:
        sides = (with_unit, without), (without, with_unit)
        return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in sides) - delta

    return float(optimize.brentq(gap, 0.0, 60.0))


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.2, 0.05, 1e-3])
@pytest.mark.parametrize(("q", "k", "sigma"), [(0.1, 12, 1.0), (0.3, 9, 2.0), (0.02, 40, 0.8)])
def test_one_step_against_its_integral(q: float, k: int, sigma: float, delta: float) -> None:
    """A large δ cuts much of the law, so that a slip in the theorem's δ or ε would show."""
    shift = items(q, k)
    exact = exact_epsilon(sigma, shift, delta)
    loss = (MixtureSteps(sigma, shift, 1),)

    def integral(part: PrivacyLoss, remaining: float) -> float:
        return exact_epsilon(part[0].noise_multiplier, part[0].shift, remaining)

    parts, missed = truncated(loss, 0.05 * delta)
    assert missed > 0 and len(parts[0].shift.sensitivities) < k + 1
    bound = truncated_tail_bound(loss, delta, integral)
    assert exact <= bound + 1e-9
    assert bound <= 1.25 * exact + 0.05
    assert integral(parts, delta) < exact, "forgetting the tail's δ would claim too much"


def test_the_bound_spends_delta_once() -> None:
    """δ of the truncated loss and τ add up to δ, and ε grows by -log(1 - τ)."""
    loss, delta = (MixtureSteps(1.0, items(0.1, 30), 40),), 0.1
    asked: list[float] = []

    def one(_: PrivacyLoss, remaining: float) -> float:
        asked.append(remaining)
        return 1.0

    missed = truncated(loss, 0.05 * delta)[1]
    assert 1e-4 < missed <= 0.05 * delta
    assert truncated_tail_bound(loss, delta, one) == pytest.approx(1.0 - math.log(1 - missed), rel=1e-12)
    assert asked == [pytest.approx(delta - missed, rel=1e-12)]


# --- ε of thousands ----------------------------------------------------------------------------------------------


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(q=st.floats(0.02, 0.3), k=st.integers(8, 30), sigma=st.floats(0.6, 2.0), steps=st.integers(2, 60))
@example(q=0.154296875, k=30, sigma=1.21875, steps=56)
def test_large_epsilon_is_an_upper_bound_and_never_above_the_old(q: float, k: int, sigma: float, steps: int) -> None:
    loss = (MixtureSteps(sigma, items(q, k), steps),)
    old = renyi.rough_bound(loss, DELTA)
    stated = epsilon_of(loss, DELTA)  # by large_epsilon from some thousands on; below, it may know no grid
    lower = lower_epsilon(loss, DELTA, old / 20_000)
    assert lower <= min(stated, truncated_tail_bound(loss, DELTA, large_epsilon)) * (1 + 1e-9)
    assert stated <= min(old * (1 + 1e-5), 1.25 * lower + 1.0)  # far tails may cost a thousandth of δ


def test_an_epsilon_of_millions_is_bounded_without_a_grid() -> None:
    """Next to no noise, as where that of many more subjects is predicted: e^grid would be no number."""
    loss = (MixtureSteps(0.02, items(0.25, 90), 80),)
    rough = renyi.rough_bound(loss, DELTA)
    assert large_epsilon(loss, DELTA) == math.inf
    largest = 80 * 90**2 / 0.02**2  # of the whole loss, times a half
    assert 0.1 * largest < epsilon_of(loss, DELTA) <= rough < largest


def test_a_far_tail_that_never_happens_does_not_decide() -> None:
    """A subject with 3,000 items at a silo, rarely sampled: 46,131 was stated where 710 can be proven."""
    sizes = np.arange(1, 23)
    often, rest = stats.binom.pmf(sizes, 3_036, 0.000542), 7e-19
    shift = Shift.of([0.0, *sizes.tolist(), 194.0], [1 - often.sum() - rest, *often.tolist(), rest])
    loss = (MixtureSteps(0.35457, shift, 10),)
    found = epsilon_of(loss, DELTA)
    assert renyi.rough_bound(loss, DELTA) > 100_000
    assert lower_epsilon(loss, DELTA, 0.05) <= found <= 1.05 * lower_epsilon(loss, DELTA, 0.05)


def test_the_tails_of_many_losses_are_charged() -> None:
    """The chance that a step of 20 draws more than the largest number that is left comes out of δ, and into ε."""
    given: list[float] = []
    left: list[int] = []

    def bounds(losses: list[PrivacyLoss], delta: float) -> list[float]:
        given.append(delta)
        left.extend(int(loss[0].shift.sensitivities[-1]) for loss in losses)
        return [1.0] * len(losses)

    found = truncated_tail_bounds([(MixtureSteps(30.0, items(0.02, 1000), 20),)], DELTA, bounds)
    missed = -math.expm1(20 * stats.binom.logcdf(left[0], 1000, 0.02))
    assert left[0] < 1000 and 0 < missed <= DELTA - given[0]
    assert found[0] >= 1.0 - math.log1p(-missed)


# --- the worst of many people whose items differ: found by bounds, as by looking at each -----------------------------


def people(count: int, noise: float, most: int) -> list[PrivacyLoss]:
    """Each at two of three silos, with numbers of items of their own."""
    generator = np.random.default_rng(4)

    def part(silo: int, count: int) -> MixtureSteps:
        return MixtureSteps(noise * (1.0 + 0.1 * silo), items(0.02 * (silo + 2), count), 20)

    held = [generator.choice(3, 2, replace=False) for _ in range(count)]
    return [tuple(part(int(silo), int(generator.integers(1, most))) for silo in silos) for silos in held]


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "most"), [(1.5, 30), (20.0, 12)])
def test_the_worst_of_many_is_that_of_looking_at_each(noise: float, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little noise Rényi bounds say nothing; with much they suffice."""
    losses, looked = people(11, noise, most), []
    exact = [epsilon_of(loss, DELTA) for loss in losses]

    def counted(loss: PrivacyLoss, *rest: object) -> float:
        looked.append(loss)
        return exact[losses.index(loss)]

    monkeypatch.setattr(sound, "FEW_LOSSES", 8)
    monkeypatch.setattr(sound, "epsilon_of", counted)
    seems_worst = losses[int(np.argsort(exact)[-2])]
    monkeypatch.setattr(sound, "clt_mu", lambda loss: loss == seems_worst)
    found, worst = sound.largest(losses, DELTA, "pld")
    assert found == max(exact) and worst == losses[int(np.argmax(exact))]
    assert len(looked) <= sound.FEW_LOSSES, "most are left out"


@pytest.mark.slow
def test_bounds_on_a_coarse_grid_are_above_and_close() -> None:
    losses = people(6, 1.5, 30)
    for bound, loss in zip(coarse_bounds(losses, DELTA), losses, strict=True):
        assert epsilon_of(loss, DELTA) <= bound <= 1.5 * epsilon_of(loss, DELTA) + 0.5


@pytest.mark.parametrize("bounds", [quick_bounds, coarse_bounds])
def test_bounds_without_far_tails_are_above(bounds: Callable[[list[PrivacyLoss], float], list[float]]) -> None:
    """A thousand items at a silo are a thousand atoms, of which nearly all are next to impossible."""
    losses: list[PrivacyLoss] = [(MixtureSteps(30.0, items(q, 1000), 20),) for q in (0.01, 0.02)]
    for bound, loss in zip(truncated_tail_bounds(losses, DELTA, bounds), losses, strict=True):
        assert epsilon_of(loss, DELTA) <= bound <= 2 * epsilon_of(loss, DELTA) + 0.5


def test_rounding_moves_no_mass_to_the_largest_count() -> None:
    """All 400 items of a subject are never drawn together: ε is that of at most a dozen, the rest in δ."""
    q, k, delta, steps = 1.391e-4, 400, 1e-12, 5000
    few = stats.binom.pmf(range(13), k, q)  # more have a chance of 1e-27
    expected = epsilon_of((MixtureSteps(1.9, Shift.of(range(13), few / few.sum()), steps),), delta)
    assert epsilon_of((MixtureSteps(1.9, items(q, k), steps),), delta) == pytest.approx(expected, rel=1e-3)
