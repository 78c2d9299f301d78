"""A table of one's own as a data set: a CSV or parquet file with a row for each item.

One column holds the label, one may say whose the item is and one where it lies; every other column is a feature, a
number. The classes, the subjects and the silos are the values found, and are taken as public.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectdp.data.content import Content, single_items, stored_labels
from subjectdp.data.names import check_name, person
from subjectdp.data.splits import VECTOR, Integers
from subjectdp.errors import DataError, in_words, unknown

MOST_CLASSES = 1000
_MOST_SILOS = 32_767
_LARGEST_NUMBER = 3e38  # float32


def read_table(path: Path, label: str, subject: str | None, silo: str | None) -> Content:
    """The items of a table, a row each; by subject, where there are any, else in the order of the file.

    Args:
        path: ``.csv`` (UTF-8, commas, a header) or ``.parquet``.
        label: name of the label's column; its values are the classes, in order.
        subject: name of the column that says whose an item is; None: each item is its own subject.
        silo: name of the column that says where an item lies; None: nowhere in particular.

    Raises:
        DataError: a missing or damaged file, column or cell; it names the file, the row (1 below the header) and the
            column.
    """
    frame = _csv(path) if path.suffix == ".csv" else _parquet(path)
    _check_columns(path, list(frame.columns), {"label": label, "subject": subject, "silo": silo})
    if frame.empty:
        raise DataError(f"{path} holds no row below its header.")
    roles = {label, subject, silo}
    features = [name for name in frame.columns if name not in roles]
    classes, labels = _named(path, frame[label], "a label")
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise DataError(f"{path}: expected 2 to {MOST_CLASSES} classes in {in_words(label)}, got {len(classes)}.")
    order, owners = np.arange(len(frame)), single_items(len(frame))
    if subject is not None:
        order, owners = _by_subject(*_named(path, frame[subject], "a subject's name"))
    silo_names, silos = ([], np.empty(0, np.int64)) if silo is None else _named(path, frame[silo], "a silo's name")
    if len(silo_names) > _MOST_SILOS:
        raise DataError(f"{path}: expected at most {_MOST_SILOS} silos, got {len(silo_names)}.")
    return Content(
        dataset="table",
        kind=VECTOR,
        features=np.stack([_numbers(path, frame[name]) for name in features], axis=1)[order],
        labels=stored_labels(labels[order], len(classes)),
        classes=len(classes),
        silo_names=tuple(silo_names),
        silos=silos[order if silo_names else []].astype(np.int16),
        notes={"features": features, "class_names": classes},
        **owners,
    )


def _csv(path: Path) -> pd.DataFrame:
    """All cells as text; a blank line is no row, and what a short row lacks is empty."""
    try:
        cells = pd.read_csv(path, header=None, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ParserError, EmptyDataError and UnicodeDecodeError are ValueErrors
        raise DataError(f"{path} is not a table in UTF-8 CSV ({str(error).strip()[:200]}).") from None
    return cells[1:].set_axis(cells.iloc[0], axis=1)


def _parquet(path: Path) -> pd.DataFrame:
    if path.suffix != ".parquet":
        raise DataError(f"{path}: expected a file that ends in .csv or .parquet.")
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a parquet file ({str(error).splitlines()[0][:200]}).") from None
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def _check_columns(path: Path, names: list[str], roles: dict[str, str | None]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}: the column {in_words(twice)} is there twice.")
    chosen = {role: name for role, name in roles.items() if name is not None}
    for role, name in chosen.items():
        if name not in names:
            raise unknown(f"{path}: data.{role}", name, names, DataError)
    if len(set(chosen.values())) < len(chosen):
        raise DataError(f"{path}: data.label, data.subject and data.silo must be different columns.")
    if len(chosen) == len(names):
        raise DataError(f"{path}: expected a column of features beside {', '.join(names)}.")


def _numbers(path: Path, column: pd.Series[Any]) -> NDArray[np.float32]:
    cells = column if pd.api.types.is_numeric_dtype(column) else column.astype(str)  # a date is no number
    values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = np.flatnonzero(~(np.abs(values) < _LARGEST_NUMBER))
    if len(wrong) > 0:
        where, allowed = f"{path}, row {wrong[0] + 1}, {column.name}", "a number (encode categories beforehand)"
        raise DataError(f"{where}: expected {allowed}, got {in_words(column.iloc[wrong[0]])}.")
    return values.astype(np.float32)


def _named(path: Path, column: pd.Series[Any], kind: str) -> tuple[list[str], Integers]:
    """The names in a column, and the place of each row's among them: whole numbers by value, others by letters."""
    codes, values = pd.factorize(column, use_na_sentinel=False)
    found = []
    for code, value in enumerate(values):
        where = f"{path}, row {int(np.argmax(codes == code)) + 1}, {column.name}"
        found.append(person(value, kind, where))
        check_name(found[-1], kind, where)
    whole = all(name.lstrip("-").isdecimal() for name in found)
    names = sorted(set(found), key=lambda name: (int(name), name) if whole else (0, name))
    places = {name: place for place, name in enumerate(names)}
    return names, np.array([places[name] for name in found], dtype=np.int64)[codes]


def _by_subject(names: list[str], numbers: Integers) -> tuple[NDArray[np.intp], dict[str, Any]]:
    """The order of the items by subject, and the subjects' columns of the content."""
    counts = np.bincount(numbers).astype(np.int64)
    owners = {
        "subject_ids": names,
        "groups": [""] * len(names),
        "first_items": np.cumsum(counts) - counts,
        "items": counts,
    }
    return np.argsort(numbers, kind="stable"), owners
