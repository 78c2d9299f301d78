"""FEMNIST and Shakespeare as Flower Labs (parquet, CSV) and TensorFlow Federated (HDF5) hand them around.

Flower Labs: ``image`` (a PNG, or a struct with its bytes), ``writer_id``, ``character`` (0 to 61); ``character_id``,
``x`` (80 characters), ``y``. TensorFlow Federated: ``examples/<client>/pixels`` (28 x 28, 1 is the background) and
``label``; ``examples/<client>/snippets``, lines of a play. Train and test files are pooled, as LEAF's are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

from subjectdp.data.content import IMAGE, WINDOW, Content
from subjectdp.data.femnist import SIDE, leaf_pixels
from subjectdp.data.leaf_json import Users, checked_labels, joined_text, text_part
from subjectdp.errors import ConfigError, DataError, SubjectDPError, unknown

_ENDINGS = {".parquet": "Flower Labs' parquet", ".csv": "Flower Labs' CSV", ".h5": "TensorFlow Federated's HDF5"}
KNOWN: dict[tuple[str, str], dict[str, int]] = {
    ("Flower Labs' parquet", "image"): {"items": 814_277},
    ("Flower Labs' parquet", "text"): {"items": 4_226_158},
    ("Flower Labs' CSV", "text"): {"items": 4_226_158},
    ("TensorFlow Federated's HDF5", "image"): {"users": 3_400, "items": 749_068},  # of digits 3,383 and 382,705
    ("TensorFlow Federated's HDF5", "text"): {"users": 715},
    ("LEAF", "image"): {"users": 3_597, "items": 814_255},
    ("LEAF", "text"): {"users": 1_130, "items": 4_226_206},
}
"""Counts of the whole data set in each form, by kind; LEAF: from NIST's archives and the e-text, and as JSON."""

_ROWS = 1 << 16


def form_of(path: Path) -> str | None:
    """Which of these forms lies at ``path``, by the endings of its files; None for another. DataError for several."""
    names = [path.name] if path.is_file() else [each.name for each in sorted(path.rglob("*")) if each.is_file()]
    if any(name.endswith(".json") for name in names):
        return None
    found = [form for ending, form in _ENDINGS.items() if any(name.endswith(ending) for name in names)]
    if len(found) > 1:
        raise DataError(f"{path} holds files of several forms ({', '.join(found)}): give those of one.")
    return found[0] if found else None


def load(kind: str, path: Path, form: str) -> Content:
    """The content of the files of a form; DataError naming file and problem."""
    ending = next(each for each, of in _ENDINGS.items() if of == form)
    files = [path] if path.is_file() else sorted(path.rglob(f"*{ending}"))
    files.sort(key=lambda file: "test" in file.name)  # the train part comes first, as in LEAF's folders
    users = Users(kind)
    for file in files:
        try:
            for user, part in _hdf5(file, kind) if ending == ".h5" else _rows(file, kind):
                users.parts.setdefault(user, []).append(part)
        except SubjectDPError:
            raise
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as problem:  # of any layer of the file
            reason = str(problem).partition("\n")[0][:200]
            raise DataError(f"{file} cannot be read as {form} ({reason}).") from None
    notes: dict[str, Any] = {"form": form, "files": len(files)}
    if kind != IMAGE:
        of_lines = ending == ".h5"
        pieces = users.parts.items()
        texts = {name: " ".join(each) if of_lines else joined_text(each, name, (WINDOW,)) for name, each in pieces}
        users.parts = {user: [text] for user, text in texts.items() if len(text) > WINDOW}
        notes["users with too short a text"] = len(texts) - len(users.parts)
    return users.content(notes)


def _rows(file: Path, kind: str) -> Iterator[tuple[str, Any]]:
    columns = ["writer_id", "image", "character"] if kind == IMAGE else ["character_id", "x", "y"]
    for frame in _frames(file, columns):
        for user, rows in frame.groupby(columns[0], sort=False):
            where = f"{file}: {user}"
            if kind == IMAGE:
                yield str(user), (_pictures(rows["image"], where), checked_labels(rows["character"].to_numpy(), where))
            else:
                yield str(user), text_part(rows["x"].tolist(), rows["y"].tolist(), where)


def _frames(file: Path, columns: list[str]) -> Iterator[pd.DataFrame]:
    if file.suffix == ".csv":
        parts = iter(pd.read_csv(file, dtype=str, keep_default_na=False, chunksize=_ROWS))
    else:
        opened = pq.ParquetFile(file)
        names = [name for name in opened.schema_arrow.names if name in columns]
        parts = (batch.to_pandas() for batch in opened.iter_batches(_ROWS, columns=names))
    for part in parts:
        missing = next((name for name in columns if name not in part.columns), None)
        if missing is not None:
            raise unknown(f"{file}: column", missing, part.columns, DataError)
        if part[columns].isna().any(axis=None):
            raise DataError(f"{file}: expected a value in each row of {', '.join(columns)}, got one without.")
        yield part


def _pictures(cells: pd.Series[Any], where: str) -> NDArray[np.uint8]:
    contents: Iterator[Any] = (cell.get("bytes") if isinstance(cell, dict) else cell for cell in cells)
    return np.stack([leaf_pixels(content, f"{where}: an image", largest=SIDE) for content in contents])


def _hdf5(file: Path, kind: str) -> Iterator[tuple[str, Any]]:
    try:
        import h5py  # here: an extra
    except ModuleNotFoundError:
        raise ConfigError(f"Expected the package h5py for {file}: pip install h5py.") from None
    with h5py.File(file, "r") as content:
        for client, group in content["examples"].items():
            if not len(group["label" if kind == IMAGE else "snippets"]):
                continue
            if kind == IMAGE:
                where, pixels, labels = f"{file}: {client}", group["pixels"][:], group["label"][:]
                if len(pixels) != len(labels):
                    raise DataError(f"{where}: {len(pixels)} entries in pixels, {len(labels)} in label.")
                yield client, (_levels(pixels, where), checked_labels(labels, where))
            else:
                yield client, " ".join(" ".join(each.decode() for each in group["snippets"][:].tolist()).split())


def _levels(pixels: NDArray[Any], where: str) -> NDArray[np.uint8]:
    if pixels.shape[1:] != (SIDE, SIDE) or not (pixels.min() >= 0 and pixels.max() <= 1):
        raise DataError(f"{where}: expected pixels of {SIDE} x {SIDE} numbers from 0 to 1.")
    levels: NDArray[np.uint8] = np.rint(255 * pixels).astype(np.uint8)
    return levels
