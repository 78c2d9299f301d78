"""The splits against LEAF's rules written as a plain loop."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.made_content import images, prepared, text_of
from subjectdp.data.content import IMAGE, TEXT, Content, Splits, part_sizes, sizes_after_split, split_items
from subjectdp.errors import DataError


def _leaf_sizes(n: int, fraction: float, text: bool) -> tuple[int, list[int]] | None:
    """LEAF's split by sample of one user: number of train items, and (for text) places of the test items."""
    if n < 2:
        return None
    train = 1 if n == 2 else max(1, int(fraction * n))
    test = list(range(train + 79, n)) if text else list(range(train, n))
    return (train, test) if test else None


def _parts(splits: Splits, content: Content) -> list[tuple[np.ndarray, np.ndarray]]:
    """Items and their subjects of each part; those of the train part as the split says."""
    parts = (splits.train_items, splits.validation_items, splits.test_items)
    owners = [np.searchsorted(content.first_items, items, side="right").astype(np.int32) - 1 for items in parts]
    return list(zip(parts, [splits.train_subjects, *owners[1:]], strict=True))


SIZES = st.lists(st.integers(1, 900), min_size=1, max_size=12)
FRACTIONS = st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.5])


@example([1, 2, 3, 4, 5, 79, 80, 81, 790, 791, 800], 0.1, True)
@example([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 0.1, False)
@given(SIZES, FRACTIONS, st.booleans())
def test_sizes_follow_leaf(items: list[int], fraction: float, text: bool) -> None:
    kind = TEXT if text else IMAGE
    train, test, kept = sizes_after_split(np.array(items, dtype=np.int64), fraction, kind)
    for n, a, b, keep in zip(items, train, test, kept, strict=True):
        wanted = _leaf_sizes(n, 1 - fraction, text)
        assert keep == (wanted is not None)
        if wanted is not None:
            assert (a, b) == (wanted[0], len(wanted[1]))


@settings(max_examples=30, deadline=None)
@given(SIZES, FRACTIONS, st.sampled_from([0.0, 0.2]))
def test_text_splits_are_leafs_with_a_gap_each(items: list[int], test: float, validation: float) -> None:
    content = text_of(items)
    expected_parts: list[list[tuple[int, int]]] = [[], [], []]
    for subject, (n, first) in enumerate(zip(items, content.first_items.tolist(), strict=True)):
        sizes = _leaf_sizes(n, 1 - test, text=True)
        if sizes is None:
            continue
        train, test_places = sizes
        fit = train if validation == 0 else 1 if train == 2 else max(1, int((1 - validation) * train))
        for part, places in zip(expected_parts, (range(fit), range(fit + 79, train), test_places), strict=True):
            part += [(first + place, subject) for place in places]
    if not expected_parts[2]:
        with pytest.raises(DataError, match="No subject"):
            split_items(prepared(content), 0, test, validation)
        return
    splits = split_items(prepared(content), 0, test, validation)
    for (addresses, subjects), wanted in zip(_parts(splits, content), expected_parts, strict=True):
        assert list(zip(addresses.tolist(), subjects.tolist(), strict=True)) == wanted
        assert addresses.dtype == subjects.dtype == np.int32


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), FRACTIONS, st.integers(0, 3))
def test_image_splits_are_a_partition_of_each_subject(items: list[int], test: float, seed: int) -> None:
    data = prepared(images(items))
    if max(items) < 2:
        with pytest.raises(DataError, match="No subject"):
            split_items(data, seed, test, 0.2)
        return
    splits = split_items(data, seed, test, 0.2)
    parts = _parts(splits, data)
    for subject, (n, first) in enumerate(zip(items, data.first_items.tolist(), strict=True)):
        own = [addresses[subjects == subject].tolist() for addresses, subjects in parts]
        sizes = _leaf_sizes(n, 1 - test, text=False)
        if sizes is None:
            assert own == [[], [], []]
            continue
        assert sorted(own[0] + own[1] + own[2]) == list(range(first, first + n))
        assert len(own[0]) + len(own[1]) == sizes[0] and all(part == sorted(part) for part in own)
    for addresses, subjects in parts:
        assert (np.diff(subjects) >= 0).all() and addresses.dtype == subjects.dtype == np.int32


def test_image_splits_depend_on_seed_and_subject_only() -> None:
    data = prepared(images([40] * 10))
    a, again, other = (split_items(data, seed, 0.2, 0.2) for seed in (0, 0, 1))
    np.testing.assert_array_equal(a.test_items, again.test_items)
    assert not np.array_equal(a.test_items, other.test_items)
    few = split_items(data.first_subjects(4), 0, 0.2, 0.2)
    with pytest.raises(DataError, match=r"data\.subjects"):
        data.first_subjects(0)
    np.testing.assert_array_equal(few.train_items, a.train_items[a.train_subjects < 4])
    first, second = (a.test_items[a.test_items // 40 == subject] - 40 * subject for subject in (0, 1))
    assert not np.array_equal(first, second)


def test_the_papers_fractions() -> None:
    """64/16/20 of each subject's items."""
    splits = split_items(prepared(images([250] * 4)), 0, 0.2, 0.2)
    assert np.bincount(splits.train_subjects).tolist() == [160] * 4
    assert (len(splits.validation_items) / 4, len(splits.test_items) / 4) == (40, 50)
    assert part_sizes(np.array([1, 2, 3, 10]), 0.0)[0].tolist() == [1, 2, 3, 10]
