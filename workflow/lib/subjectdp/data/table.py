"""Anyone's table: a CSV or parquet file with a column for the label, and others for subject and silo, if there are any.

All other columns are features and must be numbers: encode categories and scale numbers beforehand, by public constants.
The classes, the subjects and the silos are the values found, and are taken as public.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from subjectdp.data.content import Content, single_items, stored_labels
from subjectdp.data.names import check_name, person
from subjectdp.data.splits import VECTOR, Integers
from subjectdp.errors import DataError, in_words, unknown

MOST_CLASSES = 1000
_MOST_SILOS = 32_767
_LARGEST_NUMBER = 3e38  # float32

Row = tuple[str, Sequence[object]]
"""Where it stands, and its cells."""


@dataclass
class _Columns:
    """The columns of a table as they are read; ``features`` one row after another."""

    features: array[float] = field(default_factory=lambda: array("f"))
    labels: list[str] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    silos: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Roles:
    """The column of the label, of the subject and of the silo (None: there is none), and those of the features."""

    label: int
    subject: int | None
    silo: int | None
    features: tuple[int, ...]
    names: tuple[str, ...]


def read_table(path: Path, label: str, subject: str | None, silo: str | None) -> Content:
    """The items of a table, a row each; by subject, where there are any, else in the order of the file.

    Args:
        path: ``.csv`` (UTF-8, commas, a header) or ``.parquet``.
        label: name of the label's column; its values are the classes, in order.
        subject: name of the column that says whose an item is; None: each item is its own subject.
        silo: name of the column that says where an item lies; None: nowhere in particular.

    Raises:
        DataError: a missing or damaged file, column or cell; it names the file and the line.
    """
    rows = _rows(path)
    where, header = next(rows, (str(path), ()))
    roles = _roles(where, [str(name) for name in header], label, subject, silo)
    columns = _Columns()
    for place, cells in rows:
        _read_row(columns, roles, place, cells)
    if not columns.labels:
        raise DataError(f"{path} holds no row below its header.")
    return _content(path, columns, roles)


def _rows(path: Path) -> Iterator[Row]:
    """The header, then every row."""
    if path.suffix == ".csv":
        yield from _csv_rows(path)
    elif path.suffix == ".parquet":
        yield from _parquet_rows(path)
    else:
        raise DataError(f"{path}: expected a file that ends in .csv or .parquet.")


def _csv_rows(path: Path) -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.reader(stream, strict=True)
        try:
            for cells in reader:
                yield f"{path}, line {reader.line_num}", cells
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{path}, line {reader.line_num + 1}: not a line of UTF-8 CSV ({error}).") from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a parquet file ({str(error).splitlines()[0][:200]}).") from None
    yield str(path), list(frame.columns)
    for number, cells in enumerate(frame.itertuples(index=False, name=None), start=1):
        yield f"{path}, row {number}", cells


def _roles(where: str, names: list[str], label: str, subject: str | None, silo: str | None) -> _Roles:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{where}: the column {in_words(twice)} is there twice.")
    chosen = {"label": label, "subject": subject, "silo": silo}
    places: dict[str, int | None] = {}
    for role, name in chosen.items():
        if name is not None and name not in names:
            raise unknown(f"{where}: data.{role}", name, names, DataError)
        places[role] = None if name is None else names.index(name)
    used = [place for place in places.values() if place is not None]
    if len(set(used)) < len(used):
        raise DataError(f"{where}: data.label, data.subject and data.silo must be different columns.")
    features = tuple(place for place in range(len(names)) if place not in used)
    if not features:
        raise DataError(f"{where}: expected a column of features beside {', '.join(names)}.")
    return _Roles(names.index(label), places["subject"], places["silo"], features, tuple(names))


def _read_row(columns: _Columns, roles: _Roles, where: str, cells: Sequence[object]) -> None:
    if len(cells) != len(roles.names):
        raise DataError(f"{where}: expected {len(roles.names)} columns, got {len(cells)}.")
    columns.features.extend(_number(cells[place], f"{where}, {roles.names[place]}") for place in roles.features)
    columns.labels.append(_name(cells[roles.label], "a label", where))
    if roles.subject is not None:
        columns.subjects.append(_name(cells[roles.subject], "a subject's name", where))
    if roles.silo is not None:
        columns.silos.append(_name(cells[roles.silo], "a silo's name", where))


def _number(cell: object, where: str) -> float:
    try:
        value = float(cell)  # type: ignore[arg-type]  # anything else is a TypeError
    except (TypeError, ValueError):
        value = float("nan")
    if not (isfinite(value) and abs(value) < _LARGEST_NUMBER):
        allowed = "a number (encode categories beforehand, one column each)"
        raise DataError(f"{where}: expected {allowed}, got {in_words(cell)}.")
    return value


def _name(cell: object, kind: str, where: str) -> str:
    name = person(cell, kind, where)
    check_name(name, kind, where)
    return name


def _content(path: Path, columns: _Columns, roles: _Roles) -> Content:
    classes = _in_order(set(columns.labels))
    if not 2 <= len(classes) <= MOST_CLASSES:
        column = roles.names[roles.label]
        raise DataError(f"{path}: expected 2 to {MOST_CLASSES} classes in {in_words(column)}, got {len(classes)}.")
    silos = _in_order(set(columns.silos))
    if len(silos) > _MOST_SILOS:
        raise DataError(f"{path}: expected at most {_MOST_SILOS} silos, got {len(silos)}.")
    order, owners = _by_subject(columns.subjects, len(columns.labels))
    return Content(
        dataset="table",
        kind=VECTOR,
        features=np.array(columns.features, dtype=np.float32).reshape(-1, len(roles.features))[order],
        labels=stored_labels(_numbers(columns.labels, classes)[order], len(classes)),
        classes=len(classes),
        silo_names=tuple(silos),
        silos=_numbers(columns.silos, silos)[order if silos else []].astype(np.int16),
        notes={
            "features": [roles.names[place] for place in roles.features],
            "class_names": classes,
        },
        **owners,
    )


def _by_subject(subjects: list[str], items: int) -> tuple[Integers, dict[str, Any]]:
    """The order of the items by subject, and the subjects' columns of the content."""
    if not subjects:
        return np.arange(items), single_items(items)
    names = _in_order(set(subjects))
    numbers = _numbers(subjects, names)
    counts = np.bincount(numbers).astype(np.int64)
    owners = {
        "subject_ids": names,
        "groups": [""] * len(names),
        "first_items": np.cumsum(counts) - counts,
        "items": counts,
    }
    return np.argsort(numbers, kind="stable"), owners


def _in_order(names: set[str]) -> list[str]:
    """Whole numbers by value, other names by letters."""
    whole = all(name.lstrip("-").isdecimal() for name in names)
    return sorted(names, key=lambda name: (int(name), name)) if whole else sorted(names)


def _numbers(values: list[str], names: list[str]) -> Integers:
    """The place of each value among the names."""
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[value] for value in values], dtype=np.int64)
