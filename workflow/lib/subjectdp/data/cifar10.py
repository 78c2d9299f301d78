"""CIFAR-10 as fixed features: the binary archive's images through a frozen ResNeXt, 1,024 numbers an image.

A record is a label and 3,072 bytes. Nothing is unpacked to disk. The prepared data are the features, so the network
runs once for all runs (5.4 billion multiplications an image, some hours on a core).

The embedded pictures are a form on a background, both coloured; classes differ by form, and by colours that overlap.
Their network has random weights and one block a stage: its features are random ones, at a fortieth of the cost.
"""

import gzip
import io
import tarfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from subjectdp.data.content import VECTOR, Content, single_items
from subjectdp.errors import DataError, expected
from subjectdp.io import atomic
from subjectdp.noise.keys import Purpose, numpy_generator

ARCHIVE, CHECKPOINT = "cifar-10-binary.tar.gz", "resnext-29-8x64-cifar100.pth.tar"
FOLDER = "cifar-10-batches-bin"
BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
SIDE, CLASSES = 32, 10
PIXELS = 3 * SIDE * SIDE
_LARGEST = 1 << 26  # bytes of a batch; upstream's have 31 MB


def load_upstream(folder: Path, decode: bool = True) -> Content:
    """The features of all 60,000 images, those of the training batches first.

    The parts are pooled and split anew, as in the joint-noise paper. ``decode``: False leaves features zero. Raises
    DataError for a missing, damaged or foreign archive, ModelError for such a checkpoint.
    """
    from subjectdp.models.resnext import FEATURES, extract  # torch: other readers do without it

    images, labels = read_archive(folder / ARCHIVE)
    found = np.zeros((len(images), FEATURES), dtype=np.float32)
    if decode:
        found = extract(images, folder / CHECKPOINT)
    notes = {"features": f"ResNeXt of {CHECKPOINT}, without its last layer"}
    return Content("cifar10", VECTOR, found, labels, classes=CLASSES, notes=notes, **single_items(len(images)))


def read_archive(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, 3, 32, 32) and labels (n,) of the six batches; DataError for anything else."""
    if not path.is_file():
        raise DataError(f"{path} is missing.")
    try:
        with tarfile.open(path, "r:gz") as archive:
            parts = [_batch(path, archive, name) for name in BATCHES]
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole tar.gz file ({error}): get it again.") from None
    images, labels = zip(*parts, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _batch(path: Path, archive: tarfile.TarFile, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    where = f"{path}: {FOLDER}/{name}"
    try:
        member = archive.getmember(f"{FOLDER}/{name}")
    except KeyError:
        raise DataError(f"{where} is missing.") from None
    stream = archive.extractfile(member) if member.isfile() and member.size <= _LARGEST else None
    if stream is None:
        raise expected(where, f"{member.size} bytes", f"a file of at most {_LARGEST}", DataError)
    records = np.frombuffer(stream.read(), dtype=np.uint8)
    if len(records) == 0 or len(records) % (1 + PIXELS) or records[:: 1 + PIXELS].max() >= CLASSES:
        raise DataError(f"{where}: expected records of a label below {CLASSES} and {PIXELS} bytes.")
    table = records.reshape(-1, 1 + PIXELS)
    return table[:, 1:].reshape(-1, 3, SIDE, SIDE), table[:, 0]


# --- the embedded files, made up ------------------------------------------------------------------------------

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
    return np.clip(image + generator.normal(0, 12, image.shape), 0, 255).astype(np.uint8).transpose(2, 0, 1)
