"""Reads parquet and JSON inputs; DataError if one is damaged, empty or lacks a column."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.lib
import pyarrow.parquet as pq

from subjectdp.errors import DataError, expected


def read_frame(path: Path | str, columns: Iterable[str], only: bool = False) -> pd.DataFrame:
    """A parquet file as a frame; ``only`` reads just ``columns``.

    Raises DataError naming the file if it is missing, empty, truncated, has no rows or lacks a column.
    """
    path, wanted = Path(path), list(columns)
    _require_file(path)
    try:
        present = set(pq.read_schema(path).names)
        missing = [name for name in wanted if name not in present]
        if missing:
            raise expected(f"columns of {path}", sorted(present), f"with {', '.join(missing)}", DataError)
        frame = pd.read_parquet(path, columns=wanted if only else None)
    except (pyarrow.lib.ArrowInvalid, OSError) as problem:
        raise DataError(
            f"Expected {path} to be a whole parquet file, got one that cannot be read: {problem}"
        ) from problem
    if frame.empty:
        raise expected(str(path), "no rows", "a table with at least one row", DataError)
    return frame


def read_json(path: Path | str) -> dict[str, Any]:
    """A JSON object from a file; DataError naming the file if it is missing, empty, truncated or no object."""
    path = Path(path)
    _require_file(path)
    try:
        content = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise DataError(
            f"Expected {path} to be whole JSON, got one that cannot be read: {problem}"
        ) from problem
    if not isinstance(content, dict):
        raise expected(str(path), type(content).__name__, "a JSON object", DataError)
    return content


def concatenate(frames: list[pd.DataFrame], what: str) -> pd.DataFrame:
    """The frames concatenated; DataError if there are none."""
    if not frames:
        raise expected(what, "nothing", "at least one run", DataError)
    return pd.concat(frames, ignore_index=True)


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise expected(str(path), "nothing there", "an existing file", DataError)
    if path.stat().st_size == 0:
        raise expected(str(path), "an empty file", "a file with content", DataError)
