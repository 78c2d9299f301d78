"""FEMNIST from NIST's archives, against a plain re-implementation of LEAF's steps; and the generated archives."""

import hashlib
import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hostile.limits import chunk, png_with
from source_files import nist_files, nist_folder, png, write_zip
from subjectdp.data import femnist
from subjectdp.data.content import check_content
from subjectdp.data.embedded_writers import CLASSES
from subjectdp.data.prepare import generate
from subjectdp.errors import DataError

pytestmark = pytest.mark.slow

Item = tuple[int, np.ndarray]


def _oracle(folder: Path, duplicate_bug: bool) -> list[tuple[str, list[Item]]]:
    """LEAF's steps one after another, on sorted listings: (writer, [(label, pixels)])."""
    by_class, by_write = zipfile.ZipFile(folder / "by_class.zip"), zipfile.ZipFile(folder / "by_write.zip")
    classes = [n.split("/") for n in sorted(by_class.namelist())]
    kept = [n for n in classes if len(n) == 4 and len(n[1]) == 2 and "hsf" in n[2] and "mit" not in n[2]]
    label_of = {}
    for name in kept[::-1]:
        label_of[hashlib.md5(by_class.read("/".join(name))).hexdigest()] = CLASSES.index(chr(int(name[1], 16)))
    groups: list[tuple[str, list[Item]]] = []
    for name in sorted(by_write.namelist()):
        raw = by_write.read(name)
        image = Image.open(io.BytesIO(raw)).convert("L")
        image.thumbnail((28, 28), Image.Resampling.LANCZOS, reducing_gap=None)
        item = (label_of[hashlib.md5(raw).hexdigest()], np.asarray(image))
        writer = name.split("/")[2]
        if not groups or groups[-1][0] != writer:
            groups.append((writer, [item] if duplicate_bug and groups else []))
        groups[-1][1].append(item)
    return groups


@pytest.mark.parametrize("duplicate_bug", [False, True])
def test_it_is_leaf_to_the_pixel(tmp_path: Path, duplicate_bug: bool) -> None:
    folder = nist_folder(tmp_path, writers=5, images=14)
    content = femnist.load_upstream(folder, duplicate_bug)
    check_content(content)
    wanted = _oracle(folder, duplicate_bug)
    assert content.subject_ids == [writer for writer, _ in wanted]
    for (_, items), first, count in zip(wanted, content.first_items, content.items, strict=True):
        assert count == len(items) == 14 + (duplicate_bug and first > 0)
        span = slice(first, first + count)
        np.testing.assert_array_equal(content.labels[span], [label for label, _ in items])
        np.testing.assert_array_equal(content.features[span], np.stack([pixels for _, pixels in items]))
    counted = femnist.load_upstream(folder, duplicate_bug, decode=False)
    np.testing.assert_array_equal(counted.labels, content.labels)
    assert counted.features.shape == content.features.shape and not counted.features.any()


def test_the_first_listed_class_wins_a_collision(tmp_path: Path) -> None:
    content = png(1)
    write_zip(tmp_path / "by_class.zip", {f"by_class/{c}/hsf_0/i.png": content for c in ("6f", "4f", "30")})
    write_zip(tmp_path / "by_write.zip", {"by_write/hsf_0/f0000_14/d0000_14/i.png": content})
    assert femnist.load_upstream(tmp_path).labels.tolist() == [0]


def test_labels_are_leafs() -> None:
    codes = [*range(0x30, 0x3A), *range(0x41, 0x5B), *range(0x61, 0x7B)]
    assert CLASSES == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert [femnist.relabel(f"{code:02x}", "") for code in codes] == list(range(62))


@pytest.mark.parametrize("code", ["2f", "3a", "40", "5b", "60", "7b", "zz", "-1", "+3", "\uff13\uff10"])
def test_other_class_folders_are_refused(code: str) -> None:
    with pytest.raises(DataError, match="class folder"):
        femnist.relabel(code, "name")


@pytest.mark.parametrize("mode", ["L", "1", "RGBA", "P"])
def test_other_colour_modes_are_converted(mode: str) -> None:
    assert femnist.leaf_pixels(png(0, mode=mode)).shape == (28, 28)


_ROWS = zlib.compress(bytes(28 * 29))


@pytest.mark.parametrize(
    ("image", "told"),
    [
        (png_with(28, 28, depth=16, body=zlib.compress(bytes(28 * 57))), "of mode I"),
        (png_with(28, 28, body=_ROWS, more=chunk(b"acTL", struct.pack(">2L", 2, 0))), "3 frames"),
        (png_with(28, 28, body=_ROWS, more=chunk(b"acTL", bytes(8))), "Invalid APNG"),
        (png_with(28, 28, body=zlib.compress(bytes(28 * 20))), "truncated|not enough"),
        (png_with(28, 29, body=zlib.compress(bytes(29 * 29))), "28 x 29 pixels: expected a square"),
        *((png_with(side, side, body=_ROWS), f"{side} x {side} pixels: expected a square") for side in (27, 5000)),
        (png_with(28, 28, colour=5, body=_ROWS), "not a readable PNG"),
        (png_with(28, 28, body=b"no deflate"), "not a readable PNG"),
        *((raw, "not a readable PNG") for raw in (b"", b"<html>", png(0)[:200], png(0)[:-400])),
    ],
)
def test_an_odd_image_is_refused(image: bytes, told: str) -> None:
    assert femnist.leaf_pixels(png_with(28, 28, body=_ROWS)).shape == (28, 28)
    with pytest.raises(DataError, match=told):
        femnist.leaf_pixels(image, "x.png")


def test_an_image_without_class_is_refused(tmp_path: Path) -> None:
    by_class, by_write = nist_files(2, 3)
    write_zip(tmp_path / "by_class.zip", by_class)
    write_zip(tmp_path / "by_write.zip", {**by_write, "by_write/hsf_0/f9999_14/d9999_14/x.png": png(999)})
    with pytest.raises(DataError, match=r"1 of 7 images .*f9999_14"):
        femnist.load_upstream(tmp_path)


@pytest.mark.parametrize("name", ("by_class", "by_write"))
def test_missing_archives_and_others_are_refused(tmp_path: Path, name: str) -> None:
    archive = nist_folder(tmp_path) / f"{name}.zip"
    write_zip(archive, {"a.png": png(0), "b/c/d/e/f.png": png(1)})
    with pytest.raises(DataError, match="holds no image"):
        femnist.load_upstream(tmp_path)
    archive.unlink()
    with pytest.raises(DataError, match=f"has no {name}.zip"):
        femnist.load_upstream(tmp_path)


def test_a_bad_image_is_named(tmp_path: Path) -> None:
    by_class, by_write = nist_files(1, 1)
    write_zip(tmp_path / "by_class.zip", {**by_class, "by_class/30/hsf_0/9.png": b"bad"})
    write_zip(tmp_path / "by_write.zip", {**by_write, "by_write/hsf_0/w/t/9.png": b"bad"})
    with pytest.raises(DataError, match=r"9\.png is not a readable PNG"):
        femnist.load_upstream(tmp_path)


# --- generated ----------------------------------------------------------------------------------------------


def test_a_generated_writer_is_the_same_whoever_else_takes_part(tmp_path: Path) -> None:
    several, alone = (
        {i: content.features[first : first + n].tobytes() for i, first, n in zip(*columns, strict=True)}
        for subjects in (3, 2)
        for content in [femnist.load_upstream(generate("femnist", tmp_path / str(subjects), subjects, 30, 0)[0].parent)]
        for columns in [(content.subject_ids, content.first_items, content.items)]
    )
    assert alone == {name: several[name] for name in list(several)[:2]}
