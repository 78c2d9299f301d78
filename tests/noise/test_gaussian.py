"""Keys and keyed Gaussian noise: law, independence, no repeats; the tests reject a planted wrong deviation."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from subjectdp.noise.gaussian import (
    ANGLES,
    GRID_BITS,
    PIECE,
    add_gaussian,
    add_rounded,
    add_secure_gaussian,
    grid_of,
    keyed_generator,
)
from subjectdp.noise.keys import Purpose, key_bytes, key_int, numpy_generator

SIZE = 40_000


def draw(std: float, *path: int | str, seed: int = 0) -> np.ndarray:
    return add_gaussian(torch.zeros(SIZE), std, key_bytes(seed, Purpose.NOISE, *path)).numpy().astype(np.float64)


def fits(sample: np.ndarray, std: float) -> bool:
    """Kolmogorov-Smirnov for the shape and chi-square for the variance, each at 1e-4 (two-sided)."""
    shape = stats.kstest(sample / std, "norm").pvalue > 1e-4
    statistic = float((sample**2).sum() / std**2)
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], len(sample))
    return shape and low < statistic < high


@pytest.mark.parametrize("std", [0.01, 1.0, 37.5])
def test_noise_has_the_planned_law(std: float) -> None:
    assert fits(draw(std, "law", 1, 2, 3), std)


@pytest.mark.parametrize("factor", [0.8, 0.97, 1.03, 1.25])
def test_the_check_rejects_a_wrong_standard_deviation(factor: float) -> None:
    assert not fits(draw(2.0 * factor, "power", 1), 2.0)


def test_streams_of_different_keys_are_uncorrelated_and_never_repeat() -> None:
    keys = [(round_, silo, step) for round_ in (1, 2) for silo in (0, 1, 2) for step in (0, 1)]
    streams = np.stack([draw(1.0, "a", *key) for key in keys])
    correlation = np.corrcoef(streams) - np.eye(len(keys))
    assert np.abs(correlation).max() < 5 / np.sqrt(SIZE)
    assert len(np.unique(streams[:, :8].round(7))) == 8 * len(keys)


def test_the_same_key_gives_the_same_bits_and_seed_zero_is_a_seed() -> None:
    assert np.array_equal(draw(1.0, 1), draw(1.0, 1))
    assert not np.array_equal(draw(1.0, 1, seed=0), draw(1.0, 1, seed=1))
    assert not np.array_equal(draw(1.0, "1"), draw(1.0, 1))


def test_keys_that_share_their_first_64_bits_still_differ() -> None:
    """A generator seeded with 32 or 64 bits of the key would repeat itself here."""
    first, second = bytes(32), bytes(31) + b"\x01"
    one, two = (add_gaussian(torch.zeros(1000), 1.0, key) for key in (first, second))
    assert not bool((one == two).any())
    one, two = (torch.rand(1000, generator=keyed_generator(key)) for key in (first, second))
    assert not bool((one == two).any())


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 1024, 2)])
def test_any_shape_in_place_and_a_sum_of_float64_gets_the_same_numbers(shape: tuple[int, ...]) -> None:
    total, double = torch.zeros(shape), torch.zeros(shape, dtype=torch.float64)
    assert add_gaussian(total, 1.0, bytes(32)) is total and bool((total != 0).all())
    flat = add_gaussian(torch.zeros(total.numel()), 1.0, bytes(32))
    assert torch.equal(total.view(-1), flat)
    assert add_gaussian(double, 1.0, bytes(32)) is double and double.dtype is torch.float64
    torch.testing.assert_close(total, double.float())


def test_std_zero_adds_nothing_and_noise_is_added_to_the_sum() -> None:
    total = torch.full((SIZE,), 3.0)
    assert torch.equal(add_gaussian(total.clone(), 0.0, bytes(32)), total)
    noisy = add_gaussian(total.clone(), 1.0, bytes(32)).double().numpy()
    assert fits(noisy - 3.0, 1.0)


def secure(total: torch.Tensor, std: float) -> np.ndarray:
    return add_secure_gaussian(total, std, key_bytes(5, Purpose.NOISE, 0)).numpy().astype(np.float64)


@pytest.mark.parametrize("std", [0.01, 1.0, 37.5])
def test_secure_noise_has_the_planned_law(std: float) -> None:
    assert fits(secure(torch.zeros(SIZE), std), std)
    assert not np.array_equal(secure(torch.zeros(9), std), draw(std, 0, seed=5)[:9])


def test_secure_noise_leaves_no_trace_of_the_sum_in_the_last_digits() -> None:
    """Every output is a multiple of one public grid, whatever the sum was: of plain noise none is."""
    generator = np.random.default_rng(0)
    for std in (0.7, 3.0):
        sums = torch.from_numpy(generator.normal(0, 2, SIZE).astype(np.float32))
        steps = secure(sums.clone(), std) / grid_of(std)
        assert np.array_equal(steps, np.round(steps))
        plain = add_gaussian(sums.clone(), std, key_bytes(0, Purpose.NOISE)).numpy() / grid_of(std)
        assert np.mean(plain != np.round(plain)) > 0.9
        assert 2**GRID_BITS <= std / grid_of(std) < 2 ** (GRID_BITS + 1)


def rotation() -> np.ndarray:
    """(4, 4): what is applied to the quarters of a piece."""
    first, second = (np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in ANGLES)
    return np.kron(second, first)


def test_secure_numbers_are_rotated_draws() -> None:
    """By matrices, from the plain draws of the same key; none is a float32 number any more."""
    drawn = add_gaussian(torch.zeros(3 * PIECE, dtype=torch.float64), 1.0, bytes(32)).numpy().reshape(3, 4, -1)
    found, key = np.zeros(2 * PIECE + 5), np.frombuffer(bytes(32), np.uint32)
    add_rounded(found, 2.0, 2.0**-45, key)
    expected = np.einsum("ij,pjn->pin", rotation(), drawn).reshape(-1)[: len(found)]
    np.testing.assert_allclose(found, 2.0 * expected, rtol=0, atol=1e-12)
    assert np.mean(found != found.astype(np.float32)) > 0.99
    assert float(add_secure_gaussian(torch.ones(1), 0.0, bytes(32))) == 1.0, "no noise, no grid"


def test_the_rotation_leads_no_whole_numbers_near_a_plane() -> None:
    """The product of the four coordinates is 1/40 of a whole number, the norm of Q(√2, √5), and never 0."""
    matrix, axis = rotation(), np.arange(-9, 10)
    whole = np.stack(np.meshgrid(axis, axis, axis, axis), -1).reshape(-1, 4)
    norms = 40 * np.abs(np.prod(whole[whole.any(1)] @ matrix.T, axis=1))
    np.testing.assert_allclose(norms, np.round(norms), atol=1e-8)
    assert norms.min() > 0.99
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(4), atol=1e-15)


def test_no_two_purposes_share_a_key() -> None:
    assert len({key_bytes(0, purpose, 1, 2, 3) for purpose in Purpose}) == len(Purpose)
    first = {float(numpy_generator(0, purpose, 1).random()) for purpose in Purpose}
    assert len(first) == len(Purpose)


def test_every_seed_and_every_part_of_a_path_count() -> None:
    assert len({key_int(seed, Purpose.SPLIT) for seed in range(-2, 50)}) == 52
    paths = [(round_, silo, step) for round_, silo, step in product(range(13), repeat=3)]
    keys = {key_bytes(0, Purpose.NOISE, *path) for path in paths}
    assert len(keys) == len(paths)
    assert key_bytes(0, Purpose.NOISE, 1, 23) != key_bytes(0, Purpose.NOISE, 12, 3)
    assert key_bytes(0, Purpose.NOISE, "a", "b") != key_bytes(0, Purpose.NOISE, "ab")
    assert key_bytes(0, Purpose.NOISE, 1) != key_bytes(0, Purpose.NOISE, "1")
