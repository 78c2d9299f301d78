"""A folder of arrays and tables with one sealed index, which is removed first and written last.

The index is there exactly where the folder is complete, and its hashes say what each file is.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectdp.errors import DataError, expected
from subjectdp.io import atomic
from subjectdp.io.atomic import SEAL, is_intact, sealed

_REMEDY = "Remove the folder and make it again."
_MAPPED_FROM = 4096  # bytes; smaller arrays, empty ones among them, are read whole

Files = Mapping[str, NDArray[Any] | pd.DataFrame]


def write_folder(index: Path, files: Files, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Writes arrays as ``NAME.npy``, tables as ``NAME.parquet``, then ``index`` beside them; returns its content.

    That is ``facts`` with ``sha256`` and ``bytes`` of each file by name.
    """
    index.parent.mkdir(parents=True, exist_ok=True)
    index.unlink(missing_ok=True)
    paths = {}
    for name, content in files.items():
        if isinstance(content, pd.DataFrame):
            paths[name] = index.with_name(f"{name}.parquet")
            atomic.write_frame(paths[name], content)
        else:
            paths[name] = index.with_name(f"{name}.npy")
            atomic.write_array(paths[name], content)
    hashes = {name: atomic.sha256_of(path) for name, path in paths.items()}
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    written = {**facts, "sha256": hashes, "bytes": sizes}
    atomic.write_json(index, sealed(written))
    return written


def read_index(index: Path, version: int) -> dict[str, Any]:
    """The content of ``index``; DataError if it is missing, was changed, or has another ``format``."""
    if not index.is_file():
        raise DataError(f"{index.parent} is not complete: {index.name} is missing. {_REMEDY}")
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{index} cannot be read ({error}). {_REMEDY}") from None
    if not is_intact(content):
        raise DataError(f"{index} was changed after it was written: checksum mismatch. {_REMEDY}")
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
