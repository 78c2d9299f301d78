"""FEMNIST from NIST's archives, against a plain re-implementation of LEAF's steps; and the generated archives."""

import hashlib
import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from scipy.ndimage import label

from hostile.limits import chunk, png_with
from source_files import nist_files, nist_folder, png, write_zip
from subjectdp.data import femnist
from subjectdp.data.content import Content, check_content
from subjectdp.data.embedded_writers import (
    CLASSES,
    DISTANCE_UNIT,
    FACES,
    GRID,
    draw_writer,
    stroke_fields,
    thin,
    writer_name,
)
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


SUBJECTS, ITEMS, SEED = 16, 60, 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embedded")
    paths = generate("femnist", folder, SUBJECTS, ITEMS, SEED)
    assert sorted(folder.iterdir()) == paths, "no temporary file stays"
    return folder


@pytest.fixture(scope="module")
def content(folder: Path) -> Content:
    return femnist.load_upstream(folder)


def images_of(folder: Path, writer: str = "") -> list[bytes]:
    with zipfile.ZipFile(folder / "by_write.zip") as archive:
        return [archive.read(name) for name in archive.namelist() if name.endswith(".png") and writer in name]


def test_counts(content: Content) -> None:
    assert set(content.subject_ids) == {writer_name(k) for k in range(SUBJECTS)}
    assert content.items.min() >= 0.7 * ITEMS - 1 and content.items.max() <= 1.3 * ITEMS + 1
    assert len(set(content.items.tolist())) > SUBJECTS / 2
    assert abs(content.items.mean() - ITEMS) < 0.12 * ITEMS
    counts = np.bincount(content.labels, minlength=62)
    assert counts.min() > 0 and 0.44 < counts[:10].sum() / counts.sum() < 0.56, "half of the items are digits"
    assert counts[CLASSES.index("e")] > counts[CLASSES.index("q")]


def test_no_two_images_are_the_same_and_a_field_says_what_is_in_it(folder: Path, content: Content) -> None:
    images = images_of(folder)
    assert len(set(images)) == len(images) == len(content.labels)
    with zipfile.ZipFile(folder / "by_write.zip") as archive:
        names = [name.split("/") for name in sorted(archive.namelist()) if name.endswith(".png")]
    for (_, part, writer, field, image), number in zip(names, content.labels.tolist(), strict=True):
        assert part.startswith("hsf_") and image.startswith(field) and field[1:] == writer[1:]
        assert {"d": str.isdigit, "u": str.isupper, "l": str.islower, "c": str.isalpha}[field[0]](CLASSES[number])


def test_images_are_dark_ink_on_white_paper(folder: Path) -> None:
    pixels = [np.asarray(Image.open(io.BytesIO(png)).convert("L")) for png in images_of(folder)[::7]]
    assert {image.shape for image in pixels} == {(128, 128)}
    assert np.unique(pixels).tolist() == [0, 255]
    ink = np.mean(np.stack(pixels) == 0, axis=(1, 2))
    assert ink.min() > 0.005 and ink.max() < 0.2
    assert 0.03 < ink.mean() < 0.07, "real images: 0.043"
    assert (np.stack(pixels)[:, :12] == 255).all(), "no ink at the edge of the paper"


def test_a_writer_is_the_same_whoever_else_takes_part(folder: Path, tmp_path: Path) -> None:
    generate("femnist", tmp_path, 2, ITEMS, SEED)
    assert set(images_of(tmp_path, writer_name(1))) == set(images_of(folder, writer_name(1)))


def test_items_are_recognisable_and_writers_differ() -> None:
    """One nearest neighbour on downsized pixels: classes are far above chance, and one's own hand helps."""
    drawn = [draw_writer(1, writer, 120) for writer in range(14)]
    labels = np.concatenate([items.labels for items in drawn])
    writers = np.repeat(np.arange(14), [len(items.labels) for items in drawn])
    images = np.concatenate([items.images for items in drawn])
    small = images.reshape(-1, 16, 8, 16, 8).mean(axis=(2, 4)).reshape(len(images), -1)
    distance = (small**2).sum(1)[:, None] + (small**2).sum(1)[None, :] - 2 * small @ small.T
    np.fill_diagonal(distance, np.inf)
    nearest = distance.argmin(axis=1)
    among_class = np.where(labels[:, None] == labels[None, :], distance, np.inf)
    own_hand = writers[among_class.argmin(axis=1)] == writers
    digits = labels < 10
    assert (labels[nearest] == labels)[digits].mean() > 0.6, "chance: 0.1"
    assert (labels[nearest] == labels)[~digits].mean() > 0.25, "chance: 0.03"
    assert own_hand[np.isfinite(among_class.min(axis=1))].mean() > 0.4, "chance: 1/14"


EIGHT = np.ones((3, 3), dtype=bool)


@settings(max_examples=60, deadline=None)
@given(arrays(bool, (3, 14, 17), elements=st.booleans()))
def test_thinning_keeps_pieces(bitmaps: np.ndarray) -> None:
    for bitmap, skeleton in zip(bitmaps, thin(bitmaps), strict=True):
        assert not (skeleton & ~bitmap).any()
        pieces, count = label(bitmap, structure=EIGHT)
        assert set(np.unique(pieces[skeleton])) - {0} == set(range(1, count + 1))
        assert label(skeleton, structure=EIGHT)[1] == count


def test_thinning_of_a_bar_and_a_dot() -> None:
    bitmap = np.zeros((1, 20, 20), dtype=bool)
    bitmap[0, 4:9, 2:18] = True  # a bar 5 high
    bitmap[0, 14:16, 10:12] = True  # a dot 2 x 2, which plain Zhang-Suen erases
    skeleton = thin(bitmap)[0]
    assert skeleton[:12].sum(axis=0).max() == 1
    assert set(np.flatnonzero(skeleton[:12].any(axis=1))) <= {5, 6, 7}
    assert skeleton[14:16, 10:12].sum() == 1
    assert bitmap[0, 4:9, 2:18].all(), "the input stays as it was"


def test_fields_hold_exact_distances_to_a_thin_line() -> None:
    fields = stroke_fields()
    assert fields.distance.shape == (len(FACES), 62, GRID, GRID)
    for face, character in ((0, "8"), (3, "g"), (4, "W")):
        field = fields.distance[face, CLASSES.index(character)]
        line = np.argwhere(field == 0)
        assert 60 < len(line) < 500
        for row, column in ((0, 0), (50, 61), (111, 40), (70, 20)):
            nearest = np.sqrt(((line - (row, column)) ** 2).sum(axis=1)).min()
            assert abs(int(field[row, column]) / DISTANCE_UNIT - nearest) <= 0.5 / DISTANCE_UNIT + 1e-9


def test_each_class_has_a_shape_of_its_own() -> None:
    fields = stroke_fields()
    for field, lends in zip(fields.distance, fields.lends, strict=True):
        assert len({line.tobytes() for line in field == 0}) == 62
        assert min(field[:, [0, -1]].min(), field[:, :, [0, -1]].min()) >= 4 * DISTANCE_UNIT, "none is cut off"
        assert (field[~lends] == fields.distance[0][~lends]).all(), "borrowed from the first face"
    first = zip(CLASSES, fields.distance[0], strict=True)
    pieces = {character: label(field == 0, EIGHT)[1] for character, field in first}
    assert fields.lends[0].all() and {character for character, count in pieces.items() if count != 1} == {"i", "j"}
