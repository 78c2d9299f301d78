"""Names of people and plays in a source: safe in tables, logs and messages, and distinct.

One rule for whoever names people: the engine, counts and tables (:func:`person`). One person under two names would be
two subjects, and the guarantee would not be that of the person. A name never becomes part of a path, and may hold a
slash.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Set, Sized
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

from subjectdp.errors import DataError, expected, in_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LONGEST_NAME = 200  # characters
MISSING = frozenset(
    ("", "na", "n/a", "n.a.", "#n/a", "#n/a n/a", "#na", "nan", "-nan", "null", "(null)", "none", "<na>", "nat", "nil")
    + ("?", ".", "\\n", "#null!", "#value!", "#ref!", "#div/0!", "#num!", "#name?")
    + ("1.#qnan", "-1.#qnan", "1.#ind", "-1.#ind")
)
"""Texts that stand for a missing value, whatever their case: what R, pandas, spreadsheets, databases (MySQL: \\N), SAS
and Stata (a point), UCI's tables (?) and old C libraries write."""

_LARGEST_FLOAT = 2.0**53  # from here on neighbours have one float
# Spreadsheets write long numbers as 1.23457E+11 or 1E+11, whatever the digits left out. R writes 100000 as 1e+05.
_SHORTENED = re.compile(r"[+-]?\d(?:\.(\d+))?E\+(\d+)", re.IGNORECASE)
_LARGEST_OF_R = 15  # digits, and so the exponent up to which R's 1e+05 has lost none
# What pandas makes of whole numbers where one is missing, "7.0", and text of the same number, "007".
_WHOLE = re.compile(r"([+-]?)0*(\d+?)(?:\.0+)?", re.ASCII)
WHOLE_BY_COMMA = re.compile(r"\s*([+-]?\d+),(?!000\s*$)0+\s*", re.ASCII)
"""7,0 and 7,00 in countries with decimal commas; 7,000 may be seven thousand."""
_COMMAS_OF_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+", re.ASCII)


def check_name(name: str, kind: str, where: str) -> None:
    """DataError, with ``kind`` and ``where``, unless ``name`` is short, visible and printable."""
    if not (0 < len(name) <= LONGEST_NAME and name.isprintable() and name.strip()):
        raise DataError(f"{where}: expected {kind} of 1 to {LONGEST_NAME} printable characters, got {in_words(name)}.")


def check_distinct(names: Iterable[str], kind: str, where: str) -> None:
    """DataError if a name is there twice, or two are one for :func:`person`."""
    seen: dict[str, str] = {}
    for name in names:
        look = _plain(_composed(name))
        if look in seen and seen[look] == name:
            raise DataError(f"{where}: {kind} are not unique, {in_words(name)} is there twice.")
        if look in seen:
            raise DataError(f"{where}: {kind} {in_words(seen[look])} and {in_words(name)} cannot be told apart.")
        seen[look] = name


def check_spelling(names: Iterable[str], where: str, kind: str = "subject") -> None:
    """DataError if two names differ in capitals or a number's commas alone: nobody can tell whether Ann and ann, 1,001
    and 1001 are one person."""
    seen: dict[str, str] = {}
    for name in names:
        look = _composed(name).casefold()
        if "," in look:
            look = _without_commas(look)
        if (other := seen.setdefault(look, name)) != name:
            by = "capitals" if _composed(other).casefold() == _composed(name).casefold() else "commas"
            raise DataError(
                f"{where}: {kind}s {in_words(other)} and {in_words(name)} differ in {by} alone: spell the name of "
                f"one {kind} alike, or give two of them names that differ in more."
            )


def _without_commas(name: str) -> str:
    """The number that a name may be, such as 1001 for 1,001 and 1 for 1,0; other names as they are."""
    if _COMMAS_OF_THOUSANDS.fullmatch(name):
        return name.replace(",", "")
    whole = WHOLE_BY_COMMA.fullmatch(name)
    return name if whole is None else _plain(whole[1])


def person(value: Any, kind: str = "a subject's name", where: str = "subjects") -> str:
    """The name that a value stands for: that of a subject, a silo or a class.

    Equal whole numbers have one name, whatever their type (1, 1.0, "1.0", "1e+00", "001", a tensor); text is composed
    (Unicode NFKC) and stripped; the parts of a tuple are named one by one. DataError for a missing value (None, NaN,
    pd.NA, NaT, or one of :data:`MISSING`), a number that has lost digits, characters that cannot be seen, or a value
    that names nothing, such as a list.
    """
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of NumPy or torch
        value = value.item()
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_FLOAT:
        value = int(value)
    if isinstance(value, Decimal) and value.is_finite():
        value = format(value.normalize(), "f")
    if isinstance(value, tuple) and value:
        return ", ".join(person(part, kind, where) for part in value)
    if isinstance(value, bytes):
        value = value.decode(errors="surrogateescape")  # which no name may hold
    missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    if isinstance(value, Real | Decimal):
        missing = value != value
    anonymous = f"{value!r}" == object.__repr__(value)
    if anonymous or isinstance(value, list | Mapping | Set) or hasattr(value, "__array__"):
        raise DataError(f"{where}: expected {kind} as text or a number, got {in_words(value)}.")
    name = _composed(str(value))
    if missing or name.casefold() in MISSING:
        found = f"{in_words(value)}, a missing value" if str(value).strip() else "nothing"
        raise DataError(f"{where}: expected {kind}, got {found}: leave such rows out, or name them.")
    short = _SHORTENED.fullmatch(name)
    if (isinstance(value, float) and abs(value) >= _LARGEST_FLOAT) or (short and _lost_digits(short)):
        raise DataError(f"{where}: expected {kind} with all of its digits, got {name}: write numbers as text.")
    name = format(Decimal(name), "f") if short else name  # 5.0e+01 is 50
    if not name.isprintable():
        raise DataError(f"{where}: expected {kind} of printable characters, got {in_words(name)}.")
    return _plain(name)


def _lost_digits(short: re.Match[str]) -> bool:
    if short[1] is None and "e" in short[0]:
        return int(short[2]) > _LARGEST_OF_R
    return len(short[1] or "") < int(short[2])


def _composed(name: str) -> str:
    return unicodedata.normalize("NFKC", name).strip()


def _plain(name: str) -> str:
    whole = _WHOLE.fullmatch(name)
    if whole is None:
        return name
    return whole[2] if whole[1] != "-" or whole[2] == "0" else f"-{whole[2]}"


def numbered(subjects: Any, items: int, kind: str = "subject") -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """(items,) the subjects of items as numbers from 0 on, in order of appearance, and their names.

    ``subjects``: one an item, by position: a list, an array, a Series, a tensor. ``kind``: what they are, for messages.
    ConfigError for another number of subjects than ``items``, or no sequence of them, DataError for a subject that is
    missing, that names nobody (:func:`person`), or is spelled in two ways.
    """
    import numpy as np  # here: the Snakefile reads names, too

    listed = isinstance(subjects, Sized) and not isinstance(subjects, str | bytes | Mapping | Set)
    if not listed or getattr(subjects, "ndim", 1) != 1:
        raise expected(f"{kind}s", type(subjects).__name__, f"a list with the {kind} of each item, by position")
    if len(subjects) != items:
        raise expected(f"{kind}s", len(subjects), f"one for each of the {items} items")
    plain = subjects.tolist() if hasattr(subjects, "tolist") else subjects
    names: dict[str, int] = {}
    known: dict[Any, int] = {}
    numbers = []
    for item, subject in enumerate(plain):
        try:
            number = known.get((type(subject), subject))
        except TypeError:  # not to be hashed; person says what is wrong
            number = None
        if number is None:
            number = names.setdefault(person(subject, f"a {kind}'s name", f"{kind}s, item {item}"), len(names))
            known[type(subject), subject] = number
        numbers.append(number)
    check_spelling(names, f"{kind}s", kind)
    return np.array(numbers, np.int64), tuple(names)
