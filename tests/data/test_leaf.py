"""LEAF's data as JSON, parquet, CSV and HDF5: read to the grey level and character, or refused."""

import io
import json
import math
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from data.made_content import texts_of
from hostile.limits import png_with
from source_files import leaf_femnist, leaf_shakespeare, leaf_windows, write_document, write_zip
from subjectdp.config.run import load_run
from subjectdp.config.sections import DataConfig
from subjectdp.data import leaf_json
from subjectdp.data.content import Content, check_content, check_expected, count_content
from subjectdp.data.leaf_json import read_users
from subjectdp.data.prepare import inspect_source, read_source
from subjectdp.data.sizes import leaf_sizes
from subjectdp.errors import ConfigError, DataError
from subjectdp.forecast.before_start import expected_items
from subjectdp.forecast.plan_report import federation_of

REAL = os.environ.get("SUBJECTDP_REAL_DATA")
TEXT = "Shall I compare thee to a summer's day? Thou art more lovely and more temperate: rough winds. " * 3

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet='ab"\\{}[],: \n\u00e9\U0001f600', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


USERS = st.dictionaries(st.text(max_size=5), JSON, max_size=4)
OTHER = st.dictionaries(st.text(max_size=5).filter(lambda key: key != "user_data"), JSON, max_size=3)


# --- the reader ---------------------------------------------------------------------------------------------


class _Trickle(io.BytesIO):
    """Gives at most ``step`` bytes a read."""

    step = 1

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self.step)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(USERS, OTHER, st.sampled_from([None, 1]), st.booleans(), st.integers(1, 40))
def test_the_stream_gives_what_the_standard_library_gives(
    users: dict[str, Any], other: dict[str, Any], indent: int | None, ascii_only: bool, step: int
) -> None:
    document = {**other, "user_data": users}
    stream = _Trickle(json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode())
    stream.step = step
    header: dict[str, Any] = {}
    assert dict(read_users(stream, "f", header)) == users
    assert header == other


@given(st.data())
def test_every_truncation_is_noticed(data: st.DataObject) -> None:
    raw = json.dumps({"a": "x]", "user_data": {"u": {"x": [1.5, "q{"], "y": [True]}}, "n": 12}).encode()
    end = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(DataError, match="truncated|empty|cannot be read"):
        list(read_users(io.BytesIO(raw[:end]), "f", {}))


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "the file is empty"),
        (b"<!DOCTYPE html>", "web page"),
        (b"{}", "'user_data' is missing"),
        *((raw, "not valid JSON") for raw in (b"[]", b'{"user_data": []}', b'\xef\xbb\xbf{"user_data": {}}')),
        *((b'{"user_data": {%s}}' % users, "not valid JSON") for users in (b"a: 1", b'"a": 1 "b": 2')),
        (b'{"user_data": {}} {}', "more after the end"),
        (b'{"user_data": {}, "user_data": {}}', "comes twice"),
        (b'{"user_data": {"a": 1, "a": 2}}', "'a' comes twice"),
        (b'{"user_data": {"a": NaN}}', "a number is NaN"),
        (b'{"user_data": {"a": {"y": 1, "y": 1}}}', "same key twice"),
        (b'{"user_data": {"a": [1, -Infinity]}}', "a number is -Infinity"),
        *((b'{"user_data": {"a": %s}}' % n, "cannot be read") for n in (b"9" * 5000, b"{]", b"nul", b'"\xff\xfe"')),
        (b'{"user_data": {"a": %s}}' % (b"[" * 100_000 + b"]" * 100_000), "recursion depth"),
        *(('{"user_data": {"\u00e9": 1}}'.encode(code), "JSON|cannot be read") for code in ("utf-16", "latin-1")),
    ],
)
def test_bad_json_is_refused(raw: bytes, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        list(read_users(io.BytesIO(raw), "f", {}))


def test_an_endless_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_json, "_LARGEST_VALUE", 1000)
    monkeypatch.setattr(leaf_json, "_CHUNK", 100)
    with pytest.raises(DataError, match="longer than 1000 characters"):
        list(read_users(io.BytesIO(b'{"user_data": {"a": [' + b"1," * 5000), "f", {}))


# --- FEMNIST ------------------------------------------------------------------------------------------------


def _femnist(tmp_path: Path, document: Any) -> Content:
    return leaf_json.load("femnist", write_document(tmp_path / "all_data_0.json", document))


@pytest.mark.parametrize("kind", ["file", "folder", "zip"])
def test_femnist_is_read_to_the_grey_level(tmp_path: Path, kind: str) -> None:
    first, second = leaf_femnist({"f0_1": 3, "f1_1": 1}, seed=1), leaf_femnist({"f2_1": 4}, seed=2)
    documents = {"all_data_10.json": second, "all_data_2.json": first}
    if kind == "zip":
        files = {f"data/all_data/{n}": json.dumps(d).encode() for n, d in documents.items()}
        path = write_zip(tmp_path / "leaf.zip", files)
    else:
        for name, document in documents.items():
            write_document(tmp_path / "all_data" / name, document)
        path = tmp_path if kind == "folder" else tmp_path / "all_data" / "all_data_2.json"
    content = leaf_json.load("femnist", path)
    check_content(content)
    users = first["user_data"] if kind == "file" else first["user_data"] | second["user_data"]
    assert content.subject_ids == list(users)
    wanted = np.concatenate([np.array(user["x"]) for user in users.values()])
    np.testing.assert_array_equal(content.features.reshape(-1, 784) / 255, wanted)
    assert content.labels.tolist() == [label for user in users.values() for label in user["y"]]


@pytest.mark.parametrize("written", ["64 bits", "32 bits", "6 digits"])
def test_every_grey_level_survives(tmp_path: Path, written: str) -> None:
    levels = np.arange(256)
    pixels = np.concatenate([levels, np.zeros(528)]) / 255
    if written == "32 bits":
        pixels = (pixels.astype(np.float32)).astype(np.float64)
    elif written == "6 digits":
        pixels = np.round(pixels, 6)
    document = leaf_femnist({"u": 1})
    document["user_data"]["u"]["x"] = [pixels.tolist()]
    assert _femnist(tmp_path, document).features.reshape(-1)[:256].tolist() == levels.tolist()


def test_train_and_test_are_pooled_by_user_and_users_without_items_are_dropped(tmp_path: Path) -> None:
    train, test = leaf_femnist({"a": 3, "b": 2, "none": 0}, seed=1), leaf_femnist({"b": 1, "c": 2}, seed=2)
    write_document(tmp_path / "data/test/all_data_0_keep_0_test_9.json", test)
    write_document(tmp_path / "data/train/all_data_0_keep_0_train_9.json", train)
    write_document(tmp_path / "data/all_data/all_data_0.json", leaf_femnist({"z": 9}))
    content = leaf_json.load("femnist", tmp_path)
    assert dict(zip(content.subject_ids, content.items.tolist(), strict=True)) == {"a": 3, "b": 3, "c": 2}
    assert content.labels[3:6].tolist() == train["user_data"]["b"]["y"] + test["user_data"]["b"]["y"]
    assert content.notes["stages"] == "test+train" and content.notes["users_without_items"] == 1


def test_the_most_processed_stage_is_read(tmp_path: Path) -> None:
    for items, stage in enumerate(("all_data", "sampled_data", "rem_user_data"), start=1):
        write_document(tmp_path / stage / "all_data_0.json", leaf_femnist({"u": items}))
        assert leaf_json.load("femnist", tmp_path).items.tolist() == [items]


def test_side_files_are_left_out_and_odd_names_are_sorted(tmp_path: Path) -> None:
    odd = {"\u00b2.json": {"a": 1}, f"{'7' * 60}.json": {"b": 1}, "\u0664.json": {"c": 1}}
    files = {name: json.dumps(leaf_femnist(users)).encode() for name, users in odd.items()}
    files |= {"__MACOSX/all_data_0.json": b"x", "._a.json": b"x", "users_and_plays.json": b"{}", "readme.txt": b""}
    assert sorted(leaf_json.load("femnist", write_zip(tmp_path / "leaf.zip", files)).subject_ids) == ["a", "b", "c"]


def _changed(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Other columns x and y of the first user, other lists of the head."""
    user = document["user_data"][document["users"][0]]
    for key, value in changes.items():
        (user if key in ("x", "y") else document)[key] = value
    return document


def _two(**changes: Any) -> dict[str, Any]:
    return _changed(leaf_femnist({"a": 2, "b": 1}), **changes)


_ROW = [0.0] * 784
PIXELS = {1.1: r"pixels to be in \[0, 1\]", -1e-9: "pixels to be in", 0.5: "not multiples of 1/255"}
PIXELS |= {math.inf: r"Infinity|in \[0, 1\]", math.nan: "a number is NaN"}
PIXELS |= {True: "true and false", 10**400: "pixels|numbers"}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        *((_two(y=[0, label]), "labels to be whole") for label in (62, -1, 1.5)),
        *((_two(y=labels), "expected 2 numbers") for labels in (["a", "b"], [0, 10**30])),
        (_two(y=[0]), "2 entries in x, 1 in y"),
        (_two(y=None), "must be lists"),
        *((_two(x=[_ROW, row]), "expected 2 x 784 numbers") for row in (_ROW[:-1], ["0.5"] * 784, None)),
        *((_two(x=[_ROW, [pixel, *_ROW[1:]]]), told) for pixel, told in PIXELS.items()),
        (_two(x=[_ROW, [[0], *_ROW[1:]]]), "numbers"),
        (_two(y=[0, True]), "true and false"),
        *((_two(num_samples=[number, 1]), "num_samples of 'a'") for number in (True, 81)),
        (_two(users=[1, "b"]), "names .text. only"),
        (_two(users=["a"], num_samples=[2]), "different users"),
        (_two(users=["a", "b", "a"], num_samples=[2, 2, 2]), r"or one twice: \['a'\]"),
        (_two(num_samples=[2]), "equal length"),
        (_two(num_samples=[2, 2]), "num_samples of 'b'"),
        (_two(users=None), "the lists users and num_samples"),
        (_two(user_data={"a": {"x": []}, "b": {}}), "the keys x and y"),
        (_two(user_data={}, users=[], num_samples=[]), "no user with an image"),
    ],
)
def test_bad_femnist_is_refused(tmp_path: Path, document: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        _femnist(tmp_path, document)


def test_a_user_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("all_data_0.json", "all_data_1.json"):
        write_document(tmp_path / name, leaf_femnist({"a": 2}))
    with pytest.raises(DataError, match="in an earlier file already"):
        leaf_json.load("femnist", tmp_path)


# --- Shakespeare --------------------------------------------------------------------------------------------


def test_windows_become_the_text_again(tmp_path: Path) -> None:
    texts = {"P_A": TEXT, "P_B": TEXT[7:200]}
    path = write_document(tmp_path / "all_data.json", leaf_shakespeare(texts))
    content = leaf_json.load("shakespeare", path)
    check_content(content)
    assert texts_of(content) == texts and content.groups == ["A PLAY", "A PLAY"]
    assert content.items.tolist() == [len(text) - 80 for text in texts.values()]


@pytest.mark.parametrize("gap", [79, 0])
def test_leafs_split_files_are_pooled_into_the_whole_text(tmp_path: Path, gap: int) -> None:
    """With the gap the test part begins where the train part ends; before 2020 LEAF had none."""
    for side, part in (("train", slice(100)), ("test", slice(100 + gap, None))):
        windows = {key: value[part] for key, value in leaf_windows(TEXT).items()}
        declared = len(windows["y"]) + (79 if gap and side == "test" else 0)
        document = {"users": ["u"], "num_samples": [declared], "user_data": {"u": windows}}
        write_document(tmp_path / side / f"all_data_{side}_9.json", document)
    content = leaf_json.load("shakespeare", tmp_path)
    assert texts_of(content) == {"u": TEXT} and content.groups == [""]
    assert content.notes["users_declared_79_too_many"] == (1 if gap else 0)


def test_parts_that_do_not_join_are_refused(tmp_path: Path) -> None:
    for side, text in (("train", TEXT[:150]), ("test", "?" + TEXT[:150])):
        write_document(tmp_path / side / "all_data.json", leaf_shakespeare({"u": text}))
    with pytest.raises(DataError, match="not one text"):
        leaf_json.load("shakespeare", tmp_path)


def _one(**changes: Any) -> dict[str, Any]:
    return _changed(leaf_shakespeare({"u": TEXT}), **changes)


_W = leaf_windows(TEXT)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (_one(x=_W["x"][::-1], y=_W["y"][::-1]), "window 1 does not follow"),
        (_one(x=_W["x"][:5] + _W["x"][6:] + _W["x"][5:6]), "does not follow"),
        *((_one(x=windows), "strings of 80") for windows in ([w[:-1] for w in _W["x"]], [1] * len(_W["x"]))),
        *((_one(y=[following] * len(_W["y"])), "single characters") for following in ("ab", 3)),
        (_one(hierarchies=["A", "B"]), "one play for each user"),
        (_one(num_samples=[len(_W["y"]) + 78]), "num_samples"),
        (leaf_shakespeare({"u": TEXT.replace("I", "\u2019")}), "outside of LEAF's 80"),
        (leaf_shakespeare({"u": TEXT[:80]}), "No user has a text"),
    ],
)
def test_bad_shakespeare_is_refused(tmp_path: Path, document: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        leaf_json.load("shakespeare", write_document(tmp_path / "all_data.json", document))


@pytest.mark.skipif(REAL is None, reason="the real LEAF files are not part of the project")
def test_the_real_writers() -> None:
    content = leaf_json.load("femnist", Path(str(REAL)) / "femnist_leaf_180_writers.zip")
    counts = count_content(content, 0.2)
    check_expected(counts, {"users": 180, "items": 27_696, "classes": 62, "users_after_split": 180})
    assert round(counts["mean"], 1) == 153.9


# --- other forms --------------------------------------------------------------------------------------------


WRITERS = {"f0000_14": 5, "f1501_00": 3}
TEXTS = {"HAMLET_HAMLET": "To be, or not to be: that is the question: " * 3}
TEXTS |= {"MACBETH_WITCH": "When shall we three meet again? " * 4}


def _pictures(count: int, seed: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (count, 28, 28)).astype(np.uint8), generator.integers(0, 62, count)


def _png(picture: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PNG")
    return stream.getvalue()


def _load(path: Path, dataset: str = "femnist", **more: Any) -> Content:
    content = read_source(DataConfig(dataset=dataset, source="leaf_json", path=str(path), **more), path)
    check_content(content)
    return content


def _check_writers(content: Content) -> None:
    assert content.subject_ids == list(WRITERS) and content.items.tolist() == list(WRITERS.values())
    for seed, (first, count) in enumerate(zip(content.first_items, content.items, strict=True)):
        pictures, labels = _pictures(count, seed)
        assert (content.features[first : first + count] == pictures).all()
        assert content.labels[first : first + count].tolist() == labels.tolist()


@pytest.mark.parametrize("struct", [True, False])
def test_femnist_of_flower_labs(tmp_path: Path, struct: bool) -> None:
    rows = []
    for seed, (writer, count) in enumerate(WRITERS.items()):
        for picture, label in zip(*_pictures(count, seed), strict=True):
            image = {"bytes": _png(picture), "path": None} if struct else _png(picture)
            rows.append({"image": image, "writer_id": writer, "hsf_id": 4, "character": int(label)})
    (tmp_path / "data").mkdir()
    pd.DataFrame(rows[:4]).to_parquet(tmp_path / "data" / "train-00000-of-00002.parquet")
    pd.DataFrame(rows[4:]).to_parquet(tmp_path / "data" / "train-00001-of-00002.parquet")
    _check_writers(_load(tmp_path))
    found = inspect_source(DataConfig(source="leaf_json", path=str(tmp_path)))
    assert found["notes"]["form"] == "Flower Labs' parquet"
    assert (found["known"], found["differs by"]) == ("814,277 items", "-814,269 items")


def test_femnist_of_tensorflow_federated(tmp_path: Path) -> None:
    for name, part in (("train", slice(None, -1)), ("test", slice(-1, None))):
        with h5py.File(tmp_path / f"fed_emnist_{name}.h5", "w") as file:
            for seed, (writer, count) in enumerate(WRITERS.items()):
                pictures, labels = _pictures(count, seed)
                group = file.create_group(f"examples/{writer}")
                group["pixels"] = (pictures[part] / 255).astype(np.float32)
                group["label"] = labels[part].astype(np.int32)
            file.create_group("examples/f9999_99").update({"pixels": np.empty((0, 28, 28)), "label": np.empty(0)})
    _check_writers(_load(tmp_path))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_shakespeare_of_flower_labs(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_json, "_ROWS", 7)  # read in many parts
    rows = [(user, text[i : i + 80], text[i + 80]) for user, text in TEXTS.items() for i in range(len(text) - 80)]
    frame = pd.DataFrame(rows, columns=["character_id", "x", "y"])
    path = tmp_path / f"shakespeare.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    content = _load(path, "shakespeare")
    assert list(texts_of(content).items()) == list(TEXTS.items())
    assert len(content.features) == sum(map(len, TEXTS.values()))
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "shuffled.csv", index=False)
    with pytest.raises(DataError, match="does not follow the one before: the rows were shuffled"):
        _load(tmp_path / "shuffled.csv", "shakespeare")


def test_shakespeare_of_tensorflow_federated(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "shakespeare_train.h5", "w") as file:
        for user, text in TEXTS.items():
            file[f"examples/{user}/snippets"] = [text[:60].encode(), b"  " + text[60:].strip().encode() + b"\n"]
        file["examples/ALL_WELL_PAGE/snippets"] = [b"Exit."]
    content = _load(tmp_path, "shakespeare")
    assert content.subject_ids == list(TEXTS) and content.notes["users with too short a text"] == 1
    with pytest.raises(DataError, match="windows of a text overlap, and are no single items"):
        _load(tmp_path, "shakespeare", subject="none")


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("a.parquet", "cannot be read as Flower Labs' parquet"),
        ("a.h5", "cannot be read as TensorFlow Federated's HDF5"),
        ("a.csv", "column 'writer_id'"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, file: str, problem: str) -> None:
    (tmp_path / file).write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match=problem):
        _load(tmp_path / file)


def test_an_image_without_a_writer_or_a_label_is_refused(tmp_path: Path) -> None:
    pictures, _ = _pictures(3, 0)
    rows = {"writer_id": ["f", None, "g"], "image": [_png(each) for each in pictures], "character": [1, 2, 3]}
    pd.DataFrame(rows).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="a value in each row of writer_id, image, character"):
        _load(tmp_path / "a.parquet")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for client, labels in {"f": [1, 2], "g": [3, 4, 5, 6]}.items():  # as many in all as pictures
            group = file.create_group(f"examples/{client}")
            group["pixels"], group["label"] = np.asarray(pictures, np.float32) / 255, labels
    with pytest.raises(DataError, match="f: 3 entries in pixels, 2 in label"):
        _load(tmp_path / "a.h5")


def test_files_of_no_form_or_of_several_are_refused(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("x")
    with pytest.raises(DataError, match=r"no \.json file"):
        _load(tmp_path)
    for name in ("a.parquet", "b.csv"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=r"several forms \(Flower Labs' parquet, Flower Labs' CSV\)"):
        _load(tmp_path)


PICTURE = {"image": _png(np.zeros((28, 28), np.uint8)), "writer_id": "f", "character": 1}
BOMB = png_with(30_000, 30_000, body=b"")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"image": _png(np.zeros((8, 8), np.uint8))}, "f: an image has 8 x 8 pixels: expected 28 x 28"),
        ({"image": _png(np.zeros((128, 128), np.uint8))}, "expected 28 x 28"),
        ({"image": BOMB}, "not a readable PNG|expected 28 x 28"),
        *((row, "cannot be read as Flower Labs' parquet") for row in ({"image": "text"}, {"writer_id": [1]})),
    ],
)
def test_cells_that_are_no_pictures_of_writers_are_refused(tmp_path: Path, row: dict[str, Any], problem: str) -> None:
    """An image that would fill the memory among them."""
    pd.DataFrame([PICTURE | row]).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=problem):
        _load(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("dataset", "content"),
    [
        ("femnist", {"examples": [1, 2]}),
        ("femnist", {"examples/u": [1, 2]}),
        ("femnist", {"examples/u/label": 3, "examples/u/pixels": 0}),
        ("shakespeare", {"examples/u/snippets": [1, 2]}),
        ("shakespeare", {"examples/u/snippets": [b"\xff\xfe"]}),
    ],
)
def test_hdf5_of_another_layout_is_refused(tmp_path: Path, dataset: str, content: dict[str, Any]) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, value in content.items():
            file[name] = value
    with pytest.raises(DataError, match="a.h5 cannot be read as TensorFlow Federated's HDF5"):
        _load(tmp_path / "a.h5", dataset)


def test_users_that_leaf_made_up_are_no_people(tmp_path: Path) -> None:
    write_document(tmp_path / "all_data_0.json", leaf_femnist({str(user): 3 for user in range(4)}))
    with pytest.raises(DataError, match="sampling -s iid deals items to users that it makes up"):
        _load(tmp_path)
    items = _load(tmp_path, subject="none")
    assert items.own_subjects and items.items.tolist() == [1] * 12
    with pytest.raises(ConfigError, match="data.subject"):
        load_run({"data": {"source": "leaf_json", "path": "x", "subject": "writer"}})


# --- sizes before reading -----------------------------------------------------------------------------------


def test_sizes_of_a_folder_of_a_zip_and_of_users_in_parts(tmp_path: Path) -> None:
    write_document(tmp_path / "parts/train/a.json", leaf_femnist({"a": 8, "b": 6}))
    write_document(tmp_path / "parts/test/a.json", leaf_femnist({"a": 2}))
    assert leaf_sizes(str(tmp_path / "parts")) == (10, 6)
    write_document(tmp_path / "leaf/all_data/all_data_0.json", leaf_femnist({"a": 30, "b": 40}))
    write_document(tmp_path / "leaf/all_data/all_data_1.json", leaf_femnist({"c": 50, "empty": 0}))
    assert leaf_sizes(str(tmp_path / "leaf")) == (30, 40, 50)
    zipped = {"data/all_data/all_data_0.json": (tmp_path / "leaf/all_data/all_data_0.json").read_bytes()}
    assert leaf_sizes(str(write_zip(tmp_path / "leaf.zip", zipped))) == (30, 40)


def test_what_cannot_be_told_is_not_guessed(tmp_path: Path) -> None:
    assert leaf_sizes(str(tmp_path / "none")) is None
    for text in ('{"user_data": {}, "users": ["a"]}', "no JSON"):
        (tmp_path / "x.json").write_text(text)
        assert leaf_sizes(str(tmp_path / "x.json")) is None


def test_a_forecast_counts_the_data_at_hand(tmp_path: Path) -> None:
    """A few hundred items of one's own were planned as all of FEMNIST."""
    write_document(tmp_path / "all_data/all_data_0.json", leaf_femnist({f"user {number}": 20 for number in range(9)}))
    run = load_run({"data": {"source": "leaf_json", "path": str(tmp_path)}, "partition": {"silos": 2}})
    items = expected_items(run)
    assert (items.subjects, items.train + items.validation + items.test) == (9, 180)
    partition, _ = federation_of(run, str(tmp_path / "results"))
    assert sum(partition.facts["silo_items"]) == 9 * 12  # 16 of 20 are not for the test, 12 of those for training
