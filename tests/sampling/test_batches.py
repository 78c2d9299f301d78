"""Sampling of items, subjects and silos: the laws of draws, their keys, and that the tests would see a wrong law."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from subjectdp.errors import ConfigError, PrivacyError
from subjectdp.plan.plan import SamplingMethod, SiloSchedule
from subjectdp.sampling import (
    BatchStatistics,
    StepKey,
    batch_statistics,
    items_of_subjects,
    poisson_positions,
    sample_items,
    sample_silos,
    subjects_of_round,
)

POISSON, FIXED = SamplingMethod.POISSON, SamplingMethod.FIXED_BATCH_SIZE
SMALL, PROBABILITY = 4, 0.3
ALARM = 1e-6  # a correct sampler fails a test with this probability; fixed seeds make it never or always


def schedule(items: int, probability: float = 0.1) -> SiloSchedule:
    return SiloSchedule(items, 10, probability, 8, 5, 1.0, items * probability)


def draw(items: int = 1000, q: float = 0.1, method: SamplingMethod = POISSON, **key: int) -> NDArray[np.int64]:
    full = {"seed": 0, "round_": 1, "silo": 0, "step": 0} | key
    return sample_items(items, schedule(items, q), method, 100, StepKey(**full))


def test_every_subset_has_its_poisson_probability() -> None:
    """All 2^n subsets of n items against independent coins: the complete joint law."""
    generator, draws = np.random.default_rng(11), 12_000
    seen = Counter(int((1 << poisson_positions(generator, SMALL, PROBABILITY)).sum()) for _ in range(draws))
    sizes = np.array([bin(mask).count("1") for mask in range(1 << SMALL)])
    law = PROBABILITY**sizes * (1 - PROBABILITY) ** (SMALL - sizes)
    observed = [seen[mask] for mask in range(1 << SMALL)]
    assert stats.chisquare(observed, law * draws).pvalue > ALARM


def test_batch_size_is_binomial_at_full_scale() -> None:
    """Mean and variance of the size against Binomial(items, batch / items)."""
    generator, items, batch, draws = np.random.default_rng(5), 30_000, 512, 800
    q = batch / items
    sizes = np.array([len(poisson_positions(generator, items, q)) for _ in range(draws)])
    variance = items * q * (1 - q)
    mean_p = 2 * stats.norm.sf(abs(sizes.mean() - batch) / np.sqrt(variance / draws))
    chi2 = (draws - 1) * sizes.var(ddof=1) / variance
    spread_p = 2 * min(stats.chi2.cdf(chi2, draws - 1), stats.chi2.sf(chi2, draws - 1))
    assert min(mean_p, spread_p) > ALARM


def keyed_membership(method: SamplingMethod, items: int, q: float, draws: int) -> NDArray[np.bool_]:
    """(draws, items): which item is in the mini-batch of which step, through the keyed entry point."""
    inside = np.zeros((draws, items), dtype=bool)
    for step in range(draws):
        inside[step, sample_items(items, schedule(items, q), method, round(items * q), StepKey(3, 1, 2, step))] = True
    return inside


def test_inclusion_probability_of_each_item_over_steps() -> None:
    draws, items, q = 4000, 60, 0.2
    counts = keyed_membership(POISSON, items, q, draws).sum(axis=0)
    z = (counts - draws * q) / np.sqrt(draws * q * (1 - q))
    assert abs(z).max() < 4.9
    assert stats.chi2.sf((z**2).sum(), items) > ALARM
    for wrong in (0.9 * q, 1.1 * q):
        shifted = (counts.sum() - draws * items * wrong) / np.sqrt(draws * items * wrong * (1 - wrong))
        assert abs(shifted) > 6


def test_steps_rounds_and_silos_are_independent() -> None:
    """Overlap of two mini-batches is q of a batch, whichever part of the key differs by one."""
    items, q, pairs = 2000, 0.1, 300
    for other in ({"step": 1}, {"round_": 1}, {"silo": 1}, {"seed": 1}):
        overlap = 0
        for index in range(pairs):
            base = {"seed": 10, "round_": 20, "silo": 30, "step": 10 * index}
            moved = {key: value + other.get(key, 0) for key, value in base.items()}
            overlap += len(np.intersect1d(draw(items, q, **base), draw(items, q, **moved)))
        expected_overlap = pairs * items * q * q
        assert abs(overlap - expected_overlap) < 5 * np.sqrt(expected_overlap)


def test_no_batch_repeats_in_a_whole_run() -> None:
    keys = [(r, s, t) for r in range(8) for s in range(8) for t in range(8)]
    keys += [(1, 23, 0), (12, 0, 3), (12, 3, 0)]  # whose digits are those of others
    batches = {draw(round_=r, silo=s, step=t).tobytes() for r, s, t in keys}
    assert len(batches) == len(keys)
    assert np.array_equal(draw(silo=2, step=3), draw(silo=2, step=3))
    assert len({draw(seed=seed).tobytes() for seed in range(5)}) == 5


def test_algorithms_of_one_seed_share_their_batches() -> None:
    """What an algorithm sets in the schedule (noise, divisor, cap) leaves the draw alone."""
    plain = schedule(1000)
    private = replace(plain, noise_multiplier=9.0, divisor=77.0, max_items_per_subject=1, steps_per_round=99)
    first = sample_items(1000, plain, POISSON, 100, StepKey(5, 1, 2, 3))
    assert np.array_equal(first, sample_items(1000, private, POISSON, 100, StepKey(5, 1, 2, 3)))


@pytest.mark.parametrize("method", list(SamplingMethod))
def test_positions_are_sorted_unique_and_inside(method: SamplingMethod) -> None:
    for step in range(50):
        batch = draw(317, 0.3, method, step=step)
        assert batch.dtype == np.int64
        assert np.all(np.diff(batch) > 0)
        assert len(batch) == 0 or (batch[0] >= 0 and batch[-1] < 317)


def test_poisson_batches_can_be_empty_and_are_so_as_often_as_they_should() -> None:
    draws = 2000
    empty = sum(len(draw(5, 0.1, step=step)) == 0 for step in range(draws))
    assert stats.binomtest(empty, draws, 0.9**5).pvalue > ALARM


def test_extremes() -> None:
    assert np.array_equal(draw(50, 1.0), np.arange(50)) and all(chosen(50, 1.0, r).all() for r in range(1, 5))
    assert np.array_equal(draw(100, 0.5, FIXED), np.arange(100))
    assert len(draw(1, 0.5)) in (0, 1)
    sizes = {len(draw(1000, 0.1, FIXED, step=step)) for step in range(20)}
    assert sizes == {100}


def test_fixed_batches_hold_every_item_equally_often() -> None:
    draws, items = 3000, 50
    counts = keyed_membership(FIXED, items, 0.2, draws).sum(axis=0)
    assert counts.sum() == draws * 10
    statistic = ((counts - draws * 0.2) ** 2).sum() / (draws * 0.2 * 0.8) * (items - 1) / items
    assert stats.chi2.sf(statistic, items - 1) > ALARM


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.0001, float("nan"), float("inf")])
def test_a_probability_outside_of_its_range_is_refused(probability: float) -> None:
    with pytest.raises(PrivacyError, match=r"sampling probability of silo 3.*\(0, 1\]"):
        sample_items(10, schedule(10, probability), POISSON, 5, StepKey(0, 1, 3, 0))
    with pytest.raises(PrivacyError, match="sampling probability of subjects"):
        subjects_of_round(5, probability, 0, 1)


@pytest.mark.parametrize("batch_size", [0, -1, 11])
def test_a_fixed_batch_larger_than_the_silo_is_refused(batch_size: int) -> None:
    with pytest.raises(ConfigError, match=rf"training.batch_size to be 1 to 10.*got {batch_size}"):
        sample_items(10, schedule(10), FIXED, batch_size, StepKey(0, 1, 0, 0))


def test_a_silo_that_the_plan_was_not_made_for_is_refused() -> None:
    with pytest.raises(PrivacyError, match="items of silo 2 to be the plan's 10, got 11"):
        sample_items(11, schedule(10), POISSON, 5, StepKey(0, 1, 2, 0))


def test_all_silos_or_some() -> None:
    assert np.array_equal(sample_silos(5, None, 0, 1), np.arange(5))
    assert np.array_equal(sample_silos(5, 5, 0, 1), np.arange(5))
    chosen = sample_silos(16, 4, 0, 1)
    assert len(chosen) == 4 and np.all(np.diff(chosen) > 0) and chosen[-1] < 16
    assert np.array_equal(chosen, sample_silos(16, 4, 0, 1))
    assert len({tuple(sample_silos(16, 4, 0, r)) for r in range(30)}) > 20
    assert len({tuple(sample_silos(16, 4, seed, 1)) for seed in range(30)}) > 20


def test_every_set_of_silos_is_equally_likely() -> None:
    seen = Counter(tuple(sample_silos(5, 2, 7, round_)) for round_ in range(3000))
    assert len(seen) == 10
    assert stats.chisquare(list(seen.values())).pvalue > ALARM


@pytest.mark.parametrize("s", [0, -1, 6])
def test_more_silos_than_there_are_is_refused(s: int) -> None:
    with pytest.raises(ConfigError, match=r"training.silos_per_round to be 1 to 5.*got"):
        sample_silos(5, s, 0, 1)


@given(st.lists(st.integers(0, 30), max_size=80), st.sampled_from([np.uint8, np.int32, np.int64]))
@example([], np.int32)
@example([7], np.int32)
@example([2, 2, 2], np.int64)
@example([5, 1, 5, 1, 5], np.uint8)
def test_statistics_of_a_batch_against_a_counter(subjects: list[int], kind: type[np.integer[Any]]) -> None:
    counter = Counter(subjects)
    wanted = BatchStatistics(len(subjects), len(counter), max(counter.values(), default=0))
    assert batch_statistics(np.array(subjects, dtype=kind)) == wanted


# --- subjects ---


def chosen(subjects: int, q: float, round_: int, *place: int, seed: int = 0) -> NDArray[np.bool_]:
    return subjects_of_round(subjects, q, seed, round_, *place)


@pytest.mark.parametrize("q", [0.02, 0.3, 0.9])
def test_every_subset_of_subjects_has_its_poisson_probability(q: float) -> None:
    draws = Counter(tuple(chosen(3, q, r).tolist()) for r in range(1, 4001))
    observed, expected = [], []
    for key in np.ndindex(2, 2, 2):
        probability = q ** sum(key) * (1 - q) ** (3 - sum(key))
        observed.append(draws[tuple(bool(v) for v in key)])
        expected.append(4000 * probability)
    few = np.array(expected) < 5  # pooled, as the test of fit asks for
    observed = [*np.array(observed)[~few], np.array(observed)[few].sum()]
    expected = [*np.array(expected)[~few], np.array(expected)[few].sum()]
    kept = [(o, e) for o, e in zip(observed, expected, strict=True) if e > 0]
    assert stats.chisquare(*zip(*kept, strict=True)).pvalue > 1e-4


def test_a_round_has_coins_of_its_own_and_so_has_a_place() -> None:
    places = ((), (0, 0), (0, 1), (1, 0))
    draws = {(r, place): tuple(chosen(60, 0.5, r, *place).tolist()) for r in (1, 2) for place in places}
    assert len(set(draws.values())) == len(draws)
    assert np.array_equal(chosen(60, 0.5, 1), chosen(60, 0.5, 1))
    assert not np.array_equal(chosen(60, 0.5, 1), chosen(60, 0.5, 1, seed=1))


def test_all_items_of_the_chosen_and_of_nobody_else() -> None:
    owners = np.array([0, 0, 1, 3, 3, 3], np.int32)
    found = items_of_subjects(owners, np.array([True, False, True, True]), None, StepKey(0, 1, 0, 0))
    assert found.tolist() == [0, 1, 3, 4, 5]
    nobody = items_of_subjects(owners, np.zeros(4, bool), 2, StepKey(0, 1, 0, 0))
    assert nobody.tolist() == [] and nobody.dtype == np.int64


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_at_most_so_many_items_of_each_subject(most: int) -> None:
    owners = np.repeat(np.arange(5), [1, 2, 3, 4, 8]).astype(np.int32)
    take = np.array([True, True, True, False, True])
    found = items_of_subjects(owners, take, most, StepKey(0, 1, 0, 0))
    assert np.bincount(owners[found], minlength=5).tolist() == [
        min(n, most) if t else 0 for n, t in zip([1, 2, 3, 4, 8], take, strict=True)
    ]
    assert np.all(np.diff(found) > 0)


def test_the_kept_items_of_a_subject_are_a_uniform_subset() -> None:
    owners = np.array([0, 1, 1, 1, 1, 2], np.int32)
    draws = Counter(
        tuple(items_of_subjects(owners, np.array([False, True, True]), 2, StepKey(0, r, 3, 1))[:2].tolist())
        for r in range(3000)
    )
    assert len(draws) == 6
    assert stats.chisquare(list(draws.values())).pvalue > 1e-4


def test_items_have_keys_of_seed_round_silo_and_step() -> None:
    owners = np.repeat(np.arange(30), 10).astype(np.int32)
    keys = [(0, 1, 0, 0), (1, 1, 0, 0), (0, 2, 0, 0), (0, 1, 1, 0), (0, 1, 0, 1)]
    draws = {tuple(items_of_subjects(owners, np.ones(30, bool), 3, StepKey(*key)).tolist()) for key in keys}
    assert len(draws) == len(keys)


def test_items_out_of_range_are_refused() -> None:
    with pytest.raises(PrivacyError, match="items of a sampled subject"):
        items_of_subjects(np.zeros(3, np.int32), np.ones(1, bool), 0, StepKey(0, 1, 0, 0))
