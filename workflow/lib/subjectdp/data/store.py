"""The prepared data set: one compact format for all kinds of data, written once and opened as a memory map.

A folder holds five files. ``features.npy``: images uint8 (N, height, width) or (N, height, width, 3), levels as in the
source; vectors float32 (N, numbers); text uint8 (L,), one stream of vocabulary indices. ``labels.npy``: uint8 (N,), or
int32 for more than 256 classes, float32 for numbers; of text empty: the label of address a is ``stream[a + window]``.
``silos.npy``: int16 (N,) the silo of each item, empty where the source names none. ``subjects.parquet``: one row a
subject with its first address and number of items. ``meta.json``: what the data are, counts, and checksums.

An item is an integer address: of text the ``window`` characters from there on, which are never materialised; a
subject's text is followed by enough of its own for its last window. A folder, of prepared data or of a partition, has
one sealed index, which is removed first and written last: it is there exactly where the folder is complete, and its
hashes say what each file is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectdp.data.content import Content, Integers, check_content, count_content, most_copies
from subjectdp.errors import DataError, expected
from subjectdp.io import atomic
from subjectdp.io.atomic import SEAL, read_sealed, sealed

Addresses = NDArray[np.integer[Any]]  # addresses of items, of any whole type

FORMAT_VERSION = 3
_INDEX = "meta.json"
_AS_THEY_ARE = ("dataset", "kind", "classes", "window", "vocabulary", "dark_on_light", "own_subjects", "notes")
_REMEDY = "Remove the folder and make it again."
_MAPPED_FROM = 4096  # bytes; smaller arrays, empty ones among them, are read whole


@dataclass(frozen=True, kw_only=True)
class PreparedData(Content):
    """A prepared data set, opened read-only (features memory-mapped); ``meta`` is its index."""

    folder: Path
    meta: Mapping[str, Any]

    @property
    def copies(self) -> int:
        """The most equal items of one subject."""
        return int(self.meta["copies"])

    @property
    def outputs(self) -> int:
        """What a model gives for an item: a logit for each class, or one number."""
        return max(1, self.classes)

    @property
    def synthetic(self) -> bool:
        """True for generated data; every result made from them is labelled so."""
        return bool(self.meta["synthetic"])

    @property
    def subjects(self) -> int:
        return len(self.items)

    def labels_of(self, items: Addresses) -> Integers:
        """The class of each item at these addresses, int64 (n,)."""
        return (self.features[items + self.window] if self.window else self.labels[items]).astype(np.int64)

    def most_frequent_share(self, items: Addresses) -> float:
        """The accuracy of a model that always predicts the items' most frequent class; 0 where labels are numbers."""
        if self.classes == 0:
            return 0.0
        return float(np.bincount(self.labels_of(items)).max() / len(items))

    def first_subjects(self, count: int) -> PreparedData:
        """The data of the first ``count`` subjects (Small-FEMNIST: 350); DataError if there are fewer."""
        if not 1 <= count <= self.subjects:
            raise expected("data.subjects", count, f"1..{self.subjects} (the data set's subjects)", DataError)
        columns = ["subject_ids", "groups", "first_items", "items", *(["silos"] if self.own_subjects else [])]
        return replace(self, **{name: getattr(self, name)[:count] for name in columns})


def write_prepared(
    folder: Path,
    content: Content,
    source: str,
    inputs: Sequence[Mapping[str, Any]],
    test_fraction: float,
    input_fingerprint: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Checks ``content``, writes the folder and returns its meta, with inputs and fingerprint as given."""
    check_content(content)
    meta = {
        "format": FORMAT_VERSION,
        **{name: getattr(content, name) for name in _AS_THEY_ARE},
        "source": source,
        "synthetic": source == "embedded",
        "silo_names": list(content.silo_names),
        "test_fraction": test_fraction,
        "counts": count_content(content, test_fraction),
        "copies": most_copies(content),
        "inputs": [dict(item) for item in inputs],
        "input_fingerprint": dict(input_fingerprint or {}),
    }
    columns = {"subject_id": content.subject_ids, "group": content.groups}
    subjects = pd.DataFrame({**columns, "first_item": content.first_items, "items": content.items})
    arrays = {name: getattr(content, name) for name in ("features", "labels", "silos")}
    return write_folder(folder / _INDEX, {**arrays, "subjects": subjects}, meta)


def load_prepared(folder: Path | str, verify: bool = False) -> PreparedData:
    """Opens a prepared folder; DataError if a file is missing or changed (features: by hash with ``verify``)."""
    folder = Path(folder)
    meta = read_index(folder / _INDEX, FORMAT_VERSION)
    features = checked_file(folder / "features.npy", meta, hashed=verify)
    frame = pd.read_parquet(checked_file(folder / "subjects.parquet", meta))
    arrays: dict[str, Any] = read_arrays(folder, ("labels", "silos"), meta)
    return PreparedData(
        folder=folder,
        **{name: meta[name] for name in _AS_THEY_ARE},
        silo_names=tuple(meta["silo_names"]),
        features=np.load(features, mmap_mode="r", allow_pickle=False),
        **arrays,
        subject_ids=frame["subject_id"].tolist(),
        groups=frame["group"].tolist(),
        first_items=frame["first_item"].to_numpy(dtype=np.int64),
        items=frame["items"].to_numpy(dtype=np.int64),
        meta=meta,
    )


# --- folders with an index ----------------------------------------------------------------------------------


def write_folder(
    index: Path, files: Mapping[str, NDArray[Any] | pd.DataFrame], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes arrays as ``NAME.npy``, tables as ``NAME.parquet``, then ``index`` beside them; returns its content.

    That is ``facts`` with ``sha256`` and ``bytes`` of each file by name.
    """
    index.parent.mkdir(parents=True, exist_ok=True)
    index.unlink(missing_ok=True)
    written: dict[str, Any] = {**facts, "sha256": {}, "bytes": {}}
    for name, content in files.items():
        if isinstance(content, pd.DataFrame):
            atomic.write_frame(path := index.with_name(f"{name}.parquet"), content)
        else:
            with atomic.atomic_open(path := index.with_name(f"{name}.npy")) as stream:
                np.save(stream, content, allow_pickle=False)
        written["sha256"][name], written["bytes"][name] = atomic.sha256_of(path), path.stat().st_size
    atomic.write_json(index, sealed(written))
    return written


def read_index(index: Path, version: int) -> dict[str, Any]:
    """The content of ``index``; DataError if it is missing, was changed, or has another ``format``."""
    if not index.is_file():
        raise DataError(f"{index.parent} is not complete: {index.name} is missing. {_REMEDY}")
    content = read_sealed(index, _REMEDY)
    if content.get("format") != version:
        raise expected(f"{index}: format", content.get("format"), str(version), DataError)
    return {key: value for key, value in content.items() if key != SEAL}


def checked_file(path: Path, facts: Mapping[str, Any], hashed: bool = True) -> Path:
    """``path``, a file of an index' folder; DataError if it is not the one that was written (by size, by hash)."""
    if not path.is_file():
        raise DataError(f"{path} is missing. {_REMEDY}")
    same = path.stat().st_size == facts["bytes"].get(path.stem)
    if not same or (hashed and atomic.sha256_of(path) != facts["sha256"].get(path.stem)):
        raise DataError(f"{path} is truncated or was changed (its size or sha256 differs). {_REMEDY}")
    return path


def read_arrays(folder: Path, names: Iterable[str], facts: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Arrays of a folder by name, checked, memory-mapped and read-only."""
    arrays = {}
    for name in names:
        path = checked_file(folder / f"{name}.npy", facts)
        large = facts["bytes"][name] >= _MAPPED_FROM
        # a plain view of the map: slices of np.memmap itself cost microseconds each
        arrays[name] = np.asarray(np.load(path, mmap_mode="r" if large else None, allow_pickle=False))
        arrays[name].setflags(write=False)
    return arrays
