"""Files are whole or absent, also when writing fails; a disk that cannot be written gives one clear error."""

import errno
import json
import os
import resource
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subjectdp.errors import StorageError
from subjectdp.io import atomic
from subjectdp.io.atomic import SEAL, is_intact, sealed

BIG = np.random.default_rng(0).integers(0, 256, 1 << 20, dtype=np.uint8)


def _write_array(path: Path) -> None:
    with atomic.atomic_open(path) as stream:
        np.save(stream, BIG, allow_pickle=False)


WRITERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "bytes": ("a.bin", lambda path: atomic.write_bytes(path, BIG.tobytes())),
    "text": ("a.txt", lambda path: atomic.write_text(path, "x" * len(BIG))),
    "json": ("a.json", lambda path: atomic.write_json(path, BIG.tolist())),
    "array": ("a.npy", _write_array),
    "parquet": ("a.parquet", lambda path: atomic.write_frame(path, pd.DataFrame({"a": BIG}))),
    "csv": ("a.csv", lambda path: atomic.write_frame(path, pd.DataFrame({"a": BIG}))),
}


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may be larger than 100 kB: what a full disk or a quota does, without a disk of one's own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize(("name", "write"), WRITERS.values(), ids=WRITERS)
def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path, name: str, write: Callable[[Path], None]) -> None:
    (tmp_path / name).write_text("old")
    with pytest.raises((StorageError, OSError)) as failed:
        write(tmp_path / name)
    assert (tmp_path / name).read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    if isinstance(failed.value, StorageError):
        assert str(tmp_path / name) in str(failed.value)


@pytest.mark.parametrize("number", sorted(atomic._CANNOT_WRITE))
def test_the_reason_is_said_in_words(tmp_path: Path, number: int) -> None:
    target = tmp_path / "a.txt"
    wanted = r"a\.txt cannot be written: .*(disk|file system|permission)"
    with pytest.raises(StorageError, match=wanted), atomic.atomic_path(target) as temporary:
        raise OSError(number, os.strerror(number), str(temporary))
    assert list(tmp_path.iterdir()) == []


def test_errors_that_are_not_about_the_target_keep_their_type(tmp_path: Path) -> None:
    for error in (
        FileNotFoundError(errno.ENOENT, "no such file", "input"),
        PermissionError(errno.EACCES, "denied", "/elsewhere/input"),
        OSError("of an input"),
        KeyError("x"),
    ):
        with pytest.raises(type(error)) as raised, atomic.atomic_path(tmp_path / "a"):
            raise error
        assert not isinstance(raised.value, StorageError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(StorageError, match="no permission"):
        atomic.write_text(tmp_path / "a", "x")


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="File exists|Not a directory"):
        atomic.write_text(tmp_path / "file" / "a", "x")


NUMBERS = st.floats() | st.integers() | st.booleans() | st.none()
CONTENT = st.dictionaries(
    st.text(max_size=3).filter(lambda key: key != SEAL),
    st.recursive(NUMBERS | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=5),
    max_size=4,
)


@given(CONTENT)
def test_a_seal_holds_through_json(content: dict[str, object]) -> None:
    assert is_intact(json.loads(json.dumps(sealed(content), indent=1, sort_keys=True)))


def test_any_other_character_in_a_value_breaks_it() -> None:
    text = json.dumps(sealed({"epsilon": 3.9999, "rounds": [1, 2, 3], "unit": "item"}))
    places = [place for place, character in enumerate(text) if character.isalnum()]
    broken = 0
    for place in places:
        changed = text[:place] + ("7" if text[place] != "7" else "8") + text[place + 1 :]
        try:
            read = json.loads(changed)
        except ValueError:
            continue  # no JSON any more
        assert not is_intact(read), changed
        broken += 1
    assert broken > 60


@pytest.mark.parametrize("content", [{}, {"a": 1}, [], None, "x", {SEAL: None}])
def test_what_was_never_sealed_is_not_intact(content: object) -> None:
    assert not is_intact(content)
