"""Fashion-MNIST: images and labels in MNIST's IDX format, gzip-packed, a training and a test pair of files.

IDX: two zero bytes, the type (8: unsigned bytes), the number of dimensions, each one's size (4 bytes, big endian), then
the values row by row.
"""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subjectdp.data.content import Content, single_items
from subjectdp.data.splits import IMAGE
from subjectdp.errors import DataError, expected

PARTS = ("train", "t10k")
IMAGES, LABELS = "{}-images-idx3-ubyte.gz", "{}-labels-idx1-ubyte.gz"
SIDE, CLASSES = 28, 10
_LARGEST = 1 << 28  # bytes of an unpacked file; Fashion-MNIST has 47 MB
_UNSIGNED_BYTE = 0x08


def load_upstream(folder: Path) -> Content:
    """The four files of Fashion-MNIST in ``folder``: all images, those of the training files first.

    The parts are pooled and split anew, as in the joint-noise paper. Raises DataError for a missing or damaged file.
    """
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
    return Content(
        dataset="fashion_mnist",
        kind=IMAGE,
        features=features,
        labels=np.concatenate(labels),
        classes=CLASSES,
        dark_on_light=False,
        notes={"images_of_files": {part: len(part_labels) for part, part_labels in zip(PARTS, labels, strict=True)}},
        **single_items(len(features)),
    )


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The unsigned bytes of an IDX file, gzip-packed, of so many dimensions; DataError if it is none, or damaged."""
    if not path.is_file():
        raise DataError(f"{path} is missing.")
    try:
        with gzip.open(path) as stream:
            content = stream.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}): get it again.") from None
    start = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, _UNSIGNED_BYTE, dimensions]) or len(content) < start:
        raise DataError(f"{path} is no IDX file of unsigned bytes with {dimensions} dimensions.")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    values = np.frombuffer(content, dtype=np.uint8, offset=start)
    if len(content) > _LARGEST or len(values) != np.prod(shape, dtype=object):
        raise expected(f"{path}: values", len(values), f"{' x '.join(map(str, shape))} as its header says", DataError)
    return values.reshape(shape)
