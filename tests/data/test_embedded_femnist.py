"""The embedded FEMNIST archives, read by a parser of the test's own and by the project's."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import zipfile
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from subjectdp.data import femnist
from subjectdp.data.embedded import generate, handwriting
from subjectdp.data.embedded.glyphs import CLASSES, stroke_fields
from subjectdp.data.embedded.handwriting import draw_writer
from subjectdp.data.embedded.nist_layout import encode_png, writer_name

SUBJECTS, ITEMS, SEED = 16, 60, 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedded") / "source"
    paths = generate("femnist", folder, SUBJECTS, ITEMS, SEED)
    assert paths == [folder / "by_class.zip", folder / "by_write.zip"]
    assert sorted(folder.iterdir()) == sorted(paths), "no temporary file stays"
    return folder


@pytest.fixture(scope="module")
def parsed(folder):
    """(writer, class character, PNG bytes) of each image, by LEAF's rules in the test's own words."""
    classes: dict[str, str] = {}
    with zipfile.ZipFile(folder / "by_class.zip") as archive:
        for name in archive.namelist():
            _, code, *rest = name.split("/")
            if len(code) == 2 and len(rest) == 2 and "hsf" in rest[0] and "mit" not in rest[0]:
                digest = hashlib.md5(archive.read(name)).hexdigest()
                assert digest not in classes, "no two images are the same"
                classes[digest] = bytes.fromhex(code).decode()
    items = []
    with zipfile.ZipFile(folder / "by_write.zip") as archive:
        for name in archive.namelist():
            if name.endswith("/"):
                continue
            _, part, writer, field, image = name.split("/")
            assert part.startswith("hsf_") and image.startswith(field) and field[1:] == writer[1:]
            content = archive.read(name)
            character = classes.pop(hashlib.md5(content).hexdigest())
            assert {"d": str.isdigit, "u": str.isupper, "l": str.islower, "c": str.isalpha}[field[0]](character)
            items.append((writer, character, content))
    assert classes == {}, "each image of by_class is in by_write"
    return items


@pytest.mark.slow
def test_counts(parsed):
    per_writer = Counter(writer for writer, _, _ in parsed)
    assert set(per_writer) == {writer_name(k) for k in range(SUBJECTS)}
    assert all(0.7 * ITEMS - 1 <= n <= 1.3 * ITEMS + 1 for n in per_writer.values())
    assert len(set(per_writer.values())) > SUBJECTS / 2
    assert abs(np.mean(list(per_writer.values())) - ITEMS) < 0.12 * ITEMS
    assert {character for _, character, _ in parsed} == set(CLASSES)


def test_half_of_the_items_are_digits(parsed):
    counts = Counter(character for _, character, _ in parsed)
    digits = sum(counts[c] for c in "0123456789") / len(parsed)
    assert 0.44 < digits < 0.56
    assert counts["e"] > counts["q"]


def test_layout_has_what_the_rules_drop(folder):
    with zipfile.ZipFile(folder / "by_class.zip") as archive:
        names = archive.namelist()
        assert archive.testzip() is None
        assert {entry.date_time for entry in archive.infolist()} == {(1995, 1, 1, 0, 0, 0)}
        assert archive.read("by_class/41/train_41.mit").decode().splitlines()[1].endswith(" 41")
    assert sum("/train_" in name and name.endswith(".png") for name in names) >= 62
    assert sum("/hsf_" in name and name.endswith(".mit") for name in names) > 62
    assert sum(name.endswith("/") for name in names) == 63
    assert len(set(names)) == len(names)


def test_images_are_dark_ink_on_white_paper(parsed):
    pixels = [np.asarray(Image.open(io.BytesIO(png)).convert("L")) for _, _, png in parsed[::7]]
    assert {image.shape for image in pixels} == {(128, 128)}
    assert np.unique(pixels).tolist() == [0, 255]
    ink = np.mean(np.stack(pixels) == 0, axis=(1, 2))
    assert ink.min() > 0.005 and ink.max() < 0.2
    assert 0.03 < ink.mean() < 0.07, "real images: 0.043"
    assert (np.stack(pixels)[:, :12] == 255).all(), "no ink at the edge of the paper"


def test_a_writer_is_the_same_whoever_else_takes_part(folder, tmp_path, parsed):
    generate("femnist", tmp_path, 2, ITEMS, SEED)
    with zipfile.ZipFile(tmp_path / "by_write.zip") as archive:
        alone = {archive.read(name) for name in archive.namelist() if writer_name(1) in name}
    assert alone == {png for writer, _, png in parsed if writer == writer_name(1)}


@pytest.mark.slow
def test_items_are_recognisable_and_writers_differ():
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


def test_a_writer_bends_each_character_in_one_way():
    style = handwriting._draw_style(np.random.default_rng(0), stroke_fields())
    steady = dataclasses.replace(style, unsteadiness=0.0)
    x, y, scale = handwriting._source_coordinates(np.random.default_rng(1), steady, np.array([4, 4, 7]))
    assert (x[0] == x[1]).all() and (y[0] == y[1]).all() and len(set(scale.ravel())) == 1
    assert np.abs(x[0] - x[2]).max() > 1 and np.abs(y[0] - y[2]).max() > 1
    x, y, _ = handwriting._source_coordinates(np.random.default_rng(1), style, np.array([4, 4]))
    assert np.abs(x[0] - x[1]).max() > 1, "items of one writer vary"


def test_png_round_trip():
    image = np.random.default_rng(3).random((128, 128)) < 0.5
    decoded = Image.open(io.BytesIO(encode_png(image)))
    assert decoded.format == "PNG" and decoded.mode == "1"
    assert (np.asarray(decoded) == ~image).all()


def test_the_projects_own_preparation_agrees(folder, parsed):
    content = femnist.load_upstream(folder)
    labels = np.array([CLASSES.index(character) for _, character, _ in parsed])
    assert content.subject_ids == list(dict.fromkeys(writer for writer, _, _ in parsed))
    assert content.items.tolist() == list(Counter(writer for writer, _, _ in parsed).values())
    assert content.labels.tolist() == labels.tolist()
    for index in (0, len(parsed) // 2, len(parsed) - 1):
        image = Image.open(io.BytesIO(parsed[index][2])).convert("L")
        expected = np.asarray(image.resize((28, 28), Image.Resampling.LANCZOS))
        found = np.asarray(content.features[index]).astype(int)
        assert np.abs(found - expected).mean() < 3, "the same picture, whatever the resizing's reducing gap"
