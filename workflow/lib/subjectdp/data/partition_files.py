"""The files of a partition: five arrays, two tables, and partition.json with checksums and a seal, written last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectdp.errors import DataError, expected
from subjectdp.io import atomic
from subjectdp.io.checksummed_json import SEAL, is_intact, sealed

FORMAT_VERSION = 1
ARRAYS: dict[str, type[np.generic]] = {
    "train_items": np.int32,
    "train_subjects": np.int32,
    "train_offsets": np.int64,
    "validation_items": np.int32,
    "test_items": np.int32,
}
_FACTS = {"format", "seed", "partition", "counts", "silo_items", "silo_subjects", "silo_largest_subject"}
_FACTS |= {"most_silos_of_a_subject", "silos_per_subject_limit", "sha256", "shape"}
_ADVICE = "Remove the folder and make the partition again."

Array = NDArray[Any]


def write(
    folder: Path, arrays: Mapping[str, Array], tables: Mapping[str, pd.DataFrame], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes a partition's folder, returns the facts added: format, sha256 and shape of each array.

    partition.json is removed first and written last: its presence means that the folder is complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "partition.json").unlink(missing_ok=True)
    for name, array in arrays.items():
        atomic.write_array(folder / f"{name}.npy", array)
    for file, table in tables.items():
        atomic.write_frame(folder / file, table)
    added = {
        "format": FORMAT_VERSION,
        "sha256": {name: atomic.sha256_of(folder / f"{name}.npy") for name in arrays},
        "shape": {name: list(array.shape) for name, array in arrays.items()},
    }
    atomic.write_json(folder / "partition.json", sealed({**facts, **added}))
    return added


def read(folder: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays (memory-mapped, read-only) and facts of a folder; DataError if anything is amiss."""
    facts = _read_facts(folder / "partition.json")
    arrays = {name: _read_array(folder / f"{name}.npy", name, facts) for name in ARRAYS}
    _check_bounds(folder, arrays, facts)
    return arrays, facts


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text())
    except FileNotFoundError:
        raise DataError(
            f"{path.parent} is no complete partition: partition.json is missing. {_ADVICE}"
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}). {_ADVICE}") from None
    missing = sorted(_FACTS - facts.keys()) if isinstance(facts, dict) else sorted(_FACTS)
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}. {_ADVICE}")
    if facts["format"] != FORMAT_VERSION:
        raise expected(f"{path}: format", facts["format"], str(FORMAT_VERSION), DataError)
    if not is_intact(facts):
        raise DataError(f"{path} was changed after it was written (its seal is broken). {_ADVICE}")
    return {key: value for key, value in facts.items() if key != SEAL}


def _read_array(path: Path, name: str, facts: Mapping[str, Any]) -> Array:
    if not path.is_file():
        raise DataError(f"{path} is missing. {_ADVICE}")
    if atomic.sha256_of(path) != facts["sha256"].get(name):
        raise DataError(f"{path} is truncated or was changed (its sha256 differs). {_ADVICE}")
    try:
        empty = 0 in facts["shape"][name]  # a memory map cannot be empty
        # a plain view of the map: slices of np.memmap itself cost microseconds each
        array: Array = np.asarray(np.load(path, mmap_mode=None if empty else "r", allow_pickle=False))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} is not a numpy array ({error}). {_ADVICE}") from None
    if array.dtype != ARRAYS[name] or list(array.shape) != facts["shape"][name] or array.ndim != 1:
        wanted = f"{np.dtype(ARRAYS[name])} of shape {facts['shape'][name]}"
        found = f"{array.dtype} of shape {list(array.shape)}"
        raise DataError(f"{path} is {found}, partition.json says {wanted}. {_ADVICE}")
    return array


def _check_bounds(folder: Path, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> None:
    items, subjects, offsets = arrays["train_items"], arrays["train_subjects"], arrays["train_offsets"]
    if len(items) != len(subjects):
        raise DataError(f"{folder}: {len(items)} train items, but subjects of {len(subjects)}. {_ADVICE}")
    if len(offsets) != facts["partition"]["silos"] + 1 or offsets[0] != 0 or offsets[-1] != len(items):
        raise DataError(f"{folder}: train_offsets do not bound the train items. {_ADVICE}")
    if np.diff(offsets).tolist() != facts["silo_items"]:
        raise DataError(f"{folder}: train_offsets differ from silo_items of partition.json. {_ADVICE}")
    if len(subjects) > 0 and not (subjects.min() >= 0 and subjects.max() < facts["counts"]["subjects"]):
        raise DataError(f"{folder}: a subject is outside of 0..{facts['counts']['subjects'] - 1}. {_ADVICE}")
