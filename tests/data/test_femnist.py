"""FEMNIST from NIST's archives, against a plain re-implementation of LEAF's steps."""

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from source_files import nist_files, nist_folder, png, write_zip
from subjectdp.data import femnist
from subjectdp.data.content import check_content
from subjectdp.errors import DataError

Item = tuple[int, np.ndarray]


def _oracle(folder: Path, duplicate_bug: bool) -> list[tuple[str, list[Item]]]:
    """LEAF's steps one after another, on sorted listings: (writer, [(label, pixels)])."""
    by_class, by_write = zipfile.ZipFile(folder / "by_class.zip"), zipfile.ZipFile(folder / "by_write.zip")
    classes = [n.split("/") for n in sorted(by_class.namelist())]
    kept = [n for n in classes if len(n) == 4 and len(n[1]) == 2 and "hsf" in n[2] and "mit" not in n[2]]
    label_of = {}
    for name in kept[::-1]:
        label_of[hashlib.md5(by_class.read("/".join(name))).hexdigest()] = _label(int(name[1], 16))
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


def _label(code: int) -> int:
    return "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".index(chr(code))


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


def test_the_duplicate_bug_adds_one_image_for_all_writers_but_the_first(tmp_path: Path) -> None:
    folder = nist_folder(tmp_path, writers=6, images=3)
    assert len(femnist.load_upstream(folder).features) == 18
    assert len(femnist.load_upstream(folder, duplicate_first_image_bug=True).features) == 18 + 5


def test_the_first_listed_class_wins_a_collision(tmp_path: Path) -> None:
    content = png(1)
    write_zip(tmp_path / "by_class.zip", {f"by_class/{c}/hsf_0/i.png": content for c in ("6f", "4f", "30")})
    write_zip(tmp_path / "by_write.zip", {"by_write/hsf_0/f0000_14/d0000_14/i.png": content})
    assert femnist.load_upstream(tmp_path).labels.tolist() == [0]


def test_unpacked_folders_and_a_missing_top_folder_are_read(tmp_path: Path) -> None:
    zipped = nist_folder(tmp_path / "zipped")
    plain = tmp_path / "plain"
    for name in ("by_class", "by_write"):
        zipfile.ZipFile(zipped / f"{name}.zip").extractall(plain)
    a, b = femnist.load_upstream(zipped), femnist.load_upstream(plain)
    assert a.subject_ids == b.subject_ids
    np.testing.assert_array_equal(a.features, b.features)
    np.testing.assert_array_equal(a.labels, b.labels)


def test_counting_without_decoding_gives_the_same_counts(tmp_path: Path) -> None:
    folder = nist_folder(tmp_path)
    full, counted = femnist.load_upstream(folder), femnist.load_upstream(folder, decode=False)
    np.testing.assert_array_equal(full.items, counted.items)
    np.testing.assert_array_equal(full.labels, counted.labels)
    assert counted.features.shape == full.features.shape and not counted.features.any()


def test_labels_are_leafs() -> None:
    codes = [*range(0x30, 0x3A), *range(0x41, 0x5B), *range(0x61, 0x7B)]
    assert [femnist.relabel(f"{code:02x}", "") for code in codes] == list(range(62))
    assert [_label(code) for code in codes] == list(range(62))


@pytest.mark.parametrize("code", ["2f", "3a", "40", "5b", "60", "7b", "zz", "-1", "+3", "\uff13\uff10"])
def test_other_class_folders_are_refused(code: str) -> None:
    with pytest.raises(DataError, match="class folder"):
        femnist.relabel(code, "name")


@pytest.mark.parametrize("mode", ["L", "1", "RGBA", "P"])
def test_other_colour_modes_are_converted(mode: str) -> None:
    assert femnist.leaf_pixels(png(0, mode=mode)).shape == (28, 28)


@pytest.mark.slow
@pytest.mark.parametrize("side", [27, 5000])
def test_odd_sizes_are_refused(side: int) -> None:
    with pytest.raises(DataError, match="expected a square"):
        femnist.leaf_pixels(png(0, side=side, mode="L"))


@pytest.mark.parametrize("raw", [b"", b"<html>", png(0)[:200], png(0)[:-400]])
def test_what_is_no_png_is_refused(raw: bytes) -> None:
    with pytest.raises(DataError, match="not a readable PNG"):
        femnist.leaf_pixels(raw, "bad.png")


def test_an_image_without_class_is_refused(tmp_path: Path) -> None:
    by_class, by_write = nist_files(2, 3)
    write_zip(tmp_path / "by_class.zip", by_class)
    write_zip(tmp_path / "by_write.zip", {**by_write, "by_write/hsf_0/f9999_14/d9999_14/x.png": png(999)})
    with pytest.raises(DataError, match=r"1 of 7 images .*f9999_14"):
        femnist.load_upstream(tmp_path)


@pytest.mark.parametrize("missing", ("by_class", "by_write"))
def test_a_missing_archive_is_named(tmp_path: Path, missing: str) -> None:
    (nist_folder(tmp_path) / f"{missing}.zip").unlink()
    with pytest.raises(DataError, match=f"has no {missing}.zip"):
        femnist.load_upstream(tmp_path)


@pytest.mark.parametrize("name", ("by_class", "by_write"))
def test_an_archive_of_something_else_is_refused(tmp_path: Path, name: str) -> None:
    write_zip(nist_folder(tmp_path) / f"{name}.zip", {"a.png": png(0), "b/c/d/e/f.png": png(1)})
    with pytest.raises(DataError, match="holds no image"):
        femnist.load_upstream(tmp_path)


def test_a_bad_image_is_named(tmp_path: Path) -> None:
    by_class, by_write = nist_files(1, 1)
    write_zip(tmp_path / "by_class.zip", {**by_class, "by_class/30/hsf_0/9.png": b"bad"})
    write_zip(tmp_path / "by_write.zip", {**by_write, "by_write/hsf_0/w/t/9.png": b"bad"})
    with pytest.raises(DataError, match=r"9\.png is not a readable PNG"):
        femnist.load_upstream(tmp_path)
