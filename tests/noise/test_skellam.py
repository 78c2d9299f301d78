"""Integer noise, rounding, modular sums: laws against scipy, exact divergences, bounds as properties, planted flaws."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from subjectdp.errors import DataError, PrivacyError
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.noise.skellam import (
    LARGEST_VARIANCE,
    RING,
    WIDE_VARIANCE,
    Grid,
    l1_bound,
    modular_sum,
    rounded_l2_bound,
    skellam,
    skellam_variance,
)

pytestmark = pytest.mark.slow

SIZE = 60_000


def generator(*path: int | str) -> np.random.Generator:
    return numpy_generator(0, Purpose.NOISE, "test", *path)


def fits(sample: np.ndarray, variance: float) -> bool:
    """Mean, variance and excess kurtosis within 4.5 standard errors, and chi-square of the histogram at 1e-5."""
    size, kurtosis = len(sample), 1.0 / variance
    mean_error = math.sqrt(variance / size)
    variance_error = variance * math.sqrt((2.0 + kurtosis) / size)
    sixth = 1.0 / variance**2  # sixth cumulant over variance³, for the spread of a sample kurtosis
    kurtosis_error = math.sqrt((24.0 + 100.0 * kurtosis + 60.0 * sixth) / size)
    moments = (
        abs(sample.mean()) < 4.5 * mean_error
        and abs(sample.var() - variance) < 4.5 * variance_error
        and abs(float(stats.kurtosis(sample)) - kurtosis) < 4.5 * kurtosis_error
    )
    return bool(moments) and histogram_pvalue(sample, variance) > 1e-5


def histogram_pvalue(sample: np.ndarray, variance: float) -> float:
    law = stats.skellam(variance / 2.0, variance / 2.0)
    edges = np.unique(law.ppf(np.linspace(0.0, 1.0, 21)[1:-1]))
    expected = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    found = np.bincount(np.searchsorted(edges, sample), minlength=len(expected))
    return float(stats.chisquare(found, expected * len(sample)).pvalue)


@pytest.mark.parametrize("variance", [0.4, 3.0, 40.0, 2500.0])
def test_noise_is_skellam(variance: float) -> None:
    assert fits(skellam(variance, SIZE, generator("law", int(variance))), variance)


@pytest.mark.parametrize("variance", [0.4, 40.0])
@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_the_check_rejects_a_wrong_standard_deviation(variance: float, factor: float) -> None:
    assert not fits(skellam(variance * factor**2, SIZE, generator("power")), variance)


@pytest.mark.parametrize("wide", [2.0**30, WIDE_VARIANCE, 2 * WIDE_VARIANCE, 2.0**64])
def test_wide_noise_is_normal(wide: float) -> None:
    sample = skellam(wide, SIZE, generator("wide")) / math.sqrt(wide)
    assert stats.kstest(sample, "norm").pvalue > 1e-4


def test_noise_of_several_silos_is_skellam_of_the_sum_of_variances() -> None:
    parts = [skellam(variance, SIZE, generator("silo", i)) for i, variance in enumerate((1.0, 2.5, 0.5, 4.0))]
    assert fits(np.sum(parts, axis=0), 8.0)
    assert not fits(np.sum([parts[1]] * 3, axis=0), 7.5), "one draw shared by three silos must be seen"


def test_no_noise_and_noise_and_grids_that_cannot_be() -> None:
    assert not skellam(0.0, 9, generator()).any()
    for variance in (-1.0, LARGEST_VARIANCE * 2, math.nan):
        with pytest.raises(PrivacyError, match="variance of Skellam noise"):
            skellam(variance, 9, generator())
    with pytest.raises(PrivacyError, match="joint.bits"):
        Grid.of_bits(32, 1.0, 10).noise(1e5, generator())
    with pytest.raises(PrivacyError, match="clip_norm"):
        Grid(1.0, math.inf, 3)


@given(st.integers(0, 12), st.floats(1e-3, 1e3), st.integers(1, 300), st.floats(0.0, 1.0), st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_rounding_keeps_to_the_bounds(bits: int, clip_norm: float, dimension: int, share: float, seed: int) -> None:
    """At most one step away in each entry, and never beyond the L2 and L1 bounds, for any vector within C."""
    random = np.random.default_rng(seed)
    direction = random.standard_normal(dimension) ** random.integers(1, 6)
    vector = share * clip_norm * direction / np.linalg.norm(direction)
    grid = Grid.of_bits(bits, clip_norm, dimension)
    rounded = grid.rounded(vector, random)
    assert np.abs(rounded - vector / grid.step).max() < 1.0 + 1e-9
    assert np.linalg.norm(rounded) <= grid.l2
    assert np.abs(rounded).sum() <= l1_bound(grid.l2, dimension) * (1 + 1e-12)
    assert np.abs(rounded).max() <= math.ceil(grid.scaled_norm)


def bias(grid: Grid, draws: int = 4000) -> float:
    """Largest deviation of the mean rounding of a vector of norm C, in standard errors of an unbiased rounding."""
    vector = np.random.default_rng(1).standard_normal(grid.dimension)
    vector *= grid.clip_norm / np.linalg.norm(vector)
    random = generator("unbiased", grid.dimension)
    mean = np.mean([grid.rounded(vector, random) for _ in range(draws)], axis=0)
    scaled = vector / grid.step
    spread = np.sqrt((scaled - np.floor(scaled)) * (np.ceil(scaled) - scaled) / draws)
    return float(np.abs((mean - scaled) / np.maximum(spread, 1e-3)).max())


@pytest.mark.parametrize(("bits", "dimension"), [(1, 50), (4, 30), (10, 8)])
def test_rounding_is_unbiased(bits: int, dimension: int) -> None:
    assert bias(Grid.of_bits(bits, 2.0, dimension)) < 4.5


def test_the_check_sees_the_bias_of_a_tighter_condition() -> None:
    assert bias(Grid(2.0 / 16, 2.0, 30, condition=0.9)) > 4.5


def test_a_vector_above_the_clip_norm_is_brought_down_and_bad_ones_are_refused() -> None:
    grid = Grid.of_bits(8, 1.0, 4)
    rounded = grid.rounded(np.full(4, 50.0), generator())
    assert np.abs(rounded - 128).max() <= 1
    for vector, message in ((np.zeros(5), "shape"), (np.array([np.nan, 0, 0, 0]), "finite")):
        with pytest.raises(PrivacyError, match=message):
            grid.rounded(vector, generator())


def test_rounding_beyond_the_bound_is_drawn_again() -> None:
    """(0.5)^64 has norm 4; half of its roundings have more than 32 ones, and a bound of √32 admits none of them."""
    vector = np.full(64, 0.5)
    grid = Grid(step=1.0, clip_norm=4.0, dimension=64, condition=0.999999)
    assert grid.l2**2 < 16 + 16 + 0.02
    norms = [float((grid.rounded(vector, generator("again", i)) ** 2).sum()) for i in range(50)]
    assert max(norms) <= 32


@given(st.floats(0.05, 1e6), st.integers(1, 10**7), st.floats(0.0, 0.999))
@settings(max_examples=200, deadline=None)
def test_the_bound_is_above_the_norm_and_at_most_a_step_an_entry(norm: float, dimension: int, condition: float) -> None:
    bound = rounded_l2_bound(norm, dimension, condition)
    assert norm <= bound <= norm + math.sqrt(dimension)
    assert bound <= rounded_l2_bound(norm, dimension, 0.0)


def exact_divergence(order: int, variance: float, shift: int) -> float:
    """D_a of Skellam shifted by an integer against itself, by direct summation in logarithms."""
    reach = int(shift + 60 + 40 * math.sqrt(variance))
    points = np.arange(-reach, reach + order * shift + 1)
    law = stats.skellam(variance / 2.0, variance / 2.0)
    with np.errstate(divide="ignore"):
        moved, still = law.logpmf(points - shift), law.logpmf(points)
    kept = np.isfinite(moved) & np.isfinite(still)
    terms = order * moved[kept] + (1 - order) * still[kept]
    return float(np.logaddexp.reduce(terms)) / (order - 1)


@pytest.mark.parametrize("shift", [1, 2, 5])
@pytest.mark.parametrize("sigma", [0.7, 1.5, 4.0])
def test_the_variance_pays_for_what_skellam_loses_to_the_gaussian(shift: int, sigma: float) -> None:
    """Exact Rényi divergences of one coordinate stay below a/(2σ²) at integer orders; with σ x 0.8 they do not."""
    variance, less = (skellam_variance(sigma * factor, float(shift), 1) for factor in (1.0, 0.8))
    assert variance > (sigma * shift) ** 2
    for order in range(2, 9):
        assert exact_divergence(order, variance, shift) <= order / (2 * sigma**2) * (1 + 1e-9)
    if sigma * shift >= 2:  # below, the bound is too loose for the planted error to show
        assert exact_divergence(2, less, shift) > 1 / sigma**2


@given(st.floats(0.1, 50.0), st.floats(1.0, 1e5), st.integers(1, 10**7))
@settings(max_examples=200, deadline=None)
def test_the_variance_dominates_the_gaussian_by_the_sources_bound(sigma: float, l2: float, dimension: int) -> None:
    """Theorem 3.5 of the Skellam paper, as the accountant has it, at the chosen variance."""
    variance, l1 = skellam_variance(sigma, l2, dimension), l1_bound(l2, dimension)
    for order in (2, 3, 8, 63, 255):
        extra = min(((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
        assert order * l2**2 / (2 * variance) + extra <= order / (2 * sigma**2) * (1 + 1e-9)


def test_a_fine_grid_costs_nothing_and_a_coarse_one_costs_what_rounding_adds() -> None:
    fine, coarse = Grid.of_bits(16, 1.0, 10_250), Grid.of_bits(2, 1.0, 10_250)
    assert math.sqrt(fine.variance(0.9)) * fine.step == pytest.approx(0.9, rel=1e-3)
    assert math.sqrt(coarse.variance(0.9)) * coarse.step > 10 * 0.9


MODULI = st.one_of(st.integers(2, 40), st.integers(2, RING))


@given(MODULI, st.lists(st.integers(-(2**45), 2**45), max_size=6), st.data())
@settings(max_examples=300, deadline=None)
def test_the_modular_sum_is_that_of_integers_in_the_ring(modulus: int, values: list[int], data: st.DataObject) -> None:
    """Also where the parts themselves leave the ring: only the sum has to fit."""
    wanted = data.draw(st.integers(max(-(modulus // 2), -(2**50)), min((modulus - 1) // 2, 2**50)))
    parts = [np.array([value]) for value in (*values, wanted - sum(values))]
    assert modular_sum(iter(parts), modulus).tolist() == [wanted]


@given(st.integers(2, 2**20), st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_a_sum_that_leaves_the_ring_is_refused(modulus: int, values: list[int]) -> None:
    if -(modulus // 2) <= sum(values) <= (modulus - 1) // 2:
        assert modular_sum([np.array([value]) for value in values], modulus).tolist() == [sum(values)]
        return
    with pytest.raises(DataError, match="1 of 1 entries wrapped around"):
        modular_sum([np.array([value]) for value in values], modulus)


def test_one_entry_that_wraps_around_is_enough() -> None:
    parts = [np.array([3, 0]), np.array([1, -4])]
    assert modular_sum(parts, 16).tolist() == [4, -4]
    with pytest.raises(DataError, match="1 of 2 entries"):
        modular_sum(parts, 8)
    with pytest.raises(DataError, match="at least one"):
        modular_sum([])
