"""Folders of prepared data and of partitions: every damage is refused, whatever the file."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from subjectdp.data.store import checked_file, read_arrays, read_index, write_folder
from subjectdp.errors import DataError
from subjectdp.io.atomic import sealed

ARRAYS = {"small": np.arange(5), "empty": np.zeros(0, np.int16), "large": np.arange(5000, dtype=np.int32)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table = pd.DataFrame({"who": ["a", "b"]})
    facts = write_folder(tmp_path / "index.json", {**ARRAYS, "people": table}, {"format": 1, "cap": 12})
    assert read_index(tmp_path / "index.json", 1) == facts and set(facts["sha256"]) == {*ARRAYS, "people"}
    return tmp_path


def read(folder: Path) -> dict[str, np.ndarray]:
    facts = read_index(folder / "index.json", 1)
    checked_file(folder / "people.parquet", facts)
    return read_arrays(folder, ARRAYS, facts)


def test_arrays_come_back_and_are_read_only(folder: Path) -> None:
    for name, array in read(folder).items():
        assert array.dtype == ARRAYS[name].dtype and array.tolist() == ARRAYS[name].tolist()
        assert not array.flags.writeable


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def reseal(path: Path) -> None:
    path.write_text(json.dumps(sealed({**json.loads(path.read_text()), "format": 99})))


def change(path: Path) -> None:
    path.write_text(re.sub(r'"cap": 12', '"cap": 13', path.read_text()))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (Path.unlink, r"index\.json is missing"),
        (truncate, "cannot be read"),
        (lambda path: path.write_text(""), "cannot be read"),
        (lambda path: path.write_text("[1]"), "checksum mismatch"),
        (lambda path: path.write_text('{"format": 1}'), "checksum mismatch"),
        (change, "checksum mismatch"),
        (reseal, "format to be 1, got 99"),
    ],
)
def test_a_damaged_index_is_refused(folder: Path, spoil: Callable[[Path], object], told: str) -> None:
    spoil(folder / "index.json")
    with pytest.raises(DataError, match=told):
        read(folder)


@pytest.mark.parametrize("name", ["small.npy", "empty.npy", "large.npy", "people.parquet"])
@pytest.mark.parametrize("spoil", [Path.unlink, truncate, flip])
def test_a_damaged_file_is_refused(folder: Path, name: str, spoil: Callable[[Path], object]) -> None:
    spoil(folder / name)
    with pytest.raises(DataError, match=f"{name} is (missing|truncated or was changed)"):
        read(folder)
