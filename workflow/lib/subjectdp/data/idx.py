"""Fashion-MNIST: images and labels in MNIST's IDX format, gzip-packed, a training and a test pair of files.

IDX: two zero bytes, the type (8: unsigned bytes), the number of dimensions, each one's size (4 bytes, big endian), then
the values row by row.

The embedded images are a class's outline, warped, in a brightness and with a texture of its own, light on black as
upstream. The classes overlap as the real ones do (shirt, T-shirt, pullover and coat differ in sleeves and length).
"""

import gzip
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from subjectdp.data.archives import read_unpacked
from subjectdp.data.content import IMAGE, Content, single_items
from subjectdp.errors import DataError, expected
from subjectdp.io import atomic
from subjectdp.noise.keys import Purpose, numpy_generator

PARTS = ("train", "t10k")
IMAGES, LABELS = "{}-images-idx3-ubyte.gz", "{}-labels-idx1-ubyte.gz"
SIDE, CLASSES = 28, 10
_LARGEST = 1 << 28  # bytes of an unpacked file; Fashion-MNIST has 47 MB
_UNSIGNED_BYTE = 0x08


def load_upstream(folder: Path) -> Content:
    """All images of the four files in ``folder``, training files first (pooled, as in the paper); or DataError."""
    images, labels = [], []
    for part in PARTS:
        pictures = read_idx(folder / IMAGES.format(part), 3)
        classes = read_idx(folder / LABELS.format(part), 1)
        if pictures.shape[1:] != (SIDE, SIDE) or len(pictures) != len(classes):
            where = f"{folder}: {part} images and labels"
            raise expected(where, (pictures.shape, classes.shape), f"n x {SIDE} x {SIDE} and n", DataError)
        images.append(pictures)
        labels.append(classes)
    features = np.concatenate(images)
    notes = {"images_of_files": {part: len(of_part) for part, of_part in zip(PARTS, labels, strict=True)}}
    facts = single_items(len(features)) | {"classes": CLASSES, "dark_on_light": False, "notes": notes}
    return Content("fashion_mnist", IMAGE, features, np.concatenate(labels), **facts)


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The unsigned bytes of an IDX file of so many dimensions; DataError if it is none, or damaged."""
    content = read_unpacked(path, _LARGEST)
    start = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, _UNSIGNED_BYTE, dimensions]) or len(content) < start:
        raise DataError(f"{path} is no IDX file of unsigned bytes with {dimensions} dimensions.")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    values = np.frombuffer(content, dtype=np.uint8, offset=start)
    if len(content) > _LARGEST or len(values) != np.prod(shape, dtype=object):
        raise expected(f"{path}: values", len(values), f"{' x '.join(map(str, shape))} as its header says", DataError)
    return values.reshape(shape)


# --- the embedded files, made up ------------------------------------------------------------------------------

_CANVAS = 4 * SIDE  # drawn large and reduced: soft edges
_TEST_EVERY = 7  # one image of seven belongs to the test files, as upstream

Polygon = list[tuple[float, float]]


def _top(sleeve: float, length: float, width: float) -> list[Polygon]:
    """A garment with sleeves, symmetric: from the neck to the hem, sides at ``width``."""
    right = [(0.08, 0.16), (width, 0.2), (width + 0.2 * sleeve, 0.2 + 0.5 * sleeve)]
    right += [(width + 0.2 * sleeve - 0.1, 0.24 + 0.5 * sleeve), (width - 0.03, 0.36), (width - 0.02, length)]
    return [[(0.5 + x, y) for x, y in right] + [(0.5 - x, y) for x, y in reversed(right)]]


_OUTLINES: tuple[list[Polygon], ...] = (
    _top(0.3, 0.85, 0.24),  # T-shirt
    [[(0.34, 0.08), (0.66, 0.08), (0.7, 0.94), (0.56, 0.94), (0.5, 0.3), (0.44, 0.94), (0.3, 0.94)]],  # trousers
    _top(1.0, 0.82, 0.24),  # pullover
    [[(0.4, 0.06), (0.6, 0.06), (0.58, 0.4), (0.72, 0.95), (0.28, 0.95), (0.42, 0.4)]],  # dress
    [*_top(1.1, 0.95, 0.26), [(0.48, 0.2), (0.52, 0.2), (0.52, 0.95), (0.48, 0.95)]],  # coat
    [[(0.06, 0.72), (0.94, 0.6), (0.96, 0.68), (0.06, 0.8)], [(0.3, 0.7), (0.5, 0.45), (0.58, 0.47), (0.42, 0.72)]],
    _top(0.7, 0.9, 0.22),  # shirt
    [[(0.05, 0.6), (0.35, 0.56), (0.62, 0.42), (0.94, 0.45), (0.95, 0.72), (0.05, 0.74)]],  # sneaker
    [
        [(0.15, 0.4), (0.85, 0.4), (0.88, 0.88), (0.12, 0.88)],
        [(0.3, 0.4), (0.34, 0.18), (0.66, 0.18), (0.7, 0.4), (0.64, 0.4), (0.6, 0.25), (0.4, 0.25), (0.36, 0.4)],
    ],  # bag
    [[(0.05, 0.62), (0.4, 0.55), (0.52, 0.12), (0.9, 0.12), (0.92, 0.84), (0.05, 0.84)]],  # ankle boot
)


def write_files(folder: Path, subjects: int, items_per_subject: int, seed: int) -> list[Path]:
    """Writes the four files with ``subjects`` times ``items_per_subject`` images in all; returns their paths."""
    count = subjects * items_per_subject
    generator = numpy_generator(seed, Purpose.EMBEDDED_DATA, "garments")
    labels = generator.integers(0, CLASSES, count).astype(np.uint8)
    images = np.stack([_draw(int(label), generator) for label in labels])
    is_test = np.arange(count) % _TEST_EVERY == 0
    paths = []
    for part, chosen in zip(PARTS, (~is_test, is_test), strict=True):
        for name, values in ((IMAGES, images[chosen]), (LABELS, labels[chosen])):
            path = folder / name.format(part)
            atomic.write_bytes(path, gzip.compress(idx_bytes(values), 6, mtime=0))
            paths.append(path)
    return paths


def idx_bytes(values: NDArray[np.uint8]) -> bytes:
    """An IDX file of unsigned bytes."""
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def _draw(label: int, generator: np.random.Generator) -> NDArray[np.uint8]:
    """One image (28, 28)."""
    warp = np.eye(2) + generator.normal(0, 0.09, (2, 2))
    shift = 0.5 + generator.normal(0, 0.02, 2)
    canvas = Image.new("L", (_CANVAS, _CANVAS))
    pen = ImageDraw.Draw(canvas)
    levels = generator.integers(90, 256, 2)
    for number, outline in enumerate(_OUTLINES[label]):
        corners = (np.array(outline) - 0.5 + generator.normal(0, 0.012, (len(outline), 2))) @ warp.T + shift
        places = np.rint(corners * _CANVAS).astype(int)
        pen.polygon([(int(x), int(y)) for x, y in places], fill=int(levels[number % 2]))
    image = np.asarray(canvas.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.int64)
    texture = generator.integers(192, 321, (SIDE, SIDE))
    shaded: NDArray[np.int64] = np.clip(image * texture // 256, 0, 255)
    return shaded.astype(np.uint8)
