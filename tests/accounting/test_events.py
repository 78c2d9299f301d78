"""Shifts and losses: against enumeration, plain convolution and dp-accounting's own code."""

import itertools
import math
from functools import reduce

import numpy as np
import pytest
from dp_accounting.dp_event import NonPrivateDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType
from scipy import stats

from accounting.plans import CLIPPINGS, FIXED, ITEM, POISSON, SILO, SUBJECT, items
from subjectdp.accounting import gaussian
from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import (
    MixtureSteps,
    Shift,
    Told,
    Turned,
    dp_event,
    known_coin,
    merged,
    participation,
    sampled_gaussian,
    subject_sampling_probability,
    unit_shift,
)
from subjectdp.accounting.mixture_pld import _fast_loss, composed, convolved, epsilon_at, mixture_pld
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import Clipping


def test_participation_of_poisson_by_enumeration() -> None:
    q, k = 0.3, 4
    chance = [0.0] * (k + 1)
    for taken in itertools.product((0, 1), repeat=k):
        chance[sum(taken)] += math.prod(q if one else 1 - q for one in taken)
    assert participation(POISSON, q, k, 100) == pytest.approx(chance)


@pytest.mark.parametrize(("items", "batch", "k"), [(7, 3, 2), (7, 6, 2), (3, 2, 5)])
def test_participation_of_fixed_batches_by_enumeration(items: int, batch: int, k: int) -> None:
    chance = [0] * (k + 1)
    for drawn in itertools.combinations(range(items), batch):
        chance[sum(item < k for item in drawn)] += 1
    expected = [count / math.comb(items, batch) for count in chance]
    assert participation(FIXED, batch / items, k, items) == pytest.approx(expected)


def test_participation_where_a_silo_has_a_hundred_million_items() -> None:
    """Against whole numbers: P(2 of 40 items are among 1,000)."""
    items, batch, k = 10**8, 1000, 40
    ways = math.prod(range(items - k - batch + 3, items - batch + 1))  # that the 38 others are left out
    chance = math.comb(k, 2) * batch * (batch - 1) * ways / math.prod(range(items - k + 1, items + 1))
    assert participation(FIXED, batch / items, k, items)[2] == pytest.approx(chance, rel=1e-12)
    assert sum(unit_shift(Clipping.PER_ITEM, SUBJECT, FIXED, batch / items, k, items).probabilities) == pytest.approx(1)


def test_subject_sampling_probability() -> None:
    assert subject_sampling_probability(0.0201773, 8) == pytest.approx(1 - (1 - 0.0201773) ** 8, rel=1e-12)
    assert subject_sampling_probability(1.0, 3) == 1.0
    assert subject_sampling_probability(1e-12, 1) == pytest.approx(1e-12, rel=1e-9)


@pytest.mark.parametrize(
    ("clipping", "sampling", "unit", "k", "values"),
    [
        (Clipping.PER_ITEM, POISSON, SUBJECT, 3, (0, 1, 2, 3)),
        (Clipping.PER_ITEM, FIXED, SUBJECT, 3, (0, 2, 4, 6)),
        (Clipping.PER_ITEM, POISSON, ITEM, 3, (0, 1)),
        (Clipping.PER_ITEM_SUBJECT_MEAN, POISSON, SUBJECT, 3, (0, 1)),
        (Clipping.PER_ITEM_SUBJECT_MEAN, FIXED, SUBJECT, 3, (0, 2, 3, 4)),
        (Clipping.PER_SUBJECT, POISSON, SUBJECT, 3, (0, 1)),
        (Clipping.PER_SUBJECT, POISSON, ITEM, 3, (0, 1, 2)),
        (Clipping.PER_SUBJECT, FIXED, SUBJECT, 3, (0, 3, 5, 7)),
        (Clipping.PER_SUBJECT, FIXED, SUBJECT, 1, (0, 3)),  # a person with one item, beside others with several
        (Clipping.PER_BATCH, POISSON, SUBJECT, 3, (0, 2)),
        (Clipping.PER_BATCH, FIXED, SUBJECT, 3, (0, 2)),
        (Clipping.PER_BATCH, POISSON, SILO, 3, (0, 2)),
    ],
)
def test_sensitivities(clipping: Clipping, sampling: object, unit: object, k: int, values: tuple[int, ...]) -> None:
    shift = unit_shift(clipping, unit, sampling, 0.1, k, 1000)  # type: ignore[arg-type]
    expected = (2.0,) if unit is SILO else tuple(float(value) for value in values)
    assert shift.sensitivities == expected


def _sum(clipping: Clipping, batch: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """The un-noised sum of (subject, gradient) pairs, C = 1, written independently of the engine."""

    def clip(vector: np.ndarray) -> np.ndarray:
        return vector / max(1.0, float(np.linalg.norm(vector)))

    total = np.zeros(3)
    if clipping is Clipping.PER_ITEM:
        return total + sum((clip(g) for _, g in batch), np.zeros(3))
    if clipping is Clipping.PER_BATCH:
        return clip(np.mean([g for _, g in batch], axis=0)) if batch else total
    for name in {subject for subject, _ in batch}:
        own = [g for subject, g in batch if subject == name]
        if clipping is Clipping.PER_SUBJECT:
            total = total + clip(np.mean(own, axis=0))
        else:
            total = total + np.mean([clip(g) for g in own], axis=0)
    return total


@pytest.mark.parametrize("unit", [ITEM, SUBJECT])
@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("sampling", [POISSON, FIXED])
def test_no_neighbour_moves_the_sum_by_more(clipping: Clipping, sampling: object, unit: object) -> None:
    """Random and adversarial gradients: take j items of a unit out (fixed batches: put j others in)."""
    rng = np.random.default_rng(5)
    k, largest = 3, 0.0
    shift = unit_shift(clipping, unit, sampling, 0.3, k, 60)  # type: ignore[arg-type]
    told = isinstance(shift, Told)
    values = shift.sensitivities if len(shift.sensitivities) > 2 else (0.0, *[shift.sensitivities[-1]] * k)
    for _ in range(400):
        j = int(rng.integers(1, k + 1)) if unit is SUBJECT else 1
        axis = rng.normal(size=3)
        spread = rng.choice([0.0, 1.0])

        def gradient(sign: float) -> np.ndarray:
            return 5 * sign * axis + spread * rng.normal(size=3)  # noqa: B023

        others = [(int(rng.integers(1, 3)), gradient(float(rng.choice([-1, 1])))) for _ in range(rng.integers(0, 4))]
        same = [(0, gradient(-1.0)) for _ in range(rng.integers(0, k - j + 1))] if unit is ITEM else []
        unit_items = [(0, gradient(1.0)) for _ in range(j)]
        displaced = [(int(rng.integers(1, 4)), gradient(-1.0)) for _ in range(j)] if sampling is FIXED else []
        with_unit = _sum(clipping, others + same + unit_items)
        without = _sum(clipping, others + same + displaced)
        moved = float(np.linalg.norm(with_unit - without))
        most = values[2 if told and same else j]  # an item beside others of its subject, or alone
        assert moved <= most + 1e-9
        largest = max(largest, moved / most)
    assert largest > 0.5  # the attempts come near enough to mean something


def test_convolution_by_enumeration() -> None:
    first, second = Shift.of((0, 1), (0.7, 0.3)), Shift.of((0, 1, 2), (0.5, 0.3, 0.2))
    total = first.convolve(second)
    assert total.sensitivities == (0, 1, 2, 3)
    assert total.probabilities == pytest.approx((0.35, 0.7 * 0.3 + 0.3 * 0.5, 0.7 * 0.2 + 0.3 * 0.3, 0.06))


def test_masses_that_are_no_numbers_have_no_epsilon() -> None:
    masses = DensePLDPmf(1e-3, 0, np.array([0.5, np.nan]), 0.0, True)
    assert epsilon_at(pld.PrivacyLossDistribution(masses), 1e-5) == math.inf
    lost = pld.PrivacyLossDistribution(DensePLDPmf(1e-3, 0, np.array([0.99]), 0.01, True))
    assert composed([(lost, 3)])._pmf_remove._infinity_mass == pytest.approx(1 - 0.99**3)


def test_shifts_on_a_coin_do_not_add_up() -> None:
    for coin in (Turned.by(0.5, 2.0), known_coin(sampled_gaussian(0.5))):
        with pytest.raises(PrivacyError, match="a sum of shifts that rest on a coin"):
            sampled_gaussian(0.5).convolve(coin)
        with pytest.raises(PrivacyError, match="has no event"):
            dp_event((MixtureSteps(1.0, coin, 1),))
        with pytest.raises(PrivacyError, match="integer noise and draws"):
            epsilon_of((MixtureSteps(1.0, coin, 1),), 1e-5, "rdp_integer")


def test_trimming_moves_mass_upwards() -> None:
    shift = Shift.of(range(6), (0.9, 0.1, 1e-26, 2e-27, 3e-28, 2e-28))
    assert shift.sensitivities == (0, 1, 5)
    assert sum(shift.probabilities) == pytest.approx(1.0)
    assert shift.probabilities[-1] == pytest.approx(1e-26 + 2e-27 + 5e-28, rel=1e-6)


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize(("k", "q", "sigma"), [(1, 0.02, 0.7), (8, 0.02, 1.7), (20, 0.5, 4.0)])
def test_masses_on_the_grid_are_dp_accountings_to_the_last_digit(k: int, q: float, sigma: float, adds: bool) -> None:
    """Its own discretisation of the same loss, whose inverse alone is ours."""
    shift, grid = items(q, k), 2e-3
    adjacency = AdjacencyType.ADD if adds else AdjacencyType.REMOVE
    loss = _fast_loss()(sigma, shift.sensitivities, shift.probabilities, adjacency_type=adjacency)
    theirs = pld._create_pld_pmf_from_monotone_privacy_loss(loss, True, grid, use_connect_dots=True)
    found = mixture_pld(sigma, shift, grid)
    ours = found._pmf_add if adds else found._pmf_remove
    theirs = theirs.to_dense_pmf()
    assert (ours._lower_loss, ours._infinity_mass) == (theirs._lower_loss, theirs._infinity_mass)
    assert np.array_equal(ours._probs, theirs._probs)


@pytest.mark.parametrize("q", [0.0024, 0.0201773, 0.05287, 0.3, 1 / 3, 1.0])
def test_one_item_has_the_very_loss_of_a_sampled_gaussian(q: float) -> None:
    """In the same digits, so that a claim's ε and the provable one are accounted once."""
    assert unit_shift(Clipping.PER_ITEM, SUBJECT, POISSON, q, 1, 1000) == sampled_gaussian(q)
    assert unit_shift(Clipping.PER_ITEM, ITEM, POISSON, q, 20, 1000) == sampled_gaussian(q)
    assert unit_shift(Clipping.PER_SUBJECT, ITEM, POISSON, q, 1, 1000) == sampled_gaussian(q)


@pytest.mark.parametrize(("silos", "probability"), [(30, 0.9), (100, 0.2), (16, 0.8), (4, 1 - 1e-9), (1, 1 - 1e-12)])
def test_a_chance_to_be_absent_that_is_nearly_nothing(silos: int, probability: float) -> None:
    """From 2e-10 down to 1e-30 and less: one step's δ is that of the two densities, by integration.

    2 clip norms at each of some silos that draw a subject (whole updates, noised jointly).
    """
    shift, sigma = reduce(Shift.convolve, [sampled_gaussian(probability, 2.0)] * silos), 2.0 * silos**0.5
    points = np.linspace(-12 * sigma, shift.sensitivities[-1] + 12 * sigma, 100_001)
    empty = stats.norm.pdf(points, scale=sigma)
    held = sum(
        p * stats.norm.pdf(points, value, sigma)
        for value, p in zip(shift.sensitivities, shift.probabilities, strict=True)
    )
    step = points[1] - points[0]
    found = mixture_pld(sigma, shift, 1e-2)
    for epsilon in (0.1, 2.0, 8.0):
        sides = (held - math.exp(epsilon) * empty, empty - math.exp(epsilon) * held)
        expected = max(float(np.maximum(side, 0.0).sum() * step) for side in sides)
        delta = found.get_delta_for_epsilon(epsilon)
        assert expected * (1 - 1e-7) - 1e-9 <= delta <= expected * (1 + 1e-4) + 1e-8


@pytest.mark.parametrize(("absent", "sigma"), [(2.6e-11, 0.7730803700344779), (8.3e-12, 0.333023318595001)])
def test_a_unit_that_is_nearly_always_there_has_a_gaussians_loss(absent: float, sigma: float) -> None:
    """As one of eight items in batches of 96 %; dp-accounting's mixture of one Gaussian ended in a TypeError."""
    nearly, there = ((MixtureSteps(sigma, sampled_gaussian(q), 10),) for q in (1 - absent, 1.0))
    assert epsilon_of(nearly, 1e-5) == pytest.approx(epsilon_of(there, 1e-5), rel=1e-4)


def test_no_noise_is_no_privacy() -> None:
    loss = (MixtureSteps(0.0, sampled_gaussian(0.2), 7),)
    assert epsilon_of(loss, 1e-5) == math.inf and isinstance(dp_event(loss), NonPrivateDpEvent)


def test_equal_silos_are_merged() -> None:
    part = MixtureSteps(2.0, sampled_gaussian(0.1), 10)
    assert merged([part] * 16) == (MixtureSteps(2.0, sampled_gaussian(0.1), 160),)


@pytest.mark.parametrize("mu", [0.0, 0.01, 0.5, 1.0, 7.0, 40.0, 3e3, 1e5])
def test_gaussian_epsilon_and_mu_are_inverse_over_many_orders_of_magnitude(mu: float) -> None:
    """Also where ε is 1e10: the two terms of δ are then of the size e^ε."""
    epsilon = gaussian.gdp_epsilon(mu, 1e-5)
    if epsilon > 0:
        assert gaussian.gdp_mu(epsilon, 1e-5) == pytest.approx(mu, rel=1e-6)


# --- composition with itself -----------------------------------------------------------------------------------------


COMPOSED = [(1.1, 0.02, 30), (3.6, 0.23, 200), (20.0, 0.9, 1)]  # σ, q, steps


@pytest.mark.parametrize("times", [[2], [6], [1, 1], [3, 1, 2]])
def test_masses_are_those_of_plain_convolution(times: list[int]) -> None:
    draws = np.random.default_rng(0)
    parts = [(draws.dirichlet(np.ones(size)), n) for size, n in zip((40, 13, 90), times, strict=False)]
    low, found = convolved(parts)
    whole = reduce(np.convolve, [masses for masses, n in parts for _ in range(n)])
    kept = whole[low : low + len(found)]
    assert np.allclose(found[: len(kept)], kept, atol=1e-14)
    assert whole.sum() - kept.sum() < 1e-14


def test_unequal_steps_compose_as_in_dp_accounting() -> None:
    steps = [(mixture_pld(sigma, Shift((0.0, 1.0), (1 - q, q)), 1e-3), n) for sigma, q, n in COMPOSED]
    theirs = reduce(lambda whole, each: whole.compose(each), [step.self_compose(n) for step, n in steps])
    for delta in (1e-3, 1e-5, 1e-9):
        assert epsilon_at(composed(steps), delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-6)
    assert all(step.to_dense_pmf().size < 20_000 for step in (composed(steps)._pmf_remove, composed(steps)._pmf_add))


@pytest.mark.parametrize(
    ("sigma", "shift", "times", "grid"),
    [
        (3.6, Shift((0.0, 1.0), (0.77, 0.23)), 200, 5e-3),
        (0.5, Shift((0.0, 1.0, 9.0), (0.9, 0.09, 0.01)), 40, 2e-1),  # ε in the hundreds
        (0.3, Shift((0.0, 30.0), (0.01, 0.99)), 30, 50.0),  # losses above 745, whose e^-loss is 0
        (40.0, Shift((0.0, 1.0), (0.99, 0.01)), 3, 1e-4),  # ε = 0
    ],
)
def test_epsilon_is_dp_accountings_to_rounding(sigma: float, shift: Shift, times: int, grid: float) -> None:
    whole = composed([(mixture_pld(sigma, shift, grid), times)])
    for delta in (0.5, 1e-2, 1e-5, 1e-9, 1e-14, 1e-20):
        expected = whole.get_epsilon_for_delta(delta)
        assert epsilon_at(whole, delta) == pytest.approx(expected, rel=1e-11, abs=0)
