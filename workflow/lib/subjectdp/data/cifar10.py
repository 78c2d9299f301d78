"""CIFAR-10 as fixed features: the binary archive's images through a frozen ResNeXt, 1,024 numbers an image.

A record is a label and 3,072 bytes. Nothing is unpacked to disk. The prepared data are the features, so the network
runs once for all runs (5.4 billion multiplications an image, some hours on a core).
"""

import tarfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subjectdp.data.content import Content, single_items
from subjectdp.errors import DataError, expected

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
    return Content(
        dataset="cifar10",
        kind="vector",
        features=found,
        labels=labels,
        classes=CLASSES,
        notes={"features": f"ResNeXt of {CHECKPOINT}, without its last layer"},
        **single_items(len(images)),
    )


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
