"""Hostile sources: one clear error each."""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile.limits import check_message, chunk, png_with
from source_files import etext, leaf_femnist, leaf_shakespeare, write_document
from subjectdp.data import femnist, leaf_json, shakespeare
from subjectdp.data.content import check_content
from subjectdp.errors import DataError


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
def test_an_odd_name_is_refused(tmp_path: Path, name: str, where: str) -> None:
    text = "Shall I compare thee to a summer's day? Thou art more lovely and more temperate: rough"
    document = leaf_shakespeare({name if where == "user" else "u": text}, play=name if where == "play" else "P")
    path = write_document(tmp_path / "all_data.json", document)
    with pytest.raises(DataError, match=f"all_data.json.* a {where}'s name of 1 to 200 printable char") as caught:
        leaf_json.load("shakespeare", path)
    check_message(str(caught.value))


@pytest.mark.parametrize(("one", "other"), [("\u00e9", "e\u0301"), ("\uff46", "f"), ("f ", "f"), ("\u2163", "IV")])
def test_names_that_look_alike_are_refused(tmp_path: Path, one: str, other: str) -> None:
    path = write_document(tmp_path / "all_data.json", leaf_femnist({one: 3, other: 3}))
    with pytest.raises(DataError, match="cannot be told apart"):
        check_content(leaf_json.load("femnist", path))


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


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_symbol_that_may_end_a_line_does_not(tmp_path: Path, separator: str) -> None:
    """Python's splitlines ends lines there, and the rest of the speech would be lost without a word."""
    path = tmp_path / "100.txt"
    path.write_text(etext().replace("glorious summer", f"glorious{separator}summer"), encoding="utf-8")
    with pytest.raises(DataError, match="outside of LEAF's 80"):
        shakespeare.load_upstream(path)


@pytest.mark.parametrize("title", ["A PLAY/OF TESTS", "A PLAY\tOF TESTS", "A " * 150 + "PLAY"])
def test_an_odd_title_is_refused(tmp_path: Path, title: str) -> None:
    (tmp_path / "100.txt").write_text(etext().replace("A PLAY OF TESTS", title))
    with pytest.raises(DataError, match="name of 1 to 200 printable characters"):
        check_content(shakespeare.load_upstream(tmp_path))
