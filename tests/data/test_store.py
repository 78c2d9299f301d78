"""What a parsed data set has to fulfil; its folder: written, loaded, and refused where it is damaged."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.made_content import images, text_of
from subjectdp.data.content import VECTOR, Content, check_content, check_expected, count_content, most_copies
from subjectdp.data.store import load_prepared, read_arrays, write_folder, write_prepared
from subjectdp.errors import DataError
from subjectdp.io.atomic import sealed

CONTENTS = [images([5, 9, 2]), text_of([100, 3, 1000])]


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
        ({"silo_names": ("n", "s"), "silos": np.full(16, 2, np.int16)}, "silos to be 0..1"),
        ({"silo_names": ("n", "s"), "silos": np.zeros(15, np.int16)}, "15 silos"),
        ({"silo_names": ("n", "n"), "silos": np.zeros(16, np.int16)}, "the silos are not unique"),
        ({"classes": 0}, "labels to be numbers from 0 to 1"),
        ({"features": np.full((16, 1), np.nan, np.float32), "kind": VECTOR}, "finite"),
        ({"features": np.ones((16, 28, 28), np.float32)}, "features to be uint8, got 'float32'"),
        ({"labels": np.zeros(16)}, "labels to be whole numbers, got 'float64'"),
        ({"first_items": np.array([0, 4, 14])}, "of two subjects, or of none"),
        ({"first_items": np.array([11, 2, 0])}, "in the order of their items' addresses"),
        ({"items": np.array([5, 8, 2])}, "of two subjects, or of none"),
        ({"items": [5, 9, 2]}, "femnist items to be an array of NumPy, of one dimension, of whole numbers, got 'list'"),
        ({"items": np.array([5.0, 9.0, 2.0])}, r"items to be .* of whole numbers, got 'float64 \(3,\)'"),
        ({"labels": np.zeros((16, 1), np.uint8)}, r"labels to be .* of one dimension, got 'uint8 \(16, 1\)'"),
        ({"subject_ids": [0, 1, 2]}, "subject_ids to be a list of texts"),
        ({"own_subjects": True}, "own_subjects, and a subject with several items"),
        ({"silos": np.zeros(16, np.int16)}, "16 items, 16 silos of items"),
        ({"groups": None}, "groups to be a list of texts"),
    ],
)
def test_inconsistent_content_is_refused(change: dict[str, Any], problem: str) -> None:
    check_content(CONTENTS[0])
    with pytest.raises(DataError, match=problem):
        check_content(replace(CONTENTS[0], **change))


def test_a_text_that_two_characters_share_is_refused() -> None:
    text = text_of([5, 9])
    with pytest.raises(DataError, match="of two subjects"):
        check_content(replace(text, first_items=text.first_items - [0, 1]))


def test_a_symbol_outside_of_the_vocabulary_is_refused() -> None:
    with pytest.raises(DataError, match=r"symbols to be 0\.\.79"):
        check_content(replace(text_of([5]), features=np.full(85, 80, dtype=np.uint8)))


def test_counts_and_expected_counts() -> None:
    counts = count_content(images([5, 9, 1]), 0.2)
    assert (counts["users"], counts["items"], counts["users_after_split"]) == (3, 15, 2)
    assert counts["std"] == pytest.approx(np.sqrt(((5 - 5) ** 2 + (9 - 5) ** 2 + (1 - 5) ** 2) / 3))
    check_expected(counts, {"users": 3})
    with pytest.raises(DataError, match="users: expected 4, found 3; items: expected 16, .*wombats: .*no such count"):
        check_expected(counts, {"users": 4, "items": 16, "groups": 0, "wombats": 1})


def test_copies_of_an_item_within_a_subject_are_counted() -> None:
    """LEAF lists a first image twice; the same image of another subject is another subject's item."""
    content = images([5, 7, 4])
    assert most_copies(content) == 1 == most_copies(text_of([9, 20]))
    for place, copies in ((5, 1), (6, 2), (9, 3)):
        content.features[place] = content.features[0]
        assert most_copies(content) == copies


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inputs = [{"file": "a.zip", "sha256": "0" * 64, "bytes": 12}]
    write_prepared(tmp_path, images([5, 9, 2, 900]), "embedded", inputs, 0.2)
    return tmp_path


@pytest.mark.parametrize("content", CONTENTS)
def test_what_is_written_is_loaded(tmp_path: Path, content: Content) -> None:
    """And its most frequent class is the best that a constant can do."""
    write_prepared(tmp_path, content, "upstream", [], 0.2)
    data = load_prepared(tmp_path, verify=True)
    for name, value in vars(content).items():
        np.testing.assert_array_equal(getattr(data, name), value)
    assert (data.subjects, data.synthetic, data.features.dtype, data.labels.dtype) == (3, False, np.uint8, np.uint8)
    for array in (data.features, data.labels):
        with pytest.raises(ValueError, match="read-only"):
            array[:1] = 0
    items = data.first_items[0] + np.arange(data.items[0])
    labels = [content.features[a + data.window] if data.window else content.labels[a] for a in items]
    np.testing.assert_array_equal(data.labels_of(items), labels)
    best = max(sum(label == guess for label in labels) for guess in range(data.classes))
    assert data.most_frequent_share(items) == best / len(items)


def test_meta_says_what_the_data_are(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["synthetic"] is True and meta["source"] == "embedded"
    assert meta["inputs"] == [{"file": "a.zip", "sha256": "0" * 64, "bytes": 12}]
    assert meta["counts"] == count_content(images([5, 9, 2, 900]), 0.2)
    assert set(meta["sha256"]) == {"features", "labels", "silos", "subjects"}


@pytest.mark.parametrize("size", [0, 5, 5000])  # empty, read whole, mapped
def test_arrays_come_back_and_are_read_only(tmp_path: Path, size: int) -> None:
    facts = write_folder(tmp_path / "index.json", {"a": np.arange(size, dtype=np.int16)}, {})
    array = read_arrays(tmp_path, ["a"], facts)["a"]
    assert array.dtype == np.int16 and array.tolist() == list(range(size)) and not array.flags.writeable


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def reseal(path: Path) -> None:
    path.write_text(json.dumps(sealed({**json.loads(path.read_text()), "format": 99})))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (Path.unlink, r"meta\.json is missing"),
        (truncate, "is missing or damaged"),
        (lambda path: path.write_text(""), "is missing or damaged"),
        (lambda path: path.write_text("[1]"), "checksum mismatch"),
        (lambda path: path.write_text('{"format": 1}'), "checksum mismatch"),
        (lambda path: path.write_text(path.read_text().replace('"classes": 62', '"classes": 63')), "checksum mismatch"),
        (reseal, "format to be 3, got 99"),
    ],
)
def test_a_damaged_index_is_refused(folder: Path, spoil: Callable[[Path], object], told: str) -> None:
    spoil(folder / "meta.json")
    with pytest.raises(DataError, match=told):
        load_prepared(folder)


@pytest.mark.parametrize("name", ["labels.npy", "silos.npy", "features.npy", "subjects.parquet"])
@pytest.mark.parametrize("spoil", [Path.unlink, truncate, flip])
def test_a_damaged_file_is_refused(folder: Path, name: str, spoil: Callable[[Path], object]) -> None:
    spoil(folder / name)
    if name == "features.npy" and spoil is flip:
        load_prepared(folder)  # hashed where they are verified
    with pytest.raises(DataError, match=f"{name} is (missing|truncated or was changed)"):
        load_prepared(folder, verify=True)
