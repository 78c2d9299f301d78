"""CIFAR-10 as fixed features: the Python archive's images through a frozen ResNeXt, 1,024 numbers an image.

The archive holds pickles, which may run any code when they are read. The unpickler here knows inert stand-ins for the
three names that an array needs and refuses every other one; nothing is unpacked to disk. The prepared data are the
features, so the network runs once for all runs (5.4 billion multiplications an image, some hours on a core).
"""

from __future__ import annotations

import io
import pickle
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subjectdp.data.content import Content, single_items
from subjectdp.errors import DataError, expected

ARCHIVE, CHECKPOINT = "cifar-10-python.tar.gz", "resnext-29-8x64-cifar100.pth.tar"
FOLDER = "cifar-10-batches-py"
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
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
    content = read_pickle(stream.read(), where)
    return _arrays(content, where)


def _arrays(content: Mapping[Any, Any], where: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    data, labels = content.get(b"data"), content.get(b"labels")
    if not isinstance(data, _Array) or not isinstance(labels, list) or not isinstance(data.raw, bytes):
        raise DataError(f"{where}: expected labels and an array of bytes.")
    count = len(labels)
    if data.shape != (count, PIXELS) or len(data.raw) != count * PIXELS:
        raise expected(f"{where}: shape of the data", data.shape, f"({count}, {PIXELS})", DataError)
    if any(type(label) is not int or not 0 <= label < CLASSES for label in labels):
        raise expected(f"{where}: labels", "others", f"0..{CLASSES - 1}", DataError)
    images = np.frombuffer(data.raw, dtype=np.uint8).reshape(count, 3, SIDE, SIDE)
    return images, np.array(labels, dtype=np.uint8)


def read_pickle(content: bytes, where: str) -> dict[Any, Any]:
    """The dictionary in a pickle of plain values and byte arrays; DataError for every other content."""
    try:
        found = _Inert(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a hostile pickle may raise anything
        raise DataError(f"{where} cannot be read as a batch of images ({error}).") from None
    if not isinstance(found, dict):
        raise expected(where, type(found).__name__, "a dictionary", DataError)
    return found


class _Dtype:
    """Stands in for ``numpy.dtype``: bytes alone are read."""

    def __init__(self, code: Any = b"", *_: Any) -> None:
        if code not in (b"u1", "u1"):
            raise pickle.UnpicklingError(f"an array of {code!r}, not of bytes")

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment, which single bytes have not."""


class _Array:
    """Stands in for ``numpy.ndarray``: keeps shape and bytes, builds nothing."""

    shape: Any = None
    raw: Any = None

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        _, self.shape, dtype, by_columns, self.raw = state
        if not isinstance(dtype, _Dtype) or by_columns:
            raise pickle.UnpicklingError("an array that is not of bytes by rows")


_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
}


class _Inert(pickle.Unpickler):
    """Finds the stand-ins only: no name of a pickle is ever imported."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _STAND_INS[module, name]
