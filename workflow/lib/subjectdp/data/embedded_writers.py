"""Synthetic FEMNIST archives in the layout of NIST Special Database 19 (by_class.zip and by_write.zip).

Of the upstream's layout there is what LEAF's rules read::

    by_class/<hex ASCII of the class>/hsf_<part>/hsf_<part>_<number>.png
    by_write/hsf_<part>/f<form>_<nn>/<c|d|l|u><form>_<nn>/<c|d|l|u><form>_<nn>_<number>.png

An image has the very same bytes in both archives: writer and class are matched by md5, as upstream.

A writer keeps the face and the bend of each character, size, aspect, slant and pen; the rest varies from item to item.
Images depend on (seed, writer, items) alone. The strokes are those of typefaces: drawn with a pen of radius r, a glyph
is where the distance to its thinned skeleton is at most r, after any smooth warp. Distances are fixed-point integers:
no pixel flips where a processor rounds otherwise.
"""

from __future__ import annotations

import io
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import distance_transform_edt

from subjectdp.errors import DataError
from subjectdp.io.atomic import atomic_path, sha256_of
from subjectdp.noise.keys import Purpose, numpy_generator

CLASSES = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The characters of the labels 0..61, in LEAF's order."""

GRID = 112  # height and width of a distance field
CAP_HEIGHT = 60  # of a capital H, in grid pixels
DISTANCE_UNIT = 32  # distances are integers in units of 1/32 grid pixel

GLYPHS = Path(__file__).with_name("glyphs.png")
GLYPHS_SHA256 = "54397bce750d8c2e49d8d7165dd67fe5d1634dc208ee8d1b1d89359f8ebe7243"
"""Skeletons of typefaces that matplotlib ships (thinned as by Zhang and Suen, by this module of commit 9a314b60): a row
of tiles for each face, a column for each class, empty where the face has no shape that a hand could have written. The
hash is part of the code, so that the fingerprint of generated data changes with the file."""
_SHARES = (3, 3, 2, 2, 3, 2, 1, 1, 2, 0.5)  # of the writers, for each face

PAPER = 128  # height and width of an image, in pixels: NIST SD19's size
_BOX = 96  # the ink stays within the middle 96 x 96 pixels
_KNOTS = 5  # knots a side of the smooth fields
_CHUNK = 16  # items drawn at a time, so that the arrays stay in the processor's cache
_SUBPIXEL = 32  # fixed-point unit of the source coordinates
_DIGIT_SHARE = 0.5
_PRINTED_LETTER_SHARE = 0.6  # of the letters; the rest is running text
_RUNNING_CAPITAL_SHARE = 0.12
# Letters of English text, per mille: a form's running text is what makes common letters common.
_LETTER_FREQUENCY = (82, 15, 28, 43, 127, 22, 20, 61, 70, 2, 8, 40, 24, 67, 75, 19, 1, 60, 63, 91, 28, 10, 24, 2, 20, 1)
_PARTS = (0, 1, 2, 3, 4, 6, 7)  # SD19 has no hsf_5

_Floats = NDArray[np.float64]


def write_files(folder: Path, subjects: int, items_per_subject: int, seed: int) -> list[Path]:
    """Draws ``subjects`` writers and writes both archives, atomically; returns their paths."""
    by_class: defaultdict[tuple[int, int], list[bytes]] = defaultdict(list)  # of label and part, in writer order
    by_write = folder / "by_write.zip"
    with atomic_path(by_write) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for writer in range(subjects):
            part = _PARTS[writer * len(_PARTS) // subjects]
            items = draw_writer(seed, writer, items_per_subject)
            for name, label, png in _writer_files(writer, items):
                _add(archive, f"by_write/hsf_{part}/{name}", png)
                by_class[label, part].append(png)
    with atomic_path(folder / "by_class.zip") as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for (label, part), images in sorted(by_class.items()):
            for number, png in enumerate(images):
                code = f"{ord(CLASSES[label]):02x}"
                _add(archive, f"by_class/{code}/hsf_{part}/hsf_{part}_{number:05d}.png", png)
    return [folder / "by_class.zip", by_write]


def writer_name(writer: int) -> str:
    """The id of the writer of the given index, in SD19's form: form number and template, f0000_14."""
    return f"f{writer:04d}_{(7 * writer + 14) % 100:02d}"


def _writer_files(writer: int, items: WriterItems) -> Iterator[tuple[str, int, bytes]]:
    """Path below the part, label and PNG bytes of each of a writer's items, field by field as on the form."""
    name = writer_name(writer)
    of_label = np.repeat(["d", "u", "l"], [10, 26, 26])[items.labels]  # digits, upper case, lower case
    fields = np.where(items.printed, of_label, "c")  # running text
    numbers: Counter[str] = Counter()
    for index in np.argsort(fields, kind="stable"):
        stem = f"{fields[index]}{name[1:]}"
        path = f"{name}/{stem}/{stem}_{numbers[stem]:05d}.png"
        numbers[stem] += 1
        png = io.BytesIO()
        Image.fromarray(~items.images[index]).save(png, "PNG")  # 1 bit a pixel, black ink
        yield path, int(items.labels[index]), png.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Adds an entry with a fixed time stamp, so that the archive's bytes are a function of its content."""
    entry = zipfile.ZipInfo(name, date_time=(1995, 1, 1, 0, 0, 0))
    entry.create_system = 3
    entry.external_attr = 0o100644 << 16
    archive.writestr(entry, content)


# --- handwriting ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StrokeFields:
    """Distance fields of some faces: what a pen is drawn through."""

    distance: NDArray[np.uint16]  # (faces, 62, GRID, GRID), in 1/DISTANCE_UNIT grid pixel
    lends: NDArray[np.bool_]  # (faces, 62) whether the face has a shape of its own for the class, else face 0's
    shares: NDArray[np.float64]  # (faces,) of the writers, sum 1


@dataclass(frozen=True)
class WriterStyle:
    """What one writer's items share. Lengths in paper pixels, angles as tangents."""

    faces: NDArray[np.int64]  # (62,) face of each class
    bends: _Floats  # (62, 2, KNOTS, KNOTS) the writer's own bend of each class
    cap_height: float
    aspect: float
    slant: float
    tilt: float
    pen: float  # radius
    raggedness: float
    unsteadiness: float  # scales everything that varies from item to item


@dataclass(frozen=True)
class WriterItems:
    """One writer's items; ``printed``: asked for character by character on the form, else part of the running text."""

    labels: NDArray[np.uint8]  # (n,)
    images: NDArray[np.bool_]  # (n, 128, 128), True = ink
    printed: NDArray[np.bool_]  # (n,)


def draw_writer(seed: int, writer: int, items_per_subject: int) -> WriterItems:
    """Draws the writer of that index: about ``items_per_subject`` items (70 to 130 %), at least two."""
    generator = numpy_generator(seed, Purpose.EMBEDDED_DATA, "femnist", writer)
    style = _draw_style(generator)
    items = max(2, round(items_per_subject * generator.uniform(0.7, 1.3)))
    labels, printed = _draw_labels(generator, items)
    images = np.zeros((items, PAPER, PAPER), dtype=bool)
    for start in range(0, items, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        images[chunk] = _draw_images(generator, style, labels[chunk])
    return WriterItems(labels=labels.astype(np.uint8), images=images, printed=printed)


def _draw_labels(generator: np.random.Generator, items: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Labels as on NIST's forms: half digits, printed alphabets, and letters of a running text."""
    frequency = np.array(_LETTER_FREQUENCY, dtype=np.float64)
    running = np.concatenate([frequency * _RUNNING_CAPITAL_SHARE, frequency * (1 - _RUNNING_CAPITAL_SHARE)])
    letters = 1 - _DIGIT_SHARE
    shares = [np.full(10, _DIGIT_SHARE / 10), np.full(52, letters * _PRINTED_LETTER_SHARE / 52)]
    parts = np.concatenate([*shares, running / running.sum() * letters * (1 - _PRINTED_LETTER_SHARE)])
    drawn = generator.choice(len(parts), size=items, p=parts / parts.sum())
    printed = drawn < len(CLASSES)
    return np.where(printed, drawn, drawn - len(CLASSES) + 10), printed


def _draw_style(generator: np.random.Generator) -> WriterStyle:
    fields = stroke_fields()
    faces_there = len(fields.shares)
    favourite, second = generator.choice(faces_there, size=2, replace=False, p=fields.shares)
    other = generator.choice(faces_there, size=len(CLASSES), p=fields.shares)
    fate = generator.random(len(CLASSES))
    faces = np.where(fate < 0.6, favourite, np.where(fate < 0.85, second, other))
    faces = np.where(fields.lends[faces, np.arange(len(CLASSES))], faces, 0)
    return WriterStyle(
        faces=faces,
        bends=generator.normal(0.0, 3.0, size=(len(CLASSES), 2, _KNOTS, _KNOTS)),
        cap_height=float(np.clip(generator.normal(56.0, 7.0), 40.0, 72.0)),
        aspect=float(np.exp(generator.normal(0.0, 0.13))),
        slant=float(generator.normal(0.10, 0.17)),
        tilt=float(generator.normal(0.0, 0.06)),
        pen=float(np.clip(generator.normal(2.9, 0.7), 1.7, 5.0)),
        raggedness=float(generator.uniform(0.1, 0.5)),
        unsteadiness=float(np.exp(generator.normal(0.0, 0.25))),
    )


def _draw_images(generator: np.random.Generator, style: WriterStyle, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Draws items of one writer: (n, PAPER, PAPER), True where there is ink."""
    count = len(labels)
    source_x, source_y, scale = _source_coordinates(generator, style, labels)
    distance = _distance_at(style, labels, source_x, source_y)
    knots = 9
    pressure = _smooth(generator.normal(0.0, 0.16, size=(count, knots, knots)))
    radius = style.pen * (1.0 + pressure) * np.exp(generator.normal(0.0, 0.08, size=(count, 1, 1)))
    edge = generator.integers(-128, 128, size=distance.shape, dtype=np.int16) * (style.raggedness / 128)
    threshold = np.rint((radius + edge) * DISTANCE_UNIT / scale).astype(np.int32)
    images = np.zeros((count, PAPER, PAPER), dtype=bool)
    margin = (PAPER - _BOX) // 2
    images[:, margin : margin + _BOX, margin : margin + _BOX] = distance <= threshold
    for dirty in np.flatnonzero(generator.random(count) < 0.04):  # a speck of two to four pixels
        row, column = generator.integers(20, PAPER - 24), generator.integers(20, PAPER - 24)
        images[dirty, row : row + 2 + generator.integers(0, 3), column : column + 2] = True
    return images


def _source_coordinates(
    generator: np.random.Generator, style: WriterStyle, labels: NDArray[np.int64]
) -> tuple[_Floats, _Floats, _Floats]:
    """Where on the glyph's grid each paper pixel looks: x and y (n, BOX, BOX); paper pixels per grid pixel."""
    count = len(labels)
    unsteady = style.unsteadiness

    def vary(spread: float) -> _Floats:
        return generator.normal(0.0, spread * unsteady, size=(count, 1, 1))

    scale = style.cap_height / CAP_HEIGHT * np.exp(vary(0.07))
    stretch = np.sqrt(style.aspect * np.exp(vary(0.08)))
    slant, tilt = style.slant + vary(0.06), style.tilt + vary(0.05)
    bend = style.bends[labels] + generator.normal(0.0, 2.3 * unsteady, size=(count, 2, _KNOTS, _KNOTS))
    across = np.arange(_BOX) - (_BOX - 1) / 2
    x = across[None, None, :] - vary(1.5)
    y = across[None, :, None] - vary(1.5)
    # Inverse of the pen's map: undo tilt, then slant (paper's y points down), then size.
    level_x, level_y = x + tilt * y, y - tilt * x
    centre = (GRID - 1) / 2
    source_x = (level_x + slant * level_y) / (scale * stretch) + _smooth(bend[:, 0]) + centre
    source_y = level_y * stretch / scale + _smooth(bend[:, 1]) + centre
    return source_x, source_y, scale


def _distance_at(style: WriterStyle, labels: NDArray[np.int64], x: _Floats, y: _Floats) -> NDArray[np.int32]:
    """Bilinear distance to the stroke in 1/DISTANCE_UNIT grid pixel, in integers after one rounding."""
    field = stroke_fields().distance.reshape(-1)
    highest = (GRID - 1) * _SUBPIXEL - 1
    fixed_x = np.clip(np.rint(x * _SUBPIXEL).astype(np.int32), 0, highest)
    fixed_y = np.clip(np.rint(y * _SUBPIXEL).astype(np.int32), 0, highest)
    part_x, part_y = fixed_x % _SUBPIXEL, fixed_y % _SUBPIXEL
    base = ((style.faces[labels] * len(CLASSES) + labels) * GRID * GRID).astype(np.int32)[:, None, None]
    corner = base + (fixed_y // _SUBPIXEL) * GRID + fixed_x // _SUBPIXEL

    def row(offset: int) -> Any:
        left = field.take(corner + offset).astype(np.int32)
        right = field.take(corner + offset + 1).astype(np.int32)
        return left * (_SUBPIXEL - part_x) + right * part_x

    return np.asarray((row(0) * (_SUBPIXEL - part_y) + row(GRID) * part_y) // (_SUBPIXEL * _SUBPIXEL), dtype=np.int32)


def _smooth(knots: _Floats) -> _Floats:
    """Smooth fields (n, BOX, BOX) through random knots (n, k, k): cubic B-splines over the box."""
    count = knots.shape[-1]  # of a side; the inner ones span the box
    away = np.abs(np.linspace(1.0, count - 2.0, _BOX)[:, None] - np.arange(count))
    near = 2.0 / 3.0 - away**2 + away**3 / 2.0
    far = np.clip(2.0 - away, 0.0, None) ** 3 / 6.0
    basis = np.where(away < 1.0, near, far)  # (BOX, k) weights
    fields: _Floats = np.matmul(np.matmul(basis, knots), basis.T)
    return fields


# --- strokes --------------------------------------------------------------------------------------------


@cache
def stroke_fields() -> StrokeFields:
    """The distance fields of every face and class; computed once a process."""
    if sha256_of(GLYPHS) != GLYPHS_SHA256:
        raise DataError(f"{GLYPHS} is not the file that comes with the package: install it again.")
    tiles = ~np.asarray(Image.open(GLYPHS)).reshape(len(_SHARES), GRID, len(CLASSES), GRID).swapaxes(1, 2)
    lends = np.asarray(tiles.any(axis=(2, 3)))
    distance = np.zeros(tiles.shape, dtype=np.uint16)
    for face, character in np.argwhere(lends):
        field = distance_transform_edt(~tiles[face, character])
        distance[face, character] = np.rint(field * DISTANCE_UNIT).astype(np.uint16)
    distance = np.where(lends[:, :, None, None], distance, distance[:1])
    return StrokeFields(distance=distance, lends=lends, shares=np.array(_SHARES) / sum(_SHARES))
