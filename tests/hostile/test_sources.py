"""Hostile sources through the job that prepares data: one clear error, and nothing written but in the results."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile.limits import check_message, chunk, png_with, tree
from source_files import etext, leaf_femnist, leaf_shakespeare, nist_files, png, write_zip
from subjectdp.config import data_key, load_run
from subjectdp.data import femnist, leaf_json, shakespeare
from subjectdp.data.prepare import fetch_sources, prepare_dataset
from subjectdp.errors import DataError, SubjectDPError


def prepare(monkeypatch: pytest.MonkeyPatch, folder: Path, dataset: str, source: str, path: str) -> str:
    """Fetches and prepares as the jobs do, in ``folder``; returns the one error's message.

    Fails if there is none, if anything but the results was written, or if the prepared folder looks complete.
    """
    monkeypatch.chdir(folder)
    data = load_run({"data": {"dataset": dataset, "source": source, "path": path}}).data
    before = {name: state for name, state in tree(folder.parent).items() if name != folder.name}
    with pytest.raises(SubjectDPError) as caught:
        fetched = Path("results/data", data_key(data), "source")
        fetch_sources(data, fetched)
        prepare_dataset(data, fetched, Path("results/data", data_key(data), "prepared"))
    after = tree(folder.parent)
    written = {name for name in after if name not in before and not name.startswith(f"{folder.name}/results")}
    assert written == {folder.name}
    assert {name: after[name] for name in before} == before
    assert not list(folder.rglob("meta.json"))
    check_message(str(caught.value))
    return str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("nothing"),
        lambda path: path.symlink_to("..", target_is_directory=True),
    ],
)
def test_what_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "all_data_0.json")
    with pytest.raises(DataError, match="is not a plain file"):
        leaf_json.load("femnist", tmp_path)


# --- LEAF's JSON --------------------------------------------------------------------------------------------

NAMES = {
    "traversal": "../../../tmp/evil",
    "separator": "a/b",
    "backslash": "a\\b",
    "newline": "a\nb",
    "zero": "a\0b",
    "empty": "",
    "blank": "   ",
    "parent": "..",
    "long": "a" * 201,
    "very long": "a" * 1_000_000,
    "turned around": "a\u202eb",
    "invisible": "a\u200bb",
    "half a symbol": "\ud800",
    "escape": "\x1b[2J",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("where", ["user", "play"])
def test_an_odd_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, where: str) -> None:
    text = "Shall I compare thee to a summer's day? Thou art more lovely and more temperate: rough"
    document = leaf_shakespeare({name if where == "user" else "u": text}, play=name if where == "play" else "P")
    (tmp_path / "given").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "given" / "all_data.json").write_text(json.dumps(document))
    message = prepare(monkeypatch, tmp_path / "here", "shakespeare", "leaf_json", "../given/all_data.json")
    assert f"a {where}'s name of 1 to 200 printable characters" in message and "all_data.json" in message


@pytest.mark.parametrize(("one", "other"), [("\u00e9", "e\u0301"), ("\uff46", "f"), ("f ", "f"), ("\u2163", "IV")])
def test_names_that_look_alike_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: str, other: str
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "all_data.json").write_text(json.dumps(leaf_femnist({one: 3, other: 3})))
    message = prepare(monkeypatch, tmp_path / "here", "femnist", "leaf_json", "../all_data.json")
    assert "cannot be told apart" in message


# --- images and the e-text ----------------------------------------------------------------------------------


_ROWS = zlib.compress(bytes(28 * 29))


@pytest.mark.parametrize(
    ("image", "told"),
    [
        (png_with(28, 28, depth=16, body=zlib.compress(bytes(28 * 57))), "of mode I"),
        (png_with(28, 28, body=_ROWS, more=chunk(b"acTL", struct.pack(">2L", 2, 0))), "3 frames"),
        (png_with(28, 28, body=_ROWS, more=chunk(b"acTL", bytes(8))), "Invalid APNG"),
        (png_with(28, 28, body=zlib.compress(bytes(28 * 20))), "truncated|not enough"),
        (png_with(28, 29, body=zlib.compress(bytes(29 * 29))), "28 x 29"),
        (png_with(28, 28, colour=5, body=_ROWS), "not a readable PNG"),
        (png_with(28, 28, body=b"no deflate"), "not a readable PNG"),
    ],
)
def test_an_odd_image_is_refused(image: bytes, told: str) -> None:
    assert femnist.leaf_pixels(png_with(28, 28, body=_ROWS)).shape == (28, 28)
    with pytest.raises(DataError, match=told):
        femnist.leaf_pixels(image, "x.png")


@pytest.mark.parametrize("name", ["by_class/\uff13\uff10/hsf_0/x.png", "by_class/+3/hsf_0/x.png"])
def test_a_class_folder_that_only_looks_like_one_is_refused(tmp_path: Path, name: str) -> None:
    by_class, by_write = nist_files(1, 1)
    write_zip(tmp_path / "by_class.zip", {**by_class, name: png(5)})
    write_zip(tmp_path / "by_write.zip", by_write)
    with pytest.raises(DataError, match="class folder"):
        femnist.load_upstream(tmp_path)


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_symbol_that_may_end_a_line_does_not(tmp_path: Path, separator: str) -> None:
    """Python's splitlines ends lines there, and the rest of the speech would be lost without a word."""
    path = tmp_path / "100.txt"
    path.write_text(etext().replace("glorious summer", f"glorious{separator}summer"), encoding="utf-8")
    with pytest.raises(DataError, match="outside of LEAF's 80"):
        shakespeare.load_upstream(path)


@pytest.mark.parametrize("title", ["A PLAY/OF TESTS", "A PLAY\tOF TESTS", "A " * 150 + "PLAY"])
def test_an_odd_title_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, title: str) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "100.txt").write_text(etext().replace("A PLAY OF TESTS", title))
    message = prepare(monkeypatch, tmp_path / "here", "shakespeare", "upstream", "../given")
    assert "name of 1 to 200 printable characters" in message
