"""The prepared folder: written, loaded, and refused where it is damaged."""

import json
from pathlib import Path

import numpy as np
import pytest

from data.made_content import images, text_of
from subjectdp.data import store
from subjectdp.data.content import Content, count_content
from subjectdp.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inputs = [{"file": "a.zip", "sha256": "0" * 64, "bytes": 12}]
    store.write_prepared(tmp_path / "prepared", images([5, 9, 2]), "embedded", inputs, 0.2)
    return tmp_path / "prepared"


@pytest.mark.parametrize("content", [images([5, 9, 2]), text_of([100, 3, 1000])])
def test_what_is_written_is_loaded(tmp_path: Path, content: Content) -> None:
    store.write_prepared(tmp_path, content, "upstream", [], 0.2)
    data = store.load_prepared(tmp_path, verify=True)
    np.testing.assert_array_equal(data.features, content.features)
    np.testing.assert_array_equal(data.labels, content.labels)
    np.testing.assert_array_equal(data.first_items, content.first_items)
    np.testing.assert_array_equal(data.items, content.items)
    assert (data.subject_ids, data.groups) == (content.subject_ids, content.groups)
    assert (data.dataset, data.kind, data.classes, data.window, data.subjects, data.synthetic) == (
        *(content.dataset, content.kind, content.classes, content.window, 3, False),
    )
    assert data.features.dtype == data.labels.dtype == np.uint8


@pytest.mark.parametrize("content", [images([5, 9, 2]), text_of([100, 3, 1000])])
def test_the_most_frequent_class_is_the_best_that_a_constant_can_do(tmp_path: Path, content: Content) -> None:
    store.write_prepared(tmp_path, content, "upstream", [], 0.2)
    data = store.load_prepared(tmp_path)
    first, count = int(data.first_items[0]), int(data.items[0])
    items = np.arange(first, first + count)
    labels = [content.features[a + data.window] if data.window else content.labels[a] for a in items]
    np.testing.assert_array_equal(data.labels_of(items), labels)
    best = max(sum(label == guess for label in labels) for guess in range(data.classes))
    assert data.most_frequent_share(items) == best / count


def test_the_memory_map_cannot_be_written(folder: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        store.load_prepared(folder).features[0] = 0


def test_meta_says_what_the_data_are(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["synthetic"] is True and meta["source"] == "embedded"
    assert meta["inputs"] == [{"file": "a.zip", "sha256": "0" * 64, "bytes": 12}]
    assert meta["counts"] == count_content(images([5, 9, 2]), 0.2)
    assert set(meta["sha256"]) == {"features", "labels", "silos", "subjects"}


def test_features_are_hashed_where_they_are_verified(folder: Path) -> None:
    path = folder / "features.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    store.load_prepared(folder)
    with pytest.raises(DataError, match="was changed"):
        store.load_prepared(folder, verify=True)


def test_first_subjects(folder: Path) -> None:
    data = store.load_prepared(folder)
    assert data.first_subjects(2).subject_ids == ["f0000", "f0001"]
    for count in (0, 4):
        with pytest.raises(DataError, match=r"data\.subjects"):
            data.first_subjects(count)
