"""How many items of each subject each silo holds: the table that accounting starts from."""

from __future__ import annotations

import csv
import gzip
import io
import operator
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subjectdp.data.names import check_distinct, check_spelling, person
from subjectdp.errors import ConfigError, DataError, expected, whole_number
from subjectdp.plan.plan import FederationFacts

COLUMNS = ("subject", "silo", "items")
_LARGEST = 10**12  # items of one subject at one silo
_LONG = 10**6  # bytes of a file, rows of a table: columns are read as wholes from there on
_POINT_ZERO = re.compile(r"(?<=\d)\.(?!000\s*$)0+(?=\s*$)")  # 3.0 as pandas writes 3; 3.000 may be three thousand
_GZIP = b"\x1f\x8b"  # its first bytes
_SHOWN = 10  # problems of a table that one message names

Source = Any
"""What :func:`as_counts` reads: :class:`Counts`, the path of a CSV file, a table with the columns subject, silo and
items (a DataFrame, a dict of lists), a mapping ``{(subject, silo): items}`` or a Series with such an index
(``groupby(["subject", "silo"]).size()``), or (subject, silo, items) triples."""


@dataclass(frozen=True)
class Counts:
    """Items of each subject at each silo, without rows of 0 items. Accounting takes them as public.

    Attributes:
        subjects: names of the subjects with items, in order of appearance.
        silos: the same for silos.
        rows: (rows, 3) int64: number of a subject, number of a silo, items (at least 1); a pair occurs once.
    """

    subjects: tuple[str, ...]
    silos: tuple[str, ...]
    rows: NDArray[np.int64]

    def capped(self, most: int) -> Counts:
        """The counts after all but ``most`` items of each subject at each silo have been dropped."""
        cap, rows = min(whole_number("max_items_per_subject", most), _LARGEST), self.rows.copy()
        rows[:, 2] = np.minimum(rows[:, 2], cap)
        return Counts(self.subjects, self.silos, rows)

    def facts(self, cap: int | None) -> FederationFacts:
        """The facts that a privacy plan reads. ``cap``: enforced before training; None: maxima are those seen."""
        subject, silo, items = (self if cap is None else self.capped(cap)).rows.T
        largest, totals = np.zeros((2, len(self.silos)), np.int64)
        np.maximum.at(largest, silo, items)
        np.add.at(totals, silo, items)
        return FederationFacts(
            items=tuple(totals.tolist()),
            subjects=tuple(np.bincount(silo).tolist()),
            largest_subject=tuple(largest.tolist()),
            cap_enforced=cap is not None,
            max_items_per_subject=cap,
            silos_per_subject=int(np.bincount(subject).max()),
            total_subjects=len(self.subjects),
        )


@dataclass(frozen=True)
class SiloSizes:
    """Silos by size alone, for those who cannot pool a list of people. A cap at each silo bounds each person.

    Any person may be at all silos, or at as many as the schedule says.

    Attributes:
        silos: names.
        items: of each silo after the cap, taken as public.
        people: of each silo; None where nobody says.
        caps: of each silo, enforced before training; None where the schedule's cap is that of all. The smaller one
            holds.
    """

    silos: tuple[str, ...]
    items: tuple[int, ...]
    people: tuple[int, ...] | None = None
    caps: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for silos without a name and size of their own, or more items than its people may have,
        DataError for names that differ in capitals alone."""
        for key in ("silos", "items", "people", "caps"):
            values = getattr(self, key)
            if not (values is None and key in ("people", "caps")):
                object.__setattr__(self, key, self._checked(key, values))
        for place, silo in enumerate(self.silos):
            self._check_room(place, silo, None)

    def _checked(self, key: str, values: Any) -> tuple[Any, ...]:
        if isinstance(values, str | Mapping | Set) or not isinstance(values, Iterable):
            raise expected(f"{key} of SiloSizes", values, "a list, one value for each silo")
        each = tuple(values)
        if key == "silos":
            each = tuple(person(value, "a silo", "silos of SiloSizes") for value in each)
            if not each or len(set(each)) < len(each):
                raise expected("silos of SiloSizes", each, "different names, at least one")
            check_spelling(each, "silos of SiloSizes", "silo")
            return each
        if len(each) != len(self.silos):
            raise expected(f"{key} of SiloSizes", each, f"{len(self.silos)} numbers, one for each silo")
        return tuple(whole_number(f"{key} of silo {silo!r}", n) for silo, n in zip(self.silos, each, strict=True))

    def _check_room(self, place: int, silo: str, cap: int | None) -> None:
        caps = [each for each in (cap, None if self.caps is None else self.caps[place]) if each is not None]
        if self.people is not None and caps and self.items[place] > self.people[place] * min(caps):
            most = f"at most {self.people[place] * min(caps)}, those of {self.people[place]} people within the cap"
            raise expected(f"items of silo {silo!r} after the cap", self.items[place], most)

    def facts(self, cap: int | None) -> FederationFacts:
        """The facts that a privacy plan reads. ``cap``: of the schedule; one is needed for ε of a person."""
        for place, silo in enumerate(self.silos):
            self._check_room(place, silo, cap)
        own = self.items if self.caps is None else self.caps
        largest = tuple(min(n, k, n if cap is None else cap) for n, k in zip(self.items, own, strict=True))
        known = cap is not None or self.caps is not None
        people = self.people or tuple(-(-n // (k if known else 1)) for n, k in zip(self.items, largest, strict=True))
        total = None if self.people is None else sum(self.people)  # where nobody is at two silos
        return FederationFacts(self.items, people, largest, known, cap if self.caps is None else None, len(own), total)


def read_sizes(path: str | os.PathLike[str]) -> SiloSizes:
    """Reads a CSV file whose header names the columns silo and items, and perhaps people and cap.

    Raises:
        DataError: a file that cannot be read, or a row that is no silo; it names the line.
    """
    where = Path(path)
    try:
        reader = csv.DictReader(io.StringIO(_text_of(where), newline=""), skipinitialspace=True)
        rows, names = [(reader.line_num, row) for row in reader], reader.fieldnames or ()
    except csv.Error as problem:
        raise DataError(f"Cannot read {where}: {problem}.") from problem
    known = [name for name in ("silo", "items", "people", "cap") if rows and name in names]
    if known[:2] != ["silo", "items"] or len(known) < len(names):
        raise DataError(f"{where}, line 1: expected the columns silo and items, and perhaps people and cap.")
    found: dict[str, list[int]] = {}
    for line, row in rows:
        name, numbers = person(row["silo"], "a silo", f"{where}, line {line}"), [_whole(row[key]) for key in known[1:]]
        beyond: Any = dict(row).get(None, ())  # cells that no column has
        wrong = any(number is None or not 1 <= number <= _LARGEST for number in numbers)
        if wrong or name in found or any(map(str.strip, beyond)):
            raise DataError(f"{where}, line {line}: expected another silo, and whole numbers from 1 on.")
        found[name] = [number for number in numbers if number is not None]
    columns: dict[str, Any] = dict(zip(known[1:], zip(*found.values(), strict=True), strict=True))
    try:
        return SiloSizes(tuple(found), columns["items"], columns.get("people"), columns.get("cap"))
    except (ConfigError, DataError) as problem:
        raise DataError(f"{where}: {problem}") from problem


def read_counts(path: str | os.PathLike[str]) -> Counts:
    """Reads a CSV file (UTF-8, commas) whose header names the columns subject, silo and items, in any order.

    It may be packed with gzip. Further columns are ignored, and so are rows of 0 items.

    Raises:
        DataError: a file that cannot be read or holds no counts; it names the file and the lines.
    """
    where = Path(path)
    if where.is_file() and where.stat().st_size > _LONG and (counts := _by_columns(_clean_table(where))) is not None:
        return counts
    reader = csv.reader(io.StringIO(_text_of(where), newline=""))
    try:
        return _read_rows(where, reader)
    except csv.Error as problem:
        raise DataError(f"{where}, line {reader.line_num}: {problem}.") from problem


def _text_of(where: Path) -> str:
    try:
        raw = where.read_bytes()
        return (gzip.decompress(raw) if raw.startswith(_GZIP) else raw).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = problem.object[: problem.start].count(b"\n") + 1
        raise DataError(f"{where}, line {line}: expected text in UTF-8, plain or packed with gzip.") from problem
    except (OSError, EOFError, zlib.error) as problem:
        raise DataError(f"Cannot read {where}: {getattr(problem, 'strerror', None) or problem}.") from problem


def _read_rows(where: Path, reader: Any) -> Counts:
    header = [name.strip() for name in next(reader, [])]
    if not set(COLUMNS) <= set(header):
        found = ", ".join(header) or "nothing"
        hint = " Separate columns by commas." if len(header) == 1 and re.search("[;\t]", found) else ""
        raise DataError(f"{where}, line 1: expected the columns {', '.join(COLUMNS)}, got {found}.{hint}")
    if any(header.count(name) > 1 for name in COLUMNS):
        allowed = f"the columns {', '.join(COLUMNS)} once each"
        raise DataError(f"{where}, line 1: expected {allowed}, got {', '.join(header)}.")
    columns = operator.itemgetter(*map(header.index, COLUMNS))
    lines = ((f"{where}, line {reader.line_num}", row) for row in reader if any(map(str.strip, row)))
    return _counted(str(where), ((place, columns(row) if _fits(row, header) else None) for place, row in lines))


def _fits(row: list[str], header: list[str]) -> bool:
    """Whether a row has a cell for each column, and beyond them none but empty ones: 1,000 may be two cells."""
    return len(row) >= len(header) and not any(map(str.strip, row[len(header) :]))


def as_counts(source: Source) -> Counts | SiloSizes:
    """The counts that ``source`` stands for (:data:`Source`).

    Raises:
        DataError: what are no counts, with the row.
    """
    if isinstance(source, Counts):
        return _checked(source)
    if isinstance(source, SiloSizes):
        return source
    if isinstance(source, str | os.PathLike):
        return read_counts(source)
    if len(getattr(source, "columns", ())) and len(source) > _LONG and (counts := _by_columns(source)) is not None:
        return counts
    return _counted("counts", ((f"counts, row {number}", row) for number, row in enumerate(list(_rows_of(source)), 1)))


def _checked(counts: Counts) -> Counts:
    """Counts that may be made by hand, named as others are. Raises DataError where rows and names do not fit."""
    rows, names = counts.rows, (_names_by_hand("subject", counts.subjects), _names_by_hand("silo", counts.silos))
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "iu" or rows.ndim != 2 or rows.shape[1] != 3:
        raise expected("rows of Counts", type(rows).__name__, "a NumPy array of whole numbers, (rows, 3)", DataError)
    most = (len(names[0]) - 1, len(names[1]) - 1, _LARGEST)
    good = len(rows) and (rows >= (0, 0, 1)).all() and (rows <= most).all()
    used = [
        len(np.unique(column)) for column in (*rows.T[:2], rows[:, 0].astype(np.int64) * len(names[1]) + rows[:, 1])
    ]
    if not good or used != [*map(len, map(set, names)), len(rows)]:
        allowed = "a subject's number, a silo's and items, each name and each pair once and with items"
        raise expected("rows of Counts", rows[:3].tolist(), allowed, DataError)
    _check_spelling(*names, "Counts")
    return counts if names == (counts.subjects, counts.silos) else Counts(*names, rows)


def _names_by_hand(kind: str, values: Any) -> tuple[str, ...]:
    if isinstance(values, str | Mapping | Set) or not isinstance(values, Iterable):
        raise expected(f"{kind}s of Counts", values, "a list of names", DataError)
    given = list(values)
    names = tuple(person(value, f"a {kind}'s name", f"{kind}s of Counts") for value in given)
    check_distinct(map(str, given), f"the {kind}s", "Counts")
    return names


def _clean_table(where: Path) -> Any:
    """The three columns of a CSV file as text, a DataFrame; None where the file has anything else."""
    import pandas as pd  # here: short tables do without

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            table = pd.read_csv(where, dtype=str, na_filter=False, encoding="utf-8-sig", index_col=False)
    except (OSError, ValueError, Warning):
        return None
    table.columns = table.columns.str.strip()
    return table if sorted(table.columns) == sorted(COLUMNS) else None


def _by_columns(table: Any) -> Counts | None:
    """What :func:`_counted` makes of a DataFrame's rows, many times as fast; None where it would find a problem."""
    import pandas as pd

    if table is None or not table.columns.is_unique or not set(COLUMNS) <= set(table.columns):
        return None
    types = (pd.api.types.is_string_dtype, pd.api.types.is_integer_dtype)
    if any(table[name].hasnans or not any(fits(table[name]) for fits in types) for name in COLUMNS):
        return None
    codes, texts = pd.factorize(table["items"])
    numbers = [_whole(text) for text in texts.tolist()]
    if any(number is None or not 0 <= number <= _LARGEST for number in numbers):
        return None
    items = np.array(numbers, np.int64)[codes]
    try:
        (subject, subjects), (silo, silos) = (_numbered(table[name], items > 0) for name in COLUMNS[:2])
        _check_spelling(subjects, silos, "")
    except DataError:
        return None
    rows = np.column_stack([subject, silo, items[items > 0]])
    if not len(rows) or pd.Series(subject * len(silos) + silo).duplicated().any():
        return None
    return Counts(subjects, silos, rows)


def _numbered(column: Any, kept: NDArray[np.bool_]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The kept values of a column as numbers in order of appearance, and their names."""
    import pandas as pd

    codes, values = pd.factorize(column)
    own, names = pd.factorize(np.array([person(value) for value in values.tolist()], object))
    numbers, present = pd.factorize(own[codes[kept]])
    return numbers, tuple(names[present])


def _rows_of(source: Source) -> Iterable[Any]:
    columns = getattr(source, "columns", source if isinstance(source, Mapping) else None)
    if columns is not None and all(name in columns for name in COLUMNS):
        lists = {name: source[name] for name in COLUMNS if not isinstance(source[name], str)}
        shapes = [tuple(each.shape) if hasattr(each, "shape") else (len(each),) for each in lists.values()]
        if len(set(shapes)) != 1 or () in shapes or len(lists) < len(COLUMNS):
            raise expected("columns of the counts", shapes, "lists, equally long, one of each name", DataError)
        return zip(*(source[name] for name in COLUMNS), strict=True)
    named = [name for name in getattr(getattr(source, "index", None), "names", ()) if name is not None]
    if columns is None and named:
        if sorted(named) != ["silo", "subject"]:
            allowed = "named subject and silo, or not at all: rename_axis(['subject', 'silo'])"
            raise expected("the index of the counts", named, allowed, DataError)
        source = source.reorder_levels(["subject", "silo"])
    if isinstance(source, Mapping) or (columns is None and hasattr(source, "index") and hasattr(source, "items")):
        return ((*key, items) if isinstance(key, tuple) else None for key, items in source.items())
    if columns is not None or not isinstance(source, Iterable):
        allowed = f"a CSV file, a table with the columns {', '.join(COLUMNS)}, or triples of them"
        raise expected("counts", list(columns) if columns is not None else source, allowed, DataError)
    return source


def _counted(name: str, rows: Iterable[tuple[str, Any]]) -> Counts:
    """The counts of (place, row) pairs; a row is a triple, or None where it is none."""
    subjects: dict[str, int] = {}
    silos: dict[str, int] = {}
    found: dict[tuple[int, int], tuple[int, str]] = {}
    problems = []
    named = lru_cache(maxsize=None, typed=True)(person)  # a name stands in many rows

    def name_of(value: Any, kind: str) -> str:
        return (named if type(value) in (str, int) else person)(value, kind, "")

    for place, row in rows:
        read = _read(row, name_of)
        if isinstance(read, str):
            problems.append(f"{place}: {read}")
            continue
        subject, silo, items = read
        if items == 0:
            continue
        key = (subjects.setdefault(subject, len(subjects)), silos.setdefault(silo, len(silos)))
        if key in found:
            problems.append(f"{place}: subject {subject!r} at silo {silo!r} stands at {found[key][1]} too.")
        found[key] = (items, place)
    if problems:
        more = [f"{name}: {len(problems) - _SHOWN} more problems."] if len(problems) > _SHOWN else []
        raise DataError("\n".join([*problems[:_SHOWN], *more]))
    if not found:
        raise DataError(f"{name}: expected at least one row with items, got none.")
    _check_spelling(subjects, silos, name)
    triples = [(*key, items) for key, (items, _) in found.items()]
    return Counts(tuple(subjects), tuple(silos), np.array(triples, np.int64))


def _check_spelling(subjects: Iterable[str], silos: Iterable[str], where: str) -> None:
    check_spelling(subjects, where)
    check_spelling(silos, where, "silo")


def _read(row: Any, name_of: Callable[[Any, str], str]) -> tuple[str, str, int] | str:
    if not isinstance(row, Iterable) or isinstance(row, str | Mapping | Set) or len(values := list(row)) != 3:
        return f"expected {', '.join(COLUMNS)}, got {'too few columns, or too many' if row is None else repr(row)}."
    try:
        subject, silo = name_of(values[0], "a subject"), name_of(values[1], "a silo")
    except DataError as problem:
        return str(problem).removeprefix(": ")
    items = _whole(values[2])
    if items is None or not 0 <= items <= _LARGEST:
        return f"expected items to be a whole number from 0 on, got {values[2]!r}."
    return subject, silo, items


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return int(_POINT_ZERO.sub("", value)) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        return int(value) if isinstance(value, float) and value.is_integer() else None
