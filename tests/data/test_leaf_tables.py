"""FEMNIST and Shakespeare in the forms of Flower Labs and TensorFlow Federated, written as their tools write them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from subjectdp.config.run import load_run
from subjectdp.config.sections import DataConfig
from subjectdp.data import leaf_tables
from subjectdp.data.content import Content, check_content
from subjectdp.data.prepare import inspect_source, read_source
from subjectdp.data.shakespeare import VOCABULARY
from subjectdp.errors import ConfigError, DataError

WRITERS = {"f0000_14": 5, "f1501_00": 3}
TEXTS = {
    "HAMLET_HAMLET": "To be, or not to be: that is the question: " * 3,
    "MACBETH_WITCH": "When shall we three meet again? " * 4,
}


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
    monkeypatch.setattr(leaf_tables, "_ROWS", 7)  # read in many parts
    rows = [(user, text[i : i + 80], text[i + 80]) for user, text in TEXTS.items() for i in range(len(text) - 80)]
    frame = pd.DataFrame(rows, columns=["character_id", "x", "y"])
    path = tmp_path / f"shakespeare.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    content = _load(path, "shakespeare")
    assert content.subject_ids == list(TEXTS) and content.items.tolist() == [len(text) - 80 for text in TEXTS.values()]
    assert "".join(VOCABULARY[code] for code in content.features) == "".join(TEXTS.values())
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


@pytest.mark.parametrize(
    ("file", "problem"),
    [("a.parquet", "cannot be read"), ("a.h5", "not a file of TensorFlow Federated"), ("a.csv", "column 'writer_id'")],
)
def test_damaged_files_are_named(tmp_path: Path, file: str, problem: str) -> None:
    (tmp_path / file).write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match=problem):
        _load(tmp_path / file)


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    row = {"image": _png(np.zeros((8, 8), np.uint8)), "writer_id": "f", "character": 1}
    pd.DataFrame([row]).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="f: an image to be 28 x 28"):
        _load(tmp_path / "a.parquet")


def test_users_that_leaf_made_up_are_no_people(tmp_path: Path) -> None:
    data = {str(user): {"x": [[0.0] * 784] * 3, "y": [1, 2, 3]} for user in range(4)}
    content = {"users": list(data), "num_samples": [3] * 4, "user_data": data}
    (tmp_path / "all_data_0.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="sampling -s iid deals items to users that it makes up"):
        _load(tmp_path)
    items = _load(tmp_path, subject="none")
    assert items.own_subjects and items.items.tolist() == [1] * 12
    with pytest.raises(ConfigError, match="data.subject"):
        load_run({"data": {"source": "leaf_json", "path": "x", "subject": "writer"}})
