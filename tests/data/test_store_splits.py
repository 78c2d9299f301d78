"""The prepared format, and the splits against LEAF's rules written as a plain loop."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from subjectdp.data import store
from subjectdp.data.content import Content, check_content, check_expected, count_content
from subjectdp.data.splits import part_sizes, sizes_after_split
from subjectdp.errors import DataError

FOLDER = Path("unused")


def _images(items: list[int]) -> Content:
    counts = np.array(items, dtype=np.int64)
    total = int(counts.sum())
    generator = np.random.default_rng(0)
    return Content(
        dataset="femnist",
        kind=store.IMAGE,
        features=generator.integers(0, 256, (total, 28, 28), dtype=np.uint8),
        labels=generator.integers(0, 62, total, dtype=np.uint8),
        subject_ids=[f"f{i:04d}" for i in range(len(items))],
        groups=[""] * len(items),
        first_items=np.cumsum(counts) - counts,
        items=counts,
        classes=62,
    )


def _text(items: list[int]) -> Content:
    counts = np.array(items, dtype=np.int64)
    lengths = counts + store.WINDOW
    return Content(
        dataset="shakespeare",
        kind=store.TEXT,
        features=np.random.default_rng(0).integers(0, 80, int(lengths.sum()), dtype=np.uint8),
        labels=np.empty(0, dtype=np.uint8),
        subject_ids=[f"P_{i}" for i in range(len(items))],
        groups=["P", "Q"] * (len(items) // 2) + ["P"] * (len(items) % 2),
        first_items=np.cumsum(lengths) - lengths,
        items=counts,
        classes=80,
        window=store.WINDOW,
        vocabulary="x" * 80,
    )


def _prepared(content: Content) -> store.PreparedData:
    meta = {"dataset": content.dataset, "kind": content.kind, "window": content.window}
    ids, groups = np.array(content.subject_ids, dtype=object), np.array(content.groups, dtype=object)
    arrays = (content.features, content.labels, ids, groups, content.first_items, content.items)
    return store.PreparedData(FOLDER, *arrays, meta)


def _leaf_sizes(n: int, fraction: float, text: bool) -> tuple[int, list[int]] | None:
    """LEAF's split by sample of one user: number of train items, and (for text) places of the test items."""
    if n < 2:
        return None
    train = 1 if n == 2 else max(1, int(fraction * n))
    test = list(range(train + 79, n)) if text else list(range(train, n))
    return (train, test) if test else None


SIZES = st.lists(st.integers(1, 900), min_size=1, max_size=12)
FRACTIONS = st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.5])


@example([1, 2, 3, 4, 5, 79, 80, 81, 790, 791, 800], 0.1, True)
@example([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 0.1, False)
@given(SIZES, FRACTIONS, st.booleans())
def test_sizes_follow_leaf(items: list[int], fraction: float, text: bool) -> None:
    kind = store.TEXT if text else store.IMAGE
    train, test, kept = sizes_after_split(np.array(items, dtype=np.int64), fraction, kind)
    for n, a, b, keep in zip(items, train, test, kept, strict=True):
        wanted = _leaf_sizes(n, 1 - fraction, text)
        assert keep == (wanted is not None)
        if wanted is not None:
            assert (a, b) == (wanted[0], len(wanted[1]))


@settings(max_examples=30, deadline=None)
@given(SIZES, FRACTIONS, st.sampled_from([0.0, 0.2]))
def test_text_splits_are_leafs_with_a_gap_each(items: list[int], test: float, validation: float) -> None:
    content = _text(items)
    expected_parts: list[list[tuple[int, int]]] = [[], [], []]
    for subject, (n, first) in enumerate(zip(items, content.first_items.tolist(), strict=True)):
        sizes = _leaf_sizes(n, 1 - test, text=True)
        if sizes is None:
            continue
        train, test_places = sizes
        fit = train if validation == 0 else 1 if train == 2 else max(1, int((1 - validation) * train))
        for part, places in zip(
            expected_parts, (range(fit), range(fit + 79, train), test_places), strict=True
        ):
            part += [(first + place, subject) for place in places]
    if not expected_parts[2]:
        with pytest.raises(DataError, match="No subject"):
            store.split_items(_prepared(content), 0, test, validation)
        return
    splits = store.split_items(_prepared(content), 0, test, validation)
    found = [
        (splits.train_items, splits.train_subjects),
        (splits.validation_items, splits.validation_subjects),
        (splits.test_items, splits.test_subjects),
    ]
    for (addresses, subjects), wanted in zip(found, expected_parts, strict=True):
        assert list(zip(addresses.tolist(), subjects.tolist(), strict=True)) == wanted
        assert addresses.dtype == subjects.dtype == np.int32


def test_no_test_window_reads_what_a_train_window_reads() -> None:
    splits = store.split_items(_prepared(_text([2000])), 0, 0.1, 0.2)
    assert splits.train_items[-1] + 79 < splits.validation_items[0]
    assert splits.validation_items[-1] + 79 < splits.test_items[0]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), FRACTIONS, st.integers(0, 3))
def test_image_splits_are_a_partition_of_each_subject(items: list[int], test: float, seed: int) -> None:
    data = _prepared(_images(items))
    if max(items) < 2:
        with pytest.raises(DataError, match="No subject"):
            store.split_items(data, seed, test, 0.2)
        return
    splits = store.split_items(data, seed, test, 0.2)
    parts = (
        (splits.train_items, splits.train_subjects),
        (splits.validation_items, splits.validation_subjects),
        (splits.test_items, splits.test_subjects),
    )
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
    data = _prepared(_images([40] * 10))
    a, again, other = (store.split_items(data, seed, 0.2, 0.2) for seed in (0, 0, 1))
    np.testing.assert_array_equal(a.test_items, again.test_items)
    assert not np.array_equal(a.test_items, other.test_items)
    few = store.split_items(data.first_subjects(4), 0, 0.2, 0.2)
    np.testing.assert_array_equal(few.train_items, a.train_items[a.train_subjects < 4])
    first, second = (a.test_items[a.test_subjects == subject] - 40 * subject for subject in (0, 1))
    assert not np.array_equal(first, second)


def test_the_papers_fractions() -> None:
    """64/16/20 of each subject's items."""
    statistics = store.split_statistics(store.split_items(_prepared(_images([250] * 4)), 0, 0.2, 0.2))
    assert (statistics["train_mean"], statistics["validation_items"] / 4, statistics["test_items"] / 4) == (
        160,
        40,
        50,
    )
    assert statistics["users"] == 4 and statistics["train_std"] == 0


def test_a_split_of_millions_takes_about_a_second() -> None:
    import time

    data = replace(_prepared(_text([100])), first_items=np.arange(660) * 6500, items=np.full(660, 6400))
    started = time.process_time()
    splits = store.split_items(data, 0, 0.1, 0.2)
    assert len(splits.train_items) == 660 * 4608 and time.process_time() - started < 3


@pytest.mark.parametrize(
    ("test", "validation"), [(0, 0.2), (1, 0.2), (-0.1, 0.2), (0.2, 1), (0.2, -0.1), (float("nan"), 0)]
)
def test_fractions_out_of_range_are_refused(test: float, validation: float) -> None:
    with pytest.raises(DataError, match="fraction"):
        store.split_items(_prepared(_images([10])), 0, test, validation)


def test_sizes_of_a_train_part_without_validation() -> None:
    first, rest = part_sizes(np.array([1, 2, 3, 10]), 0.0)
    assert first.tolist() == [1, 2, 3, 10] and rest.tolist() == [0, 0, 0, 0]


# --- the folder ---------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inputs = [store.InputFile("a.zip", "0" * 64, 12)]
    store.write_prepared(tmp_path / "prepared", _images([5, 9, 2]), "embedded", inputs, 0.2)
    return tmp_path / "prepared"


@pytest.mark.parametrize("content", [_images([5, 9, 2]), _text([100, 3, 1000])])
def test_what_is_written_is_loaded(tmp_path: Path, content: Content) -> None:
    store.write_prepared(tmp_path, content, "upstream", [], 0.2)
    data = store.load_prepared(tmp_path, verify=True)
    np.testing.assert_array_equal(data.features, content.features)
    np.testing.assert_array_equal(data.labels, content.labels)
    np.testing.assert_array_equal(data.first_items, content.first_items)
    np.testing.assert_array_equal(data.items, content.items)
    assert (data.subject_ids.tolist(), data.groups.tolist()) == (content.subject_ids, content.groups)
    assert (data.dataset, data.kind, data.classes, data.window, data.subjects, data.synthetic) == (
        *(content.dataset, content.kind, content.classes, content.window, 3, False),
    )
    assert data.features.dtype == data.labels.dtype == np.uint8


def test_the_memory_map_cannot_be_written(folder: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        store.load_prepared(folder).features[0] = 0


def test_meta_says_what_the_data_are(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["synthetic"] is True and meta["source"] == "embedded"
    assert meta["inputs"] == [{"file": "a.zip", "sha256": "0" * 64, "bytes": 12}]
    assert meta["counts"] == count_content(_images([5, 9, 2]), 0.2)
    assert set(meta["sha256"]) == {"features", "labels", "subjects"}


@pytest.mark.parametrize("name", ["features.npy", "labels.npy", "subjects.parquet"])
def test_a_damaged_folder_is_refused(folder: Path, name: str) -> None:
    path = folder / name
    raw = path.read_bytes()
    path.write_bytes(raw[:-1])
    with pytest.raises(DataError, match=f"{name} has {len(raw) - 1} bytes"):
        store.load_prepared(folder)
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(DataError, match="changed after it was written"):
        store.load_prepared(folder, verify=True)
    path.unlink()
    with pytest.raises(DataError, match="is missing"):
        store.load_prepared(folder)


@pytest.mark.parametrize(
    ("meta", "problem"),
    [(None, "no complete"), ("", "cannot be read"), ("[]", "lacks"), ('{"kind": "image"}', "lacks")],
)
def test_a_bad_meta_is_refused(folder: Path, meta: str | None, problem: str) -> None:
    (folder / "meta.json").unlink() if meta is None else (folder / "meta.json").write_text(meta)
    with pytest.raises(DataError, match=problem):
        store.load_prepared(folder)


def test_a_changed_digit_in_the_meta_is_refused(folder: Path) -> None:
    text = (folder / "meta.json").read_text()
    changed = re.sub(r'("classes": \d*)\d', r"\g<1>3", text)
    assert changed != text
    (folder / "meta.json").write_text(changed)
    with pytest.raises(DataError, match="its seal is broken"):
        store.load_prepared(folder)


def test_another_format_version_is_refused(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "format": 99}))
    with pytest.raises(DataError, match="format"):
        store.load_prepared(folder)


def test_first_subjects(folder: Path) -> None:
    data = store.load_prepared(folder)
    assert data.first_subjects(2).subject_ids.tolist() == ["f0000", "f0001"]
    for count in (0, 4):
        with pytest.raises(DataError, match=r"data\.subjects"):
            data.first_subjects(count)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"subject_ids": []}, "no subject"),
        ({"groups": ["", ""]}, "lengths"),
        ({"subject_ids": ["a", "a", "b"]}, "not unique"),
        ({"items": np.array([5, 9, 0])}, "without items"),
        ({"items": np.array([5, 9, 3])}, "outside of the features"),
        ({"first_items": np.array([-1, 5, 14])}, "outside of the features"),
        ({"labels": np.zeros(15, dtype=np.uint8)}, "15 labels"),
        ({"labels": np.full(16, 62, dtype=np.uint8)}, "labels to be 0..61"),
    ],
)
def test_inconsistent_content_is_refused(change: dict[str, object], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        check_content(replace(_images([5, 9, 2]), **change))  # type: ignore[arg-type]


def test_a_symbol_outside_of_the_vocabulary_is_refused() -> None:
    with pytest.raises(DataError, match=r"symbols to be 0\.\.79"):
        check_content(replace(_text([5]), features=np.full(85, 80, dtype=np.uint8)))


def test_counts_and_expected_counts() -> None:
    counts = count_content(_images([5, 9, 1]), 0.2)
    assert (counts["users"], counts["items"], counts["users_after_split"]) == (3, 15, 2)
    assert counts["std"] == pytest.approx(np.sqrt(((5 - 5) ** 2 + (9 - 5) ** 2 + (1 - 5) ** 2) / 3))
    check_expected(counts, {"users": 3, "items": None})
    with pytest.raises(DataError, match="users: expected 4, found 3; items: expected 16, found 15"):
        check_expected(counts, {"users": 4, "items": 16, "groups": 0})
    with pytest.raises(DataError, match="no such count"):
        check_expected(counts, {"wombats": 1})
