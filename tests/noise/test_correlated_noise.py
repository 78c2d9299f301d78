"""Correlated noise against matrices written out: coefficients, inverse, sensitivity by brute force, noise of sums."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import linalg, special

from subjectdp.errors import PrivacyError
from subjectdp.noise import correlated_noise as noise

Matrix = NDArray[np.float64]


def decoder(band: int, rounds: int) -> Matrix:
    """C^{-1}, from the binomial series of (1 - x)^(1/2)."""
    series = [(-1) ** j * special.binom(0.5, j) if j < band else 0.0 for j in range(rounds)]
    return np.asarray(linalg.toeplitz(series, np.zeros(rounds)))


@pytest.mark.parametrize("band", [1, 2, 5, 40])
def test_coefficients_are_those_of_the_square_root(band: int) -> None:
    expected = decoder(band, 40)[:, 0]
    np.testing.assert_allclose(noise.noise_coefficients(band), expected[:band], rtol=1e-12)
    column = noise.strategy_coefficients(band, 40)
    np.testing.assert_allclose(linalg.inv(decoder(band, 40))[:, 0], column, atol=1e-12)
    assert np.all(column >= 0)


def test_the_whole_band_is_the_square_root_of_summing() -> None:
    """C C = A, the matrix of prefix sums."""
    factor = linalg.toeplitz(noise.strategy_coefficients(30, 30), np.zeros(30))
    np.testing.assert_allclose(factor @ factor, np.tril(np.ones((30, 30))), atol=1e-12)


@pytest.mark.parametrize("band", [1, 2, 3, 8])
@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_no_turns_and_no_directions_move_more_than_the_sensitivity(band: int, every: int) -> None:
    """All subsets of the turns from all starts, vectors of length 1 in many directions; one of them attains it."""
    rounds = 9
    strategy = linalg.inv(decoder(band, rounds))
    generator = np.random.default_rng(band * 10 + every)
    bound, largest = noise.sensitivity(band, rounds, every), 0.0
    for start in range(every):
        turns = np.arange(start, rounds, every)
        for taken in itertools.product([0.0, 1.0], repeat=len(turns)):
            inputs = np.zeros((rounds, 3))
            inputs[turns, 0] = taken
            largest = max(largest, float(np.linalg.norm(strategy @ inputs)))
            directions = generator.normal(size=(len(turns), 3))
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            inputs[turns] = np.asarray(taken)[:, None] * directions
            assert np.linalg.norm(strategy @ inputs) <= bound * (1 + 1e-12)
    assert largest == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize(("rounds", "every"), [(1, 1), (10, 1), (10, 3), (12, 4), (100, 7)])
def test_independent_noise_composes_turn_by_turn(rounds: int, every: int) -> None:
    assert noise.sensitivity(1, rounds, every) == pytest.approx(math.sqrt(math.ceil(rounds / every)))


@pytest.mark.parametrize(("band", "every"), [(1, 1), (1, 4), (3, 4), (20, 4), (50, 1)])
def test_noise_of_prefix_sums_is_that_of_the_matrices(band: int, every: int) -> None:
    rounds = 20
    strategy = linalg.inv(decoder(band, rounds))
    turns = np.zeros(rounds)
    turns[::every] = 1
    moved = np.linalg.norm(strategy @ turns)
    summed = np.tril(np.ones((rounds, rounds))) @ linalg.inv(strategy)
    expected = np.linalg.norm(summed, axis=1) * moved * every
    np.testing.assert_allclose(noise.prefix_noise(band, rounds, every), expected, rtol=1e-9)


def test_full_participation_gains_nothing_and_turns_gain_nearly_all_that_they_cost() -> None:
    """Independent noise with a turn every b rounds costs √b; the best band costs a tenth of everybody's every round."""
    everybody = noise.prefix_noise(1, 240, 1)
    assert noise.best_band(240, 1) == 1
    for every, most in ((2, 1.07), (4, 1.14), (8, 1.25)):
        independent = noise.prefix_noise(1, 240, every)
        best = noise.prefix_noise(noise.best_band(240, every), 240, every)
        assert noise.best_band(240, every) > 1
        np.testing.assert_allclose(independent / everybody, math.sqrt(every), rtol=1e-9)
        rms = math.sqrt(float(np.mean(best**2) / np.mean(everybody**2)))
        assert 1.0 < rms < most
        assert 1.0 < best[-1] / everybody[-1] < most + 0.06


def test_no_band_comes_below_what_any_factorisation_can_reach_with_everybody_in_every_round() -> None:
    """‖AC⁻¹‖·‖C1‖ ≥ ‖A1‖: 18 % below independent noise, which bands above 1 do not even reach."""
    rounds = 60
    least = math.sqrt(sum(t * t for t in range(1, rounds + 1)))
    independent = math.sqrt(float(np.sum(noise.prefix_noise(1, rounds, 1) ** 2)))
    assert least / independent == pytest.approx(math.sqrt(2 / 3), rel=0.01)
    for band in range(1, rounds + 1):
        found = math.sqrt(float(np.sum(noise.prefix_noise(band, rounds, 1) ** 2)))
        assert found >= independent * (1 - 1e-12) > least


def test_a_band_of_nothing_is_refused() -> None:
    with pytest.raises(PrivacyError, match="band of correlated noise"):
        noise.noise_coefficients(0)


@pytest.mark.parametrize("band", [1, 2, 4, 8])
@pytest.mark.parametrize("every", [1, 3])
def test_silos_that_miss_rounds_protect_as_well_as_the_same_ones_would(band: int, every: int) -> None:
    """The sum of 2 of 5 silos a round: the covariance of what is seen, written out, against the bound for 2 silos."""
    rounds, silos, taking_part = 8, 5, 2
    cover = decoder(band, rounds) @ decoder(band, rounds).T
    bound = noise.sensitivity(band, rounds, every) ** 2 / taking_part
    generator = np.random.default_rng(band)
    largest = 0.0
    for trial in range(300):
        present = np.zeros((silos, rounds))
        for t in range(rounds):
            same = range(taking_part) if trial == 0 else generator.permutation(silos)[:taking_part]
            present[list(same), t] = 1.0
        covariance = sum(np.outer(row, row) * cover for row in present)
        inputs = np.zeros((rounds, 3))
        inputs[::every, 0] = 1.0
        if trial % 2:
            inputs[::every] = generator.normal(size=(len(range(0, rounds, every)), 3))
            inputs[::every] /= np.linalg.norm(inputs[::every], axis=1, keepdims=True)
        largest = max(largest, float(np.trace(inputs.T @ np.linalg.solve(covariance, inputs))))
    assert largest <= bound * (1 + 1e-9)
    assert largest == pytest.approx(bound, rel=1e-9)  # the same silos in every round
