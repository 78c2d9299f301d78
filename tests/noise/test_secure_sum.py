"""Modular sums: equal to integer sums wherever the ring holds them, exact where they wrap, refused where they may."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from subjectdp.errors import ConfigError, DataError
from subjectdp.noise.secure_sum import LARGEST_BITS, Ring, SiloBound, checked_sum, largest_sum, ring_for, skellam_tail


@st.composite
def admissible(draw: st.DrawFn) -> tuple[Ring, list[list[int]]]:
    """A ring of any modulus and vectors of any size whose sum it holds: all but the last are arbitrary."""
    ring = Ring(draw(st.one_of(st.integers(2, 40), st.integers(2, 2**LARGEST_BITS))))
    dimension, silos = draw(st.integers(1, 4)), draw(st.integers(1, 7))
    entry = st.integers(-(2**55), 2**55)
    parts = [[draw(entry) for _ in range(dimension)] for _ in range(silos - 1)]
    sums = [draw(st.integers(ring.lowest, ring.highest)) for _ in range(dimension)]
    return ring, [*parts, [s - sum(p[i] for p in parts) for i, s in enumerate(sums)]]


@pytest.mark.slow
@given(admissible())
@settings(max_examples=300, deadline=None)
def test_the_modular_sum_is_the_integer_sum_wherever_the_ring_holds_it(case: tuple[Ring, list[list[int]]]) -> None:
    """Also where the parts themselves leave the ring: only the sum has to fit."""
    ring, parts = case
    arrays = [np.array(part, dtype=np.int64) for part in parts]
    assert ring.sum(iter(arrays)).tolist() == [sum(column) for column in zip(*parts, strict=True)]


@given(st.integers(2, 2**20), st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_wrapping_around_is_arithmetic_modulo_m(modulus: int, values: list[int]) -> None:
    ring = Ring(modulus)
    found = int(ring.sum([np.array([value], dtype=np.int64) for value in values])[0])
    assert ring.lowest <= found <= ring.highest
    assert (found - sum(values)) % modulus == 0


def test_residues_are_what_a_server_may_see() -> None:
    ring = Ring.of_bits(3)
    assert (ring.lowest, ring.highest, ring.bits) == (-4, 3, 3)
    residues = ring.residues(np.arange(-4, 4))
    assert residues.tolist() == [4, 5, 6, 7, 0, 1, 2, 3]
    assert ring.integers(residues).tolist() == list(range(-4, 4))
    assert (Ring(7).lowest, Ring(7).highest, Ring(7).bits) == (-3, 3, 3)


def test_an_overflow_is_detected() -> None:
    parts = [np.array([3, 0]), np.array([1, -4])]
    assert checked_sum(parts, Ring.of_bits(4)).tolist() == [4, -4]
    with pytest.raises(DataError, match=r"1 of 2 entries wrapped around \(largest 4\)"):
        checked_sum(parts, Ring.of_bits(3))


@given(st.integers(0, 2**60))
def test_the_chosen_ring_is_the_smallest_that_holds_the_bound(bound: int) -> None:
    ring = ring_for(bound)
    assert ring.holds(bound) and ring.lowest <= -bound
    if ring.bits > 1:
        assert not Ring.of_bits(ring.bits - 1).holds(bound)


def test_a_ring_that_cannot_hold_the_update_is_refused() -> None:
    with pytest.raises(ConfigError, match="at most 62 bits, it needs 63"):
        ring_for(2**61 + 1)
    for make in (lambda: Ring(1), lambda: Ring(2**62 + 1), lambda: Ring.of_bits(0), lambda: Ring.of_bits(63)):
        with pytest.raises(ConfigError, match="ring"):
            make()
    with pytest.raises(DataError, match="at least one"):
        Ring.of_bits(3).sum([])


@pytest.mark.parametrize("variance", [0.3, 5.0, 300.0, 1e5])
@pytest.mark.parametrize("probability", [1e-2, 1e-6, 1e-12])
def test_the_tail_bound_is_safe_and_not_far_off(variance: float, probability: float) -> None:
    bound = skellam_tail(variance, probability)
    half = variance / 2.0
    assert 2 * stats.skellam.sf(bound, half, half) <= probability
    exact = float(stats.skellam.isf(probability / 2.0, half, half))
    assert bound <= exact + 2 + 0.8 * np.sqrt(variance)


def bounds(**changes: float) -> SiloBound:
    values = {"items": 40, "sampling_probability": 0.25, "steps": 3, "largest_entry": 16, "noise_variance": 90.0}
    return SiloBound(**{**values, **changes})  # type: ignore[arg-type]


def test_the_bound_of_a_round_holds_in_simulation_and_is_used() -> None:
    """Worst case: every sampled item adds its largest entry. 20,000 rounds at failure probability 1e-3."""
    silos, rounds, dimension = [bounds(), bounds(items=60, steps=2), bounds(noise_variance=10.0)], 20_000, 2
    limit = largest_sum(silos, 3, rounds, dimension, 1e-3)
    random = np.random.default_rng(0)
    total = np.zeros((rounds, dimension))
    for silo in silos:
        for _ in range(silo.steps):
            batch = random.binomial(silo.items, silo.sampling_probability, (rounds, 1))
            total += batch * silo.largest_entry
            total += random.poisson(silo.noise_variance / 2, total.shape)
            total -= random.poisson(silo.noise_variance / 2, total.shape)
    assert total.max() <= limit
    certain = largest_sum([bounds(sampling_probability=1.0, noise_variance=0.0)], 1, 5, 9, 0.1)
    assert certain == 3 * 40 * 16


def test_the_bound_grows_with_steps_silos_and_certainty_and_takes_the_largest_silos() -> None:
    base = largest_sum([bounds()] * 4, 2, 10, 5, 1e-6)
    assert largest_sum([bounds(steps=6)] * 4, 2, 10, 5, 1e-6) > 1.8 * base
    assert largest_sum([bounds()] * 4, 4, 10, 5, 1e-6) > 1.8 * base
    assert largest_sum([bounds()] * 4, 2, 10, 5, 1e-12) > base
    assert largest_sum([bounds(), bounds(largest_entry=1), bounds()], 2, 10, 5, 1e-6) >= base * 0.99
