"""Sampling of subjects: the law of coins and turns, whose coins are shared, and which items a subject brings."""

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from subjectdp.errors import PrivacyError
from subjectdp.sampling import StepKey, items_of_subjects, subjects_of_round


def chosen(subjects: int, q: float, round_: int, *place: int, seed: int = 0) -> NDArray[np.bool_]:
    return subjects_of_round(subjects, q, seed, round_, *place)


@pytest.mark.parametrize("q", [0.02, 0.3, 0.9])
def test_every_subset_has_its_poisson_probability(q: float) -> None:
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


def test_everybody_takes_part_at_probability_one() -> None:
    assert all(chosen(50, 1.0, r).all() for r in range(1, 5))


def test_a_round_has_coins_of_its_own_and_so_has_a_place() -> None:
    draws = {
        (r, place): tuple(chosen(60, 0.5, r, *place).tolist()) for r in (1, 2) for place in ((), (0, 0), (0, 1), (1, 0))
    }
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


@pytest.mark.parametrize("q", [0.0, -0.1, 1.01, float("nan"), float("inf")])
def test_probabilities_out_of_range_are_refused(q: float) -> None:
    with pytest.raises(PrivacyError, match="sampling probability of subjects"):
        subjects_of_round(5, q, 0, 1)


def test_items_out_of_range_are_refused() -> None:
    with pytest.raises(PrivacyError, match="items of a sampled subject"):
        items_of_subjects(np.zeros(3, np.int32), np.ones(1, bool), 0, StepKey(0, 1, 0, 0))
