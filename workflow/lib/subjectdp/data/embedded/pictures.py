"""Synthetic CIFAR-10: colour pictures in the upstream's archive, and a checkpoint of random weights.

Each picture is a form on a background, both coloured; classes differ by form, and by colours that overlap. The network
has one block a stage: its features are random ones, at a fortieth of the cost of ResNeXt-29.
"""

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from subjectdp.data.cifar10 import ARCHIVE, BATCHES, CHECKPOINT, CLASSES, FOLDER, SIDE
from subjectdp.io import atomic
from subjectdp.noise.keys import Purpose, numpy_generator

_CANVAS = 4 * SIDE  # drawn large and reduced: soft edges
_WIDTHS, _GROUPS = (16, 32, 64), 4


def write_files(folder: Path, subjects: int, items_per_subject: int, seed: int) -> list[Path]:
    """Writes archive and checkpoint with ``subjects`` times ``items_per_subject`` images; returns their paths."""
    from subjectdp.models.resnext import checkpoint_bytes, random_weights  # torch: other data do without it

    count = subjects * items_per_subject
    generator = numpy_generator(seed, Purpose.EMBEDDED_DATA, "pictures")
    labels = generator.integers(0, CLASSES, count).astype(np.uint8)
    tints = generator.integers(40, 216, (CLASSES, 2, 3))
    images = np.stack([_draw(int(label), tints[label], generator) for label in labels])
    batches = {name: records(images[part::6], labels[part::6]) for part, name in enumerate(BATCHES)}
    archive, checkpoint = folder / ARCHIVE, folder / CHECKPOINT
    atomic.write_bytes(archive, packed(batches))
    atomic.write_bytes(checkpoint, checkpoint_bytes(random_weights(seed, _WIDTHS, _GROUPS)))
    return [archive, checkpoint]


def packed(batches: dict[str, bytes]) -> bytes:
    """The tar.gz file of so many batches by name."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in batches.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(stream.getvalue(), 6, mtime=0)


def records(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> bytes:
    """A batch as upstream has it: a label and 3,072 bytes for each image."""
    return np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1).tobytes()


def _draw(label: int, tints: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.uint8]:
    """One image (3, 32, 32): a polygon or ellipse of the class in its tint, on a background in its."""
    front, back = np.clip(tints + generator.normal(0, 45, (2, 3)), 0, 255).astype(int).tolist()
    canvas = Image.new("RGB", (_CANVAS, _CANVAS), tuple(back))
    pen = ImageDraw.Draw(canvas)
    centre, radius = generator.normal(0.5, 0.06, 2) * _CANVAS, generator.uniform(0.25, 0.4) * _CANVAS
    turn, corners = generator.uniform(0, 0.6), 3 + label % 5
    angles = turn + 2 * np.pi * np.arange(2 * corners) / (2 * corners)
    reach = radius * np.where(np.arange(2 * corners) % 2, 1.0 if label < 5 else 0.45, 1.0)
    points = centre + (reach * np.stack([np.cos(angles), np.sin(angles)])).T
    pen.polygon([(float(x), float(y)) for x, y in points], fill=tuple(front))
    image = np.asarray(canvas.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float64)
    noisy = np.clip(image + generator.normal(0, 12, image.shape), 0, 255)
    return noisy.astype(np.uint8).transpose(2, 0, 1)
