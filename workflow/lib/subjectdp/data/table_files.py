"""The files of a table: CSV as programs and countries write it, parquet, a folder of either."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from subjectdp.data.names import MISSING
from subjectdp.data.table_sizes import first_row
from subjectdp.errors import DataError, in_words

FILE = "file"
"""``data.silo`` where each silo has a file of its own, whose name it has."""

_TEXT = (".csv", ".tsv", ".txt")
_DECIMAL_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)?(,\d+)?([eE][+-]?\d+)?")
_THOUSANDS, _POINT = re.compile(r"[+-]?\d{1,3}(\.\d{3})+"), re.compile(r".*\d\.\d.*")
_NAMELESS = re.compile(r"Unnamed: \d+|__index_level_\d+__|")


def read_frame(path: Path, silo_by_file: bool = False) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The rows of a table, numbered from 0 on, missing cells as None or NaN; and notes on what was left out.

    Args:
        path: a file, or a folder of files with the same columns (of parquet with partitions in the folders' names).
        silo_by_file: a column :data:`FILE` says in which file a row is, unless there is one of that name.

    Raises:
        DataError: no table, or one that cannot be read.
    """
    files = _files(path)
    dropped: set[str] = set()
    parts = []
    for file in files:
        part = _parquet(file) if file.suffix == ".parquet" else _csv(file)
        for level in file.relative_to(path).parts[:-1] if path.is_dir() else ():
            key, equals, value = level.partition("=")
            if equals and key not in part.columns:
                part[key] = value
        if silo_by_file and FILE not in part.columns:
            part[FILE] = file.name.split(".")[0]
        parts.append(_without_row_numbers(file, part, dropped))
    names = list(parts[0].columns)
    other = next((file for file, part in zip(files, parts, strict=True) if set(part.columns) != set(names)), None)
    if other is not None:
        raise DataError(f"{other} has other columns than {files[0].name}: expected {', '.join(names)}.")
    frame = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
    notes: dict[str, Any] = {} if len(files) == 1 else {"files": [file.name for file in files]}
    return frame, notes | ({"row numbers left out": sorted(dropped)} if dropped else {})


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(each for each in path.rglob("*") if each.is_file() and not each.name.startswith((".", "_")))
    else:
        found = [path]
    kinds = {each.suffix == ".parquet" for each in found}
    good = [each for each in found if each.suffix == ".parquet" or Path(each.name.removesuffix(".gz")).suffix in _TEXT]
    if not found or len(good) < len(found) or len(kinds) > 1:
        wrong = next((each for each in found if each not in good), path)
        raise DataError(f"{wrong}: expected files that end in .parquet, or in .csv, .tsv or .txt, with or without .gz.")
    if not path.exists():
        raise DataError(f"Cannot read {path}: there is no such file or folder.")
    return good


def _csv(path: Path) -> pd.DataFrame:
    """All cells as text; a blank line is no row, and what a short row lacks is empty."""
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8-sig") as lines:
            header = next((line for line in lines if line.strip()), "")
        mark = first_row(header)[1]
        cells = pd.read_csv(path, header=None, dtype=str, keep_default_na=False, encoding="utf-8-sig", sep=mark)
    except (OSError, EOFError, ValueError) as error:  # ParserError, EmptyDataError, UnicodeDecodeError: ValueErrors
        raise DataError(f"{path} is not a table in UTF-8 CSV ({str(error).strip()[:200]}).") from None
    frame = cells[1:].set_axis(cells.iloc[0].str.strip(), axis=1).reset_index(drop=True)
    frame.columns.name = None
    _check_distinct(path, frame)
    read = pd.DataFrame({name: _cells(frame[name], mark != ",") for name in frame.columns})
    if any(not read[name].equals(frame[name]) and read[name].str.fullmatch(_POINT).any() for name in read.columns):
        _refuse_thousands(path, read)
    return read


def _refuse_thousands(path: Path, frame: pd.DataFrame) -> None:
    """DataError for a column that reads as thousands with points and as decimals, beside one with decimal commas."""
    for name in frame.columns:
        values = frame[name].dropna().str.strip()
        if len(values) and values.str.fullmatch(_THOUSANDS).all():
            raise DataError(
                f"{path}: the column {in_words(name)} holds thousands or decimals ({values.iloc[0]}), beside decimal "
                "commas nobody can tell: write it without points."
            )


def _cells(column: pd.Series[Any], decimal_commas: bool) -> pd.Series[Any]:
    """Missing cells as None; decimal commas as points where every cell of the column is such a number."""
    column = column.mask(column.str.strip().str.casefold().isin(MISSING), None)
    if decimal_commas and column.str.contains(",", regex=False).any():
        values = column.dropna().str.strip()
        if values.str.fullmatch(_DECIMAL_COMMA).all():
            return column.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    return column


def _parquet(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a parquet file ({str(error).splitlines()[0][:200]}).") from None
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1).reset_index(drop=True)
    _check_distinct(path, frame)
    for name in frame.select_dtypes(["object", "category", "string"]).columns:
        texts = frame[name].astype(object)
        known = texts.map(lambda each: isinstance(each, str) and each.strip().casefold() in MISSING).astype(bool)
        frame[name] = texts.mask(known | texts.isna(), None)
    return frame


def _check_distinct(path: Path, frame: pd.DataFrame) -> None:
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"{path}: the column {in_words(twice[0])} is there twice.")


def _without_row_numbers(path: Path, frame: pd.DataFrame, dropped: set[str]) -> pd.DataFrame:
    """Without a nameless column that numbers the rows, as pandas and R write it. DataError for any other such one."""
    for place, name in enumerate(list(frame.columns)):
        if _NAMELESS.fullmatch(str(name)) is None:
            continue
        if not numbers_the_rows(frame[name]):
            raise DataError(f"{path}: column {place + 1} has no name ({in_words(name)}): name it, or leave it out.")
        dropped.add("a column without a name")
        frame = frame.drop(columns=name)
    return frame


def numbers_the_rows(column: pd.Series[Any]) -> bool:
    """Whether a column only counts the rows, from 0 or from 1."""
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return any(np.array_equal(numbers, np.arange(first, first + len(column))) for first in (0, 1))
