"""The law by which subjects are spread over silos, the cap, and the bad settings."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from subjectdp.data.partition import keep_within_cap, spread_items

ALARM = 1e-6


def names(count: int) -> list[str]:
    return [f"f{index:04d}_14" for index in range(count)]


def spread(
    count: int, items: int, alpha: float, silos: int = 16, limit: int | None = None, seed: int = 0
) -> np.ndarray:
    """The silo of each item, (subjects, items)."""
    return spread_items(seed, names(count), np.full(count, items), silos, alpha, limit).reshape(count, items)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("limit", [None, 3])
def test_items_of_a_subject_follow_the_power_law_over_its_own_ranks(alpha: float, limit: int | None) -> None:
    """The rank probabilities ((r+1)/m)^alpha - (r/m)^alpha, read off one large subject."""
    ranks = 5 if limit is None else limit
    silos = spread(1, 40_000, alpha, 5, limit)[0]
    counts = np.bincount(silos, minlength=5)
    law = np.diff((np.arange(ranks + 1) / ranks) ** alpha)
    if alpha == 1:
        assert stats.chisquare(counts[counts > 0]).pvalue > ALARM
    observed, law = np.sort(counts)[5 - ranks :], np.sort(law)  # its own order is not known: compare by size
    assert np.count_nonzero(counts) == ranks
    assert stats.chisquare(observed, law * 40_000).pvalue > ALARM


def test_each_subject_has_an_order_of_its_own() -> None:
    """With alpha 16 most items of a subject are at its last silo: that silo must be uniform over subjects."""
    silos = spread(3000, 50, 16.0)
    favourite = [Counter(row.tolist()).most_common(1)[0][0] for row in silos]
    assert stats.chisquare(np.bincount(favourite, minlength=16)).pvalue > ALARM
    pairs = Counter(tuple(item for item, _ in Counter(row.tolist()).most_common(2)) for row in silos)
    assert len(pairs) > 200  # of 240 ordered pairs


def test_a_very_large_or_small_alpha_stays_inside() -> None:
    for alpha in (1e-320, 1e-9, 1e9, 1e300):
        silos = spread(20, 500, alpha)
        assert silos.min() >= 0 and silos.max() <= 15
        assert all(len(set(row)) == 1 for row in silos.tolist())  # the first or the last rank takes all


def test_same_seed_same_spread_and_other_seeds_differ() -> None:
    first = spread(50, 100, 2.0, seed=0)
    assert np.array_equal(first, spread(50, 100, 2.0, seed=0))
    for seed in (1, 2, 2**40):
        agreement = (first == spread(50, 100, 2.0, seed=seed)).mean()
        assert agreement < 0.2


def test_a_subject_does_not_depend_on_the_others() -> None:
    alone = spread_items(3, ["f0007_14"], np.array([100]), 16, 2.0)
    assert np.array_equal(alone, spread(20, 100, 2.0, seed=3)[7])


def test_alphas_share_the_order_of_silos() -> None:
    """A sweep over alpha is paired: same seed, same order, same uniform draw of each item."""
    low, high = spread(1, 5000, 4.0)[0], spread(1, 5000, 8.0)[0]
    assert Counter(low).most_common(1)[0][0] == Counter(high).most_common(1)[0][0]


@pytest.mark.parametrize("limit", [1, 2, 5, 16])
def test_silos_per_subject_bounds_the_silos_of_each_subject(limit: int) -> None:
    silos = spread(300, 60, 1.0, limit=limit)
    held = [len(set(row)) for row in silos.tolist()]
    assert max(held) == limit
    assert np.bincount(silos.ravel(), minlength=16).min() > 0


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(1, 9),
    st.integers(1, 12),
    st.sampled_from([0.5, 1.0, 3.0]),
)
@settings(max_examples=60, deadline=None)
def test_cap_keeps_as_much_as_it_may(items: list[int], silos: int, cap: int, alpha: float) -> None:
    counts = np.array(items)
    chosen = spread_items(1, names(len(items)), counts, silos, alpha)
    keep = keep_within_cap(1, names(len(items)), counts, chosen, cap)
    owner = np.repeat(np.arange(len(items)), counts)
    before = Counter(zip(owner.tolist(), chosen.tolist(), strict=True))
    after = Counter(zip(owner[keep].tolist(), chosen[keep].tolist(), strict=True))
    assert after == {group: min(size, cap) for group, size in before.items()}


def test_a_smaller_cap_keeps_a_subset() -> None:
    items = np.full(40, 200)
    silos = spread_items(0, names(40), items, 16, 4.0)
    kept = [keep_within_cap(0, names(40), items, silos, cap) for cap in (1, 4, 8, 1000)]
    for smaller, larger in zip(kept, kept[1:], strict=False):
        assert np.all(larger[smaller])
    assert kept[-1].all()


def test_the_cap_drops_at_random() -> None:
    """Over many subjects the kept items are uniform over a subject's positions (not the first ones)."""
    items = np.full(4000, 20)
    silos = np.zeros(80_000, dtype=np.int16)
    keep = keep_within_cap(0, names(4000), items, silos, 5).reshape(4000, 20)
    assert np.all(keep.sum(axis=1) == 5)
    z = (keep.sum(axis=0) - 1000) / np.sqrt(4000 * 0.25 * 0.75)
    assert stats.chi2.sf((z**2).sum() * 19 / 20, 19) > ALARM
    other = keep_within_cap(1, names(4000), items, silos, 5).reshape(4000, 20)
    assert not np.array_equal(keep, other)
