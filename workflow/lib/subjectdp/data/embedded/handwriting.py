"""Writers and their handwriting, on NIST's 128 x 128 paper.

A writer keeps the face of each character, size, aspect, slant, pen width and a smooth bend of each character. From item
to item change another bend, size, slant, rotation, place, the pen's pressure, ragged edges and a rare speck of dirt. A
writer's images depend on (seed, writer, items) alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subjectdp.data.embedded.glyphs import CAP_HEIGHT, CLASSES, DISTANCE_UNIT, GRID, StrokeFields, stroke_fields
from subjectdp.noise.keys import Purpose, numpy_generator

PAPER = 128
"""Height and width of an image, in pixels: NIST SD19's size."""

_BOX = 96  # the ink stays within the middle 96 x 96 pixels
_KNOTS = 5  # knots a side of the smooth fields
_CHUNK = 16  # items drawn at a time, so that the arrays stay in the processor's cache
_SUBPIXEL = 32  # fixed-point unit of the source coordinates

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class WriterStyle:
    """What one writer's items share. Lengths in paper pixels, angles as tangents."""

    fields: StrokeFields
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


# Letters of English text, per mille: a form's running text is what makes common letters common.
# fmt: off
_LETTER_FREQUENCY = (
    82, 15, 28, 43, 127, 22, 20, 61, 70, 2, 8, 40, 24,
    67, 75, 19, 1, 60, 63, 91, 28, 10, 24, 2, 20, 1,
)
# fmt: on
_DIGIT_SHARE = 0.5
_PRINTED_LETTER_SHARE = 0.6  # of the letters; the rest is running text
_RUNNING_CAPITAL_SHARE = 0.12


def draw_writer(seed: int, writer: int, items_per_subject: int) -> WriterItems:
    """Draws the writer of that index: about ``items_per_subject`` items (70 to 130 %), at least two."""
    generator = numpy_generator(seed, Purpose.EMBEDDED_DATA, "femnist", writer)
    style = _draw_style(generator, stroke_fields())
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


def _draw_style(generator: np.random.Generator, fields: StrokeFields) -> WriterStyle:
    faces_there = len(fields.shares)
    favourite, second = generator.choice(faces_there, size=2, replace=False, p=fields.shares)
    other = generator.choice(faces_there, size=len(CLASSES), p=fields.shares)
    fate = generator.random(len(CLASSES))
    faces = np.where(fate < 0.6, favourite, np.where(fate < 0.85, second, other))
    faces = np.where(fields.lends[faces, np.arange(len(CLASSES))], faces, 0)
    return WriterStyle(
        fields=fields,
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
    _add_specks(generator, images)
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
    field = style.fields.distance.reshape(-1)
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

    blended = row(0) * (_SUBPIXEL - part_y) + row(GRID) * part_y
    return np.asarray(blended // (_SUBPIXEL * _SUBPIXEL), dtype=np.int32)


def _smooth(knots: _Floats) -> _Floats:
    """Smooth fields (n, BOX, BOX) through random knots (n, k, k): cubic B-splines over the box."""
    basis = _spline_basis(knots.shape[-1])
    fields: _Floats = np.matmul(np.matmul(basis, knots), basis.T)
    return fields


def _spline_basis(knots: int) -> _Floats:
    """(BOX, knots) weights of the uniform cubic B-spline whose inner knots span the box."""
    position = np.linspace(1.0, knots - 2.0, _BOX)
    away = np.abs(position[:, None] - np.arange(knots)[None, :])
    near = 2.0 / 3.0 - away**2 + away**3 / 2.0
    far = np.clip(2.0 - away, 0.0, None) ** 3 / 6.0
    return np.where(away < 1.0, near, far)


def _add_specks(generator: np.random.Generator, images: NDArray[np.bool_]) -> None:
    """A speck of dirt, two to four pixels wide, on about one image in twenty-five."""
    dirty = np.flatnonzero(generator.random(len(images)) < 0.04)
    for index in dirty:
        row, column, size = generator.integers(20, PAPER - 24), generator.integers(20, PAPER - 24), 2
        images[index, row : row + size + generator.integers(0, 3), column : column + size] = True
