"""A table of one's own as a data set: CSV as programs and countries write it, or parquet, with a row for each item.

One column holds the label, one or more say whose the item is, one where it lies; the others are features. Classes,
subjects, silos and the values of a feature in words are those found, and are taken as public.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectdp.data.content import VECTOR, Content, Integers, single_items, stored_labels, subjects_in_order
from subjectdp.data.names import MISSING, WHOLE_BY_COMMA, check_name, check_spelling, person
from subjectdp.data.sizes import FILE, first_row, silo_of_file
from subjectdp.errors import DataError, expected, in_words, unknown

if TYPE_CHECKING:
    from subjectdp.config.sections import DataConfig

MOST_CLASSES = 1000
_MOST_SILOS = 32_767
_MOST_WORDS = 100  # different values of a feature in words
_CLEARLY_CLASSES = 20  # different numbers that need no question; of whole numbers five times as many
_LARGEST_NUMBER = 3e38  # float32

_TEXT = (".csv", ".tsv", ".txt")
_COMMAS_OF_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_DECIMAL_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)?(,\d+)?([eE][+-]?\d+)?")
_POINTS_OF_THOUSANDS, _POINT = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+"), re.compile(r".*\d\.\d.*")
# 1,234.5, $12, 12 %, 1'200, (7), 2020-01-31, 31.01.20 09:00, 12:30: no words, but nobody can tell how they are meant.
_FORMATTED = re.compile(
    r"[-+(]*[$€£¥]?\s*[-+]?\d[\d.,'’\s]*[%‰$€£¥)]?|\d{1,2}:\d{2}(:[\d.]+)?|"
    r"(\d{4}([-/.])\d{1,2}\3\d{1,2}|\d{1,2}([-/.])\d{1,2}\4\d{2,4})([T ].*)?"
)
_NAMELESS = re.compile(r"Unnamed: \d+|__index_level_\d+__|")


def read_table(path: Path, data: DataConfig, least_classes: int = 2) -> Content:
    """The items of a table, a row each; by subject, where there are any, else in the order of the file.

    DataError for a missing or damaged file, column or cell names the file, the row (1 below the header) and the column.

    Args:
        path: ``.csv``, ``.tsv`` or ``.txt`` (UTF-8, a header; commas, semicolons or tabs), also ``.gz``; ``.parquet``;
            or a folder of such files.
        data: what the columns are; the values of its ``label`` are the classes, in order.
        least_classes: 1 for one silo of several, which may lack some.
    """
    if data.label is None:
        raise expected("data.label", None, "the name of a column, for data.source table", DataError)
    label, subject, silo = data.label, data.subject, data.silo
    owners = [subject] if isinstance(subject, str) else list(subject or ())
    frame, notes = read_frame(path, silo == FILE, {*owners, silo, *data.drop})
    roles = {"label": [label], "subject": owners, "silo": [] if silo is None else [silo]}
    features = _features(path, list(frame.columns), roles, data)
    used = frame[list(dict.fromkeys([*features, *sum(roles.values(), [])]))]
    frame = _without_missing(path, used, features, data, notes)
    named = _Columns(path, frame, data)
    classes, labels = named.label(label, least_classes)
    order, people = _people(named, owners, silo, notes)
    encoded = {name: column for feature in features for name, column in named.encoded(feature).items()}
    if counters := [name for name in features if numbers_the_rows(frame[name])]:
        notes["features that number the rows (data.drop?)"] = counters
    features_in_order = np.stack(list(encoded.values()), axis=1)[order]
    labels = stored_labels(labels[order], len(classes)) if classes else labels[order]
    notes |= {"features": list(encoded), "class_names": classes}
    return Content("table", VECTOR, features_in_order, labels, classes=len(classes), notes=notes, **people)


def _features(path: Path, names: list[str], roles: dict[str, list[str]], data: DataConfig) -> list[str]:
    """The columns that are features; DataError where roles and keys do not fit the columns or one another."""
    chosen = roles | {"columns": data.columns, "drop": data.drop, "ranges": data.ranges}
    for key, each in chosen.items():
        for name in each:
            if name not in names:
                raise unknown(f"{path}: data.{key}", name, names, DataError)
    label, owners, silo = roles["label"], roles["subject"], roles["silo"]
    if label[0] in (*silo, *owners) or (len(owners) == 1 and owners == silo):
        raise DataError(f"{path}: data.label, data.subject and data.silo must be different columns.")
    taken = {*label, *owners, *silo}
    if (wrong := next((name for name in (*data.columns, *data.drop) if name in taken), None)) is not None:
        raise DataError(f"{path}: the column {in_words(wrong)} has a part already, it is no feature to keep or drop.")
    left = [name for name in names if name not in taken and name not in data.drop]
    features = [name for name in left if not data.columns or name in data.columns]
    read = [*features, *(label if data.task == "regression" else [])]
    if idle := [name for name in data.ranges if name not in read]:
        raise DataError(f"{path}: data.ranges names {in_words(idle[0])}, which is no feature, nor a label in numbers.")
    if not features:
        raise DataError(f"{path}: expected a column of features beside {', '.join(names)}.")
    return features


def _without_missing(
    path: Path, frame: pd.DataFrame, features: list[str], data: DataConfig, notes: dict[str, Any]
) -> pd.DataFrame:
    """The rows to use. Raises DataError for a missing value that no rule covers."""
    missing = frame.isna()
    if data.missing == "drop":
        kept = ~missing.any(axis=1)
        notes["rows left out for a missing value"] = int((~kept).sum())
        if not kept.any():
            raise DataError(f"{path}: every row has a missing value. Leave columns out with data.drop.")
        return frame[kept]
    for name in frame.columns:
        of_feature = name in features
        if missing[name].any() and not (of_feature and data.missing == "indicator"):
            row = int(np.argmax(missing[name].to_numpy())) + 1
            remedy = "data.missing: drop leaves such rows out"
            if of_feature:
                remedy += ", data.missing: indicator gives them a feature of their own"
            found = "an empty cell, NA, ? or their like"
            raise DataError(f"{path}, row {row}, {name}: expected a value, got {found}. {remedy}.")
    return frame


@dataclass(frozen=True)
class _Columns:
    """Reads columns; ``frame`` keeps the numbers of its rows, for messages."""

    path: Path
    frame: pd.DataFrame
    data: DataConfig

    def _where(self, place: int, name: str) -> str:
        return f"{self.path}, row {int(self.frame.index[place]) + 1}, {name}"

    def label(self, name: str, least_classes: int) -> tuple[list[str], NDArray[Any]]:
        """Classes and each item's; of a label in numbers no classes, and the numbers scaled to [0, 1], float32."""
        column, data = self.frame[name], self.data
        numbers = numbers_of(column)
        all_numbers = column.dtype != bool and bool(numbers.notna().all())
        different = numbers.nunique() if all_numbers else 0
        most = _CLEARLY_CLASSES * (5 if all_numbers and (numbers % 1 == 0).all() else 1)
        if data.task == "regression" or (data.task is None and different > most):
            where = f"{self.path}: data.task"
            if data.task is None:
                raise DataError(
                    f"{where}: expected classification or regression: the label {in_words(name)} has {different} "
                    "different numbers."
                )
            if different == 0 or name not in data.ranges:
                raise DataError(
                    f"{where}: regression needs a label in numbers and its public least and largest value, as "
                    f"data.ranges: {{{name}: [0, 100]}}."
                )
            return [], self._scaled(name, numbers)
        classes, labels = self.names([name], "a label")
        if not all_numbers:
            self._check_words(name, classes)
        if {each.casefold() for each in classes} <= {"true", "false"}:
            labels = np.array([each.casefold() == "true" for each in classes], np.int64)[labels]
            classes = ["false", "true"]
        if any(len(each) > 1 for each in classes):  # a and A are two letters
            check_spelling(classes, str(self.path), "label")
        if not least_classes <= len(classes) <= MOST_CLASSES:
            allowed = f"{least_classes} to {MOST_CLASSES} classes in {in_words(name)}"
            raise DataError(f"{self.path}: expected {allowed}, got {len(classes)}.")
        return classes, labels

    def encoded(self, name: str) -> dict[str, NDArray[np.float32]]:
        """A feature's numbers (items,) by name: one for numbers, one for each value for words."""
        column = self.frame[name]
        missing = column.isna().to_numpy()
        if str(column.dtype).startswith(("datetime", "timedelta", "period")):
            raise DataError(f"{self.path}: the column {in_words(name)} holds dates: make numbers of them, or drop it.")
        numbers = numbers_of(column)
        wrong = numbers.isna().to_numpy() & ~missing
        in_numbers = name in self.data.ranges or bool(numbers.notna().any()) or pd.api.types.is_numeric_dtype(column)
        if in_numbers or not wrong.any():
            if wrong.any():  # a mix of numbers and words is damage
                place = int(np.argmax(wrong))
                cell = in_words(column.iloc[place])
                raise DataError(f"{self._where(place, name)}: expected a number as in other rows, got {cell}.")
            scaled = self._scaled(name, numbers)
            if not missing.any():
                return {name: scaled}
            return {name: np.nan_to_num(scaled), f"{name} missing": missing.astype(np.float32)}
        given = _Columns(self.path, self.frame.loc[~missing, [name]], self.data)
        found, words = given.names([name], "a value")
        self._check_words(name, found)
        if len(found) > _MOST_WORDS:
            raise DataError(
                f"{self.path}: the column {in_words(name)} has {len(found)} different texts, at most {_MOST_WORDS} "
                "become features. Leave it out with data.drop, or encode it beforehand."
            )
        places = np.full(len(column), -1)
        places[~missing] = words
        return {f"{name}={each}": (places == place).astype(np.float32) for place, each in enumerate(found)}

    def _check_words(self, name: str, found: list[str]) -> None:
        for word in found:
            if _FORMATTED.fullmatch(word) and not word.replace(".", "", 1).strip("+-").isdecimal():
                raise DataError(
                    f"{self.path}: the column {in_words(name)} holds formatted numbers or dates ({word}): make plain "
                    "numbers of them, put a letter before what is a word, or leave the column out (data.drop)."
                )

    def _scaled(self, name: str, numbers: pd.Series[float]) -> NDArray[np.float32]:
        values = numbers.to_numpy(np.float64)
        large = np.abs(values) >= _LARGEST_NUMBER
        if large.any():
            place = int(np.argmax(large))
            cell = in_words(self.frame[name].iloc[place])
            raise DataError(f"{self._where(place, name)}: expected a number below {_LARGEST_NUMBER:g}, got {cell}.")
        if name in self.data.ranges:
            least, largest = self.data.ranges[name]
            values = ((values - least) / (largest - least)).clip(0.0, 1.0)
        return values.astype(np.float32)

    def names(self, columns: list[str], kind: str) -> tuple[list[str], Integers]:
        """The names in columns, and the place of each row's among them: whole numbers by value, others by letters."""
        parts = [self.frame[name] for name in columns]
        cells = parts[0] if len(parts) == 1 else pd.Series(list(zip(*parts, strict=True)))
        try:
            codes, values = pd.factorize(cells, use_na_sentinel=False)
        except TypeError:  # of a list
            where = f"{self.path}, {', '.join(columns)}"
            raise DataError(f"{where}: expected {kind} as text or a number, got lists or structures.") from None
        first = pd.Series(codes).drop_duplicates().index  # a code is the number of its value's first appearance
        found = []
        for place, value in zip(first, values, strict=True):
            where = self._where(place, ", ".join(columns))
            found.append(person(value, kind, where))
            if kind != "a value":
                check_name(found[-1], kind, where)
        whole = all(name.lstrip("-").isdecimal() for name in found)
        names = sorted(set(found), key=lambda name: (int(name), name) if whole else (0, name))
        places = {name: place for place, name in enumerate(names)}
        return names, np.array([places[name] for name in found], dtype=np.int64)[codes]


def _people(
    table: _Columns, owners: list[str], silo: str | None, notes: dict[str, Any]
) -> tuple[Integers, dict[str, Any]]:
    """The order of the items by subject, and the content's columns that say whose they are and where they lie."""
    order, columns = np.arange(len(table.frame)), single_items(len(table.frame))
    if owners:
        names, subjects = table.names(owners, "a subject's name")
        order, columns = np.argsort(subjects, kind="stable"), subjects_in_order(names, np.bincount(subjects))
    if silo is None:
        return order, columns
    silo_names, silos = table.names([silo], "a silo's name")
    if len(silo_names) > _MOST_SILOS:
        raise DataError(f"{table.path}: expected at most {_MOST_SILOS} silos, got {len(silo_names)}.")
    if owners:
        at = np.bincount(pd.unique(subjects * len(silo_names) + silos) // len(silo_names))
        notes["subjects at several silos"] = int((at > 1).sum())
    return order, columns | {"silo_names": tuple(silo_names), "silos": silos[order].astype(np.int16)}


def numbers_of(column: pd.Series[Any]) -> pd.Series[float]:
    """The cells as float64; NaN where one is missing or no number, as a date."""
    cells, places = column, np.arange(len(column))
    if not pd.api.types.is_numeric_dtype(column):  # of texts, which are read slowly, each once
        places, texts = pd.factorize(column.astype(str), use_na_sentinel=False)
        cells = pd.Series(texts)
    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return pd.Series(np.where(np.isfinite(numbers), numbers, np.nan)[places], column.index)


# --- files ----------------------------------------------------------------------------------------------


def read_frame(
    path: Path, silo_by_file: bool = False, named: Set[str | None] = frozenset()
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The rows of a table, numbered from 0 on, missing cells as None or NaN; and notes on what was left out.

    ``path``: a file, or a folder of files with the same columns (of parquet with partitions in the folders' names).
    ``silo_by_file``: a column :data:`FILE` says in which file a row is, unless there is one of that name. ``named``:
    columns that hold names, such as 1.001, or are not read; of their decimal commas the whole numbers alone are read,
    7,0 as 7. DataError for no table, or one that cannot be read.
    """
    files = _files(path)
    dropped: set[str] = set()
    parts, silos, commas = [], list[str](), False
    for file in files:
        part, comma = (_parquet(file), True) if _ending(file) == ".parquet" else _csv(file)
        commas |= comma
        for name in () if comma else part.columns.intersection([name for name in named if name is not None]):
            part[name] = part[name].str.replace(f"^{WHOLE_BY_COMMA.pattern}$", r"\1", regex=True)
        for level in file.relative_to(path).parts[:-1] if path.is_dir() else ():
            key, equals, value = level.partition("=")
            if equals and key not in part.columns:
                part[key] = None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)  # as its writers name it
        if silo_by_file and FILE not in part.columns:
            part[FILE] = silo_of_file(file)
            silos.append(person(part[FILE].iloc[0], "a silo", str(file)) if len(part) else file.name)
        parts.append(_without_row_numbers(file, part, dropped))
    if len(set(silos)) < len(silos):
        raise DataError(f"{path}: two files have the name of one silo (data.silo: {FILE}): name each by its silo.")
    names = list(parts[0].columns)
    other = next((file for file, part in zip(files, parts, strict=True) if set(part.columns) != set(names)), None)
    if other is not None:
        raise DataError(f"{other} has other columns than {files[0].name}: expected {', '.join(names)}.")
    frame = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
    if frame.empty:
        raise DataError(f"{path} holds no row below its header.")
    if not commas:
        numbers = [name for name in frame.columns if name not in named]
        frame[numbers] = _with_decimal_points(path, frame[numbers])
    notes: dict[str, Any] = {} if len(files) == 1 else {"files": [file.name for file in files]}
    return frame, notes | ({"row numbers left out": sorted(dropped)} if dropped else {})


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(each for each in path.rglob("*") if each.is_file() and not each.name.startswith((".", "_")))
    else:
        found = [path]
    kinds = {_ending(each) == ".parquet" for each in found}
    good = [each for each in found if _ending(each) in (".parquet", *_TEXT)]
    if not found or len(good) < len(found) or len(kinds) > 1:
        wrong = next((each for each in found if each not in good), path)
        raise DataError(f"{wrong}: expected files that end in .parquet, or in .csv, .tsv or .txt, with or without .gz.")
    if not path.exists():
        raise DataError(f"Cannot read {path}: there is no such file or folder.")
    return good


def _ending(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _csv(path: Path) -> tuple[pd.DataFrame, bool]:
    """Cells as text, missing ones (and a short row's rest) as None, without blank lines; whether commas part them."""
    try:
        opened = gzip.open if path.suffix.lower() == ".gz" else open
        with opened(path, "rt", encoding="utf-8-sig") as lines:
            header = next((line for line in lines if line.strip()), "")
        mark = first_row(header)[1]
        cells = pd.read_csv(path, header=None, dtype=str, keep_default_na=False, encoding="utf-8-sig", sep=mark)
    except (OSError, EOFError, ValueError) as error:  # ParserError, EmptyDataError, UnicodeDecodeError: ValueErrors
        raise DataError(f"{path} is not a table in UTF-8 CSV ({str(error).strip()[:200]}): save it as one.") from None
    frame = cells[1:].set_axis(cells.iloc[0].str.strip(), axis=1).reset_index(drop=True)
    frame.columns.name = None
    _check_distinct(path, frame)
    return frame.apply(lambda column: column.mask(column.str.strip().str.lower().isin(MISSING), None)), mark == ","


def _with_decimal_points(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Decimal commas as points, where all of a column's cells are such numbers; DataError where it may be thousands."""
    read = pd.DataFrame({name: _cells(frame[name]) for name in frame.columns})
    changed = [name for name in read if not read[name].equals(frame[name])]
    cells = {name: frame[name].dropna().str.strip() for name in read}
    pointed = {name: each[each.str.fullmatch(_POINT)] for name, each in cells.items() if name not in changed}
    decimals = any(not each.str.fullmatch(_POINTS_OF_THOUSANDS).all() for each in pointed.values())
    commas = any(read[name].str.fullmatch(_POINT).any() for name in changed)
    for name, values in cells.items():
        mark, shape = (",", _COMMAS_OF_THOUSANDS) if name in changed else (".", _POINTS_OF_THOUSANDS)
        marked = values.str.contains(mark, regex=False)
        small = values[~marked].str.fullmatch(r"[+-]?\d{1,3}").all()
        alike = marked.any() and values[marked].str.fullmatch(shape).all()
        if alike and (name in changed or (small and (commas or not decimals))):
            words = ("commas", "points") if name in changed else ("points", "commas")
            raise DataError(
                f"{path}: the column {in_words(name)} holds thousands or decimals ({values[marked].iloc[0]}), nobody "
                f"can tell: write it without {words[0]}, or with decimal {words[1]}, or leave it out (data.drop)."
            )
    return read


def _cells(column: pd.Series[Any]) -> pd.Series[Any]:
    values = column.dropna().str.strip()
    if values.str.contains(",", regex=False).any() and values.str.fullmatch(_DECIMAL_COMMA).all():
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
        if texts.map(lambda cell: isinstance(cell, bytes)).any():
            raise DataError(f"{path}: the column {in_words(name)} holds bytes: write it as text.")
        missing = texts.astype(str).str.strip().str.casefold().isin(MISSING)
        frame[name] = texts.mask(missing | texts.isna(), None)
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
    for part in (column.head(2), column):  # the first two cells say of most that they do not
        if not any(np.array_equal(numbers_of(part), np.arange(first, first + len(part))) for first in (0, 1)):
            return False
    return True
