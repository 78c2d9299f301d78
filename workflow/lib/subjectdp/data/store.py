"""The prepared data set: one compact format for all kinds of data, written once and opened as a memory map.

A folder holds five files. ``features.npy``: images uint8 (N, height, width) or (N, height, width, 3), levels as in the
source; vectors float32 (N, numbers); text uint8 (L,), one stream of vocabulary indices. ``labels.npy``: uint8 (N,), or
int32 for more than 256 classes; of text empty, because the label of address a is ``stream[a + window]``.
``silos.npy``: int16 (N,) the silo of each item, empty where the source names none. ``subjects.parquet``: one row a
subject with its first address and number of items. ``meta.json``: what the data are, counts, and checksums.

An item is an integer address. Windows of text are never materialised: the item at address a is the ``window``
characters from a on, and a subject's text is followed by enough characters of its own for its last window.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectdp.data.content import Content, Features, Labels, check_content, count_content, most_copies
from subjectdp.data.splits import IMAGE, Integers, Silos
from subjectdp.errors import DataError, expected
from subjectdp.io import atomic
from subjectdp.io.atomic import SEAL, is_intact, sealed

Addresses = NDArray[np.integer[Any]]
"""Addresses of items, of any whole type."""

FORMAT_VERSION = 3
_FILES = {
    "features": "features.npy",
    "labels": "labels.npy",
    "silos": "silos.npy",
    "subjects": "subjects.parquet",
}
_META_KEYS = {"dataset", "kind", "classes", "window", "synthetic", "sha256", "bytes", "format"}
_META_KEYS |= {"copies", "dark_on_light", "own_subjects", "silo_names"}
_ADVICE = "Remove the folder and prepare it again."


@dataclass(frozen=True)
class InputFile:
    """A file that a prepared data set was made from."""

    file: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class PreparedData:
    """A prepared data set, opened read-only (features memory-mapped); arrays as in :class:`Content`."""

    folder: Path
    features: Features
    labels: Labels
    subject_ids: NDArray[np.object_]
    groups: NDArray[np.object_]
    first_items: Integers
    items: Integers
    silos: Silos
    meta: Mapping[str, Any]

    @property
    def dataset(self) -> str:
        """Its name, see :mod:`subjectdp.data.catalogue`."""
        return str(self.meta["dataset"])

    @property
    def kind(self) -> str:
        """``image``, ``vector`` or ``text``."""
        return str(self.meta["kind"])

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.meta["classes"])

    @property
    def window(self) -> int:
        """Characters of a text item; 0 for other items."""
        return int(self.meta["window"])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an item as models take it: (channels, height, width), (numbers,) or (characters,)."""
        if self.window:
            return (self.window,)
        stored = self.features.shape[1:]
        if self.kind != IMAGE:
            return stored
        return (1, *stored) if len(stored) == 2 else (stored[2], *stored[:2])

    @property
    def dark_on_light(self) -> bool:
        """Images: whether level 255 is the background."""
        return bool(self.meta["dark_on_light"])

    @property
    def own_subjects(self) -> bool:
        """Whether the data name nobody, and each item is its own subject."""
        return bool(self.meta["own_subjects"])

    @property
    def silo_names(self) -> tuple[str, ...]:
        """The silos that the source names; empty: none."""
        return tuple(self.meta["silo_names"])

    @property
    def copies(self) -> int:
        """The most equal items of one subject."""
        return int(self.meta["copies"])

    @property
    def synthetic(self) -> bool:
        """True for generated data; every result made from them is labelled so."""
        return bool(self.meta["synthetic"])

    @property
    def subjects(self) -> int:
        """Number of subjects."""
        return len(self.items)

    def labels_of(self, items: Addresses) -> Integers:
        """The class of each item at these addresses, int64 (n,)."""
        found = self.features[items + self.window] if self.window else self.labels[items]
        return found.astype(np.int64)

    def most_frequent_share(self, items: Addresses) -> float:
        """The share of the items' most frequent class: the accuracy of a model that always predicts it."""
        return float(np.bincount(self.labels_of(items)).max() / len(items))

    def first_subjects(self, count: int) -> PreparedData:
        """The data of the first ``count`` subjects (Small-FEMNIST: 350); DataError if there are fewer."""
        if not 1 <= count <= self.subjects:
            raise expected("data.subjects", count, f"1..{self.subjects} (the data set's subjects)", DataError)
        return replace(
            self,
            subject_ids=self.subject_ids[:count],
            groups=self.groups[:count],
            first_items=self.first_items[:count],
            items=self.items[:count],
            silos=self.silos[:count] if self.own_subjects else self.silos,
        )


def write_prepared(
    folder: Path,
    content: Content,
    source: str,
    inputs: list[InputFile],
    test_fraction: float,
    made_from: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Checks ``content`` and writes the folder; returns its meta, with ``made_from`` as it is given.

    meta.json is removed first and written last: its presence means that the folder is complete.
    """
    check_content(content)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.json").unlink(missing_ok=True)
    atomic.write_array(folder / _FILES["features"], content.features)
    atomic.write_array(folder / _FILES["labels"], content.labels)
    atomic.write_array(folder / _FILES["silos"], content.silos)
    atomic.write_frame(folder / _FILES["subjects"], _subjects_frame(content))
    meta = {
        "format": FORMAT_VERSION,
        "dataset": content.dataset,
        "kind": content.kind,
        "source": source,
        "synthetic": source == "embedded",
        "classes": content.classes,
        "window": content.window,
        "vocabulary": content.vocabulary,
        "dark_on_light": content.dark_on_light,
        "own_subjects": content.own_subjects,
        "silo_names": list(content.silo_names),
        "test_fraction": test_fraction,
        "counts": count_content(content, test_fraction),
        "copies": most_copies(content),
        "notes": dict(content.notes),
        "sha256": {key: atomic.sha256_of(folder / name) for key, name in _FILES.items()},
        "bytes": {key: (folder / name).stat().st_size for key, name in _FILES.items()},
        "inputs": [{"file": i.file, "sha256": i.sha256, "bytes": i.bytes} for i in inputs],
        "made_from": dict(made_from or {}),
    }
    atomic.write_json(folder / "meta.json", sealed(meta))
    return meta


def load_prepared(folder: Path | str, verify: bool = False) -> PreparedData:
    """Opens a prepared folder; DataError if a file is missing, truncated or changed.

    Always hashes the small files; hashes the features only with ``verify``, otherwise compares their size.
    """
    folder = Path(folder)
    meta = _read_meta(folder)
    for key, name in _FILES.items():
        _check_file(folder / name, meta, key, hashed=verify or key != "features")
    frame = pd.read_parquet(folder / _FILES["subjects"])
    data = PreparedData(
        folder=folder,
        features=np.load(folder / _FILES["features"], mmap_mode="r", allow_pickle=False),
        labels=np.load(folder / _FILES["labels"], allow_pickle=False),
        subject_ids=frame["subject_id"].to_numpy(dtype=object),
        groups=frame["group"].to_numpy(dtype=object),
        first_items=frame["first_item"].to_numpy(dtype=np.int64),
        items=frame["items"].to_numpy(dtype=np.int64),
        silos=np.load(folder / _FILES["silos"], allow_pickle=False),
        meta=meta,
    )
    last = int((data.first_items + data.items).max()) + data.window
    if last > len(data.features):
        raise DataError(f"{folder}: items reach {last}, features.npy ends at {len(data.features)}. {_ADVICE}")
    return data


def _subjects_frame(content: Content) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "subject_id": content.subject_ids,
            "group": content.groups,
            "first_item": content.first_items,
            "items": content.items,
        }
    )


def _read_meta(folder: Path) -> dict[str, Any]:
    path = folder / "meta.json"
    if not path.is_file():
        raise DataError(f"{folder} is no complete prepared data set: meta.json is missing. Prepare it again.")
    try:
        meta = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}). {_ADVICE}") from None
    if not isinstance(meta, dict) or not meta.keys() >= _META_KEYS:
        raise DataError(f"{path} lacks some of {sorted(_META_KEYS)}. {_ADVICE}")
    if meta["format"] != FORMAT_VERSION:
        raise expected(f"{path}: format", meta["format"], str(FORMAT_VERSION), DataError)
    if not is_intact(meta):
        raise DataError(f"{path} was changed after it was written (its seal is broken). {_ADVICE}")
    return {key: value for key, value in meta.items() if key != SEAL}


def _check_file(path: Path, meta: Mapping[str, Any], key: str, hashed: bool) -> None:
    if not path.is_file():
        raise DataError(f"{path} is missing. {_ADVICE}")
    size, written = path.stat().st_size, meta["bytes"][key]
    if size != written:
        raise DataError(f"{path} has {size} bytes, {written} were written. {_ADVICE}")
    if hashed and atomic.sha256_of(path) != meta["sha256"][key]:
        raise DataError(f"{path} was changed after it was written (its sha256 differs). {_ADVICE}")
