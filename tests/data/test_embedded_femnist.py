"""The embedded FEMNIST archives, read by a parser of the test's own and by the project's."""

import dataclasses
import io
import zipfile

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
def content(folder):
    return femnist.load_upstream(folder)


def images_of(folder, writer=""):
    with zipfile.ZipFile(folder / "by_write.zip") as archive:
        return [archive.read(name) for name in archive.namelist() if name.endswith(".png") and writer in name]


def test_counts(content):
    assert set(content.subject_ids) == {writer_name(k) for k in range(SUBJECTS)}
    assert content.items.min() >= 0.7 * ITEMS - 1 and content.items.max() <= 1.3 * ITEMS + 1
    assert len(set(content.items.tolist())) > SUBJECTS / 2
    assert abs(content.items.mean() - ITEMS) < 0.12 * ITEMS
    counts = np.bincount(content.labels, minlength=62)
    assert counts.min() > 0 and 0.44 < counts[:10].sum() / counts.sum() < 0.56, "half of the items are digits"
    assert counts[CLASSES.index("e")] > counts[CLASSES.index("q")]


def test_no_two_images_are_the_same_and_a_field_says_what_is_in_it(folder, content):
    images = images_of(folder)
    assert len(set(images)) == len(images) == len(content.labels)
    with zipfile.ZipFile(folder / "by_write.zip") as archive:
        names = [name.split("/") for name in sorted(archive.namelist()) if name.endswith(".png")]
    for (_, part, writer, field, image), label in zip(names, content.labels.tolist(), strict=True):
        assert part.startswith("hsf_") and image.startswith(field) and field[1:] == writer[1:]
        assert {"d": str.isdigit, "u": str.isupper, "l": str.islower, "c": str.isalpha}[field[0]](CLASSES[label])


def test_images_are_dark_ink_on_white_paper(folder):
    pixels = [np.asarray(Image.open(io.BytesIO(png)).convert("L")) for png in images_of(folder)[::7]]
    assert {image.shape for image in pixels} == {(128, 128)}
    assert np.unique(pixels).tolist() == [0, 255]
    ink = np.mean(np.stack(pixels) == 0, axis=(1, 2))
    assert ink.min() > 0.005 and ink.max() < 0.2
    assert 0.03 < ink.mean() < 0.07, "real images: 0.043"
    assert (np.stack(pixels)[:, :12] == 255).all(), "no ink at the edge of the paper"


def test_a_writer_is_the_same_whoever_else_takes_part(folder, tmp_path):
    generate("femnist", tmp_path, 2, ITEMS, SEED)
    assert set(images_of(tmp_path, writer_name(1))) == set(images_of(folder, writer_name(1)))


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
