"""A table of one's own as a data set: CSV or parquet, in one file or several, with a row for each item.

One column holds the label, one or more say whose the item is, one where it lies; the others are features. Classes,
subjects, silos and the values of a feature in words are those found, and are taken as public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectdp.data.content import Content, single_items, stored_labels
from subjectdp.data.names import check_name, person
from subjectdp.data.splits import VECTOR, Integers
from subjectdp.data.table_files import FILE, numbers_the_rows, read_frame
from subjectdp.errors import DataError, in_words, unknown

MOST_CLASSES = 1000
_MOST_SILOS = 32_767
_MOST_WORDS = 100  # different values of a feature in words
_CLEARLY_CLASSES = 20  # different numbers that need no question; of whole numbers five times as many
_LARGEST_NUMBER = 3e38  # float32

Columns = str | Sequence[str] | None


@dataclass(frozen=True)
class TableOptions:
    """What a table's columns are, beside label, subject and silo.

    Attributes:
        columns: the features, where not all other columns are.
        drop: columns that are none.
        missing: cells without a value: ``"refuse"`` the table; ``"drop"`` such rows; ``"indicator"``: 0 in the feature,
            and 1 in one of its own that says so (in words: 0 in all of its columns).
        ranges: of features in numbers, and of a label in numbers: public least and largest values. The feature is
            scaled to [0, 1], values beyond are cut off.
        task: the label is a class, or a number; None: told by the label, where that is clear.
    """

    columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    missing: Literal["refuse", "drop", "indicator"] = "refuse"
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    task: Literal["classification", "regression"] | None = None


def read_table(
    path: Path, label: str, subject: Columns, silo: str | None, options: TableOptions | None = None
) -> Content:
    """The items of a table, a row each; by subject, where there are any, else in the order of the file.

    Args:
        path: ``.csv``, ``.tsv`` or ``.txt`` (UTF-8, a header; commas, semicolons or tabs), also ``.gz``; ``.parquet``;
            or a folder of such files.
        label: name of the label's column; its values are the classes, in order.
        subject: the column that says whose an item is, or several that do together, such as a site and a number there;
            None: each item is its own subject.
        silo: the column that says where an item lies; ``file``: the file's name does; None: nowhere in particular.
        options: what the other columns are.

    Raises:
        DataError: a missing or damaged file, column or cell; it names the file, the row (1 below the header) and the
            column.
    """
    options = TableOptions() if options is None else options
    owners = [subject] if isinstance(subject, str) else list(subject or ())
    frame, notes = read_frame(path, silo == FILE)
    _check_columns(path, list(frame.columns), (label, owners, silo), options)
    features = _chosen(list(frame.columns), {label, silo, *owners}, options)
    used = frame[list(dict.fromkeys([*features, label, *owners, *([] if silo is None else [silo])]))]
    frame = _without_missing(path, used, features, options, notes)
    named = _Columns(path, frame)
    classes, labels = named.label(label, options)
    order, people = np.arange(len(frame)), single_items(len(frame))
    if owners:
        names, numbers = named.names(owners, "a subject's name")
        order, people = _by_subject(names, numbers)
    silo_names, silos = named.silos(silo)
    encoded = {name: column for feature in features for name, column in named.encoded(feature, options).items()}
    if owners and silo is not None:
        at = np.bincount(pd.unique(numbers * len(silo_names) + silos) // len(silo_names))
        notes["subjects at several silos"] = int((at > 1).sum())
    return Content(
        dataset="table",
        kind=VECTOR,
        features=np.stack(list(encoded.values()), axis=1)[order],
        labels=stored_labels(labels[order], len(classes)) if classes else labels[order],
        classes=len(classes),
        silo_names=tuple(silo_names),
        silos=silos[order if silo_names else []].astype(np.int16),
        notes=notes | named.counting(features) | {"features": list(encoded), "class_names": classes},
        **people,
    )


def _chosen(names: list[str], others: set[str | None], options: TableOptions) -> list[str]:
    features = [name for name in names if name not in others and name not in options.drop]
    return [name for name in features if not options.columns or name in options.columns]


def _check_columns(
    path: Path, names: list[str], roles: tuple[str, list[str], str | None], options: TableOptions
) -> None:
    label, owners, silo = roles
    chosen = {"label": [label], "subject": owners, "silo": [] if silo is None else [silo]}
    others = {"columns": options.columns, "drop": options.drop, "ranges": options.ranges}
    for key, each in (chosen | others).items():
        for name in each:
            if name not in names:
                raise unknown(f"{path}: data.{key}", name, names, DataError)
    taken = {label, silo, *owners}
    if label in (silo, *owners) or (len(owners) == 1 and silo in owners):
        raise DataError(f"{path}: data.label, data.subject and data.silo must be different columns.")
    wrong = next((name for name in (*options.columns, *options.drop) if name in taken), None)
    if wrong is not None:
        raise DataError(f"{path}: the column {in_words(wrong)} has a part already, it is no feature to keep or drop.")
    features = _chosen(names, taken, options)
    read = {*features, label} if options.task == "regression" else set(features)
    idle = next((name for name in options.ranges if name not in read), None)
    if idle is not None:
        raise DataError(f"{path}: data.ranges names {in_words(idle)}, which is no feature, nor a label in numbers.")
    if not features:
        raise DataError(f"{path}: expected a column of features beside {', '.join(names)}.")


def _without_missing(
    path: Path, frame: pd.DataFrame, features: list[str], options: TableOptions, notes: dict[str, Any]
) -> pd.DataFrame:
    """The rows to use. Raises DataError for a missing value that no rule covers."""
    if frame.empty:
        raise DataError(f"{path} holds no row below its header.")
    missing = frame.isna()
    if options.missing == "drop":
        kept = ~missing.any(axis=1)
        notes["rows left out for a missing value"] = int((~kept).sum())
        if not kept.any():
            raise DataError(f"{path}: every row has a missing value. Leave columns out with data.drop.")
        return frame[kept]
    for name in frame.columns:
        of_feature = name in features
        if missing[name].any() and not (of_feature and options.missing == "indicator"):
            row = int(np.argmax(missing[name].to_numpy())) + 1
            remedy = "data.missing: drop leaves such rows out"
            if of_feature:
                remedy += ", data.missing: indicator gives them a feature of their own"
            raise DataError(f"{path}, row {row}, {name}: expected a value, got a missing one. {remedy}.")
    return frame


@dataclass(frozen=True)
class _Columns:
    """Reads columns; ``frame`` keeps the numbers of its rows, for messages."""

    path: Path
    frame: pd.DataFrame

    def _where(self, place: int, name: str) -> str:
        return f"{self.path}, row {int(self.frame.index[place]) + 1}, {name}"

    def label(self, name: str, options: TableOptions) -> tuple[list[str], NDArray[Any]]:
        """Classes and each item's; of a label in numbers no classes, and the numbers scaled to [0, 1], float32."""
        column = self.frame[name]
        numbers = _as_numbers(column)
        all_numbers = column.dtype != bool and bool(numbers.notna().all())
        different = numbers.nunique() if all_numbers else 0
        most = _CLEARLY_CLASSES * (5 if all_numbers and (numbers % 1 == 0).all() else 1)
        if options.task == "regression" or (options.task is None and different > most):
            where = f"{self.path}: data.task"
            if options.task is None:
                raise DataError(
                    f"{where}: expected classification or regression: the label {in_words(name)} has {different} "
                    "different numbers."
                )
            if different == 0 or name not in options.ranges:
                raise DataError(
                    f"{where}: regression needs a label in numbers and its public least and largest value, as "
                    f"data.ranges: {{{name}: [0, 100]}}."
                )
            return [], self._scaled(name, numbers, options)
        classes, labels = self.names([name], "a label")
        if {each.casefold() for each in classes} <= {"true", "false"}:
            labels = np.array([each.casefold() == "true" for each in classes], np.int64)[labels]
            classes = ["false", "true"]
        if not 2 <= len(classes) <= MOST_CLASSES:
            raise DataError(
                f"{self.path}: expected 2 to {MOST_CLASSES} classes in {in_words(name)}, got {len(classes)}."
            )
        return classes, labels

    def encoded(self, name: str, options: TableOptions) -> dict[str, NDArray[np.float32]]:
        """A feature's numbers (items,) by name: one for numbers, one for each value for words."""
        column = self.frame[name]
        missing = column.isna().to_numpy()
        if str(column.dtype).startswith(("datetime", "timedelta", "period")):
            raise DataError(f"{self.path}: the column {in_words(name)} holds dates: make numbers of them, or drop it.")
        numbers = _as_numbers(column)
        wrong = numbers.isna().to_numpy() & ~missing
        in_numbers = name in options.ranges or bool(numbers.notna().any()) or pd.api.types.is_numeric_dtype(column)
        if in_numbers or not wrong.any():
            if wrong.any():  # a mix of numbers and words is damage
                place = int(np.argmax(wrong))
                cell = in_words(column.iloc[place])
                raise DataError(f"{self._where(place, name)}: expected a number as in other rows, got {cell}.")
            scaled = self._scaled(name, numbers, options)
            if not missing.any():
                return {name: scaled}
            return {name: np.nan_to_num(scaled), f"{name} missing": missing.astype(np.float32)}
        words = np.array([person(each, "a value") if not no else "" for each, no in zip(column, missing, strict=True)])
        found = sorted(set(words[~missing].tolist()))
        if len(found) > _MOST_WORDS:
            raise DataError(
                f"{self.path}: the column {in_words(name)} has {len(found)} different texts, at most {_MOST_WORDS} "
                "become features. Leave it out with data.drop, or encode it beforehand."
            )
        return {f"{name}={each}": (words == each).astype(np.float32) for each in found}

    def _scaled(self, name: str, numbers: pd.Series[float], options: TableOptions) -> NDArray[np.float32]:
        values = numbers.to_numpy(np.float64)
        large = np.abs(values) >= _LARGEST_NUMBER
        if large.any():
            place = int(np.argmax(large))
            cell = in_words(self.frame[name].iloc[place])
            raise DataError(f"{self._where(place, name)}: expected a number, got {cell}.")
        if name in options.ranges:
            least, largest = options.ranges[name]
            values = ((values - least) / (largest - least)).clip(0.0, 1.0)
        return values.astype(np.float32)

    def silos(self, name: str | None) -> tuple[list[str], Integers]:
        """The names of the silos, and the place of each row's among them; nothing without a column."""
        found, places = ([], np.empty(0, np.int64)) if name is None else self.names([name], "a silo's name")
        if len(found) > _MOST_SILOS:
            raise DataError(f"{self.path}: expected at most {_MOST_SILOS} silos, got {len(found)}.")
        return found, places

    def counting(self, features: list[str]) -> dict[str, list[str]]:
        """A note on features that only count the rows."""
        found = [name for name in features if numbers_the_rows(self.frame[name])]
        return {"features that number the rows (data.drop?)": found} if found else {}

    def names(self, columns: list[str], kind: str) -> tuple[list[str], Integers]:
        """The names in columns, and the place of each row's among them: whole numbers by value, others by letters."""
        cells = self.frame[columns[0]] if len(columns) == 1 else pd.Series(list(zip(*self._of(columns), strict=True)))
        codes, values = pd.factorize(cells, use_na_sentinel=False)
        first = pd.Series(codes).drop_duplicates().index  # a code is the number of its value's first appearance
        found = []
        for place, value in zip(first, values, strict=True):
            where = self._where(place, ", ".join(columns))
            found.append(person(value, kind, where))
            check_name(found[-1], kind, where)
        whole = all(name.lstrip("-").isdecimal() for name in found)
        names = sorted(set(found), key=lambda name: (int(name), name) if whole else (0, name))
        places = {name: place for place, name in enumerate(names)}
        return names, np.array([places[name] for name in found], dtype=np.int64)[codes]

    def _of(self, columns: list[str]) -> list[pd.Series[Any]]:
        return [self.frame[name] for name in columns]


def _as_numbers(column: pd.Series[Any]) -> pd.Series[float]:
    """The cells as float64; NaN where one is missing or no number."""
    cells = column if pd.api.types.is_numeric_dtype(column) else column.astype(str)  # a date is no number
    numbers = pd.to_numeric(cells, errors="coerce").astype("Float64").astype(float)
    return numbers.replace([np.inf, -np.inf], np.nan)


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
