"""Reads and checks hand-written tables (config/targets.csv, config/goals.csv).

Every mistake is a ConfigError that names the file, the row, the column, the value and what is allowed.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.errors import ConfigError, expected, unknown


def read_rows(path: Path, what: str, columns: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """The rows of a CSV with exactly ``columns``, each with its name for error messages.

    Raises ConfigError for a missing file (``what`` it should be), other columns, a row with too few or too many values,
    and a repeated value of the first column (the id).
    """
    if not path.is_file():
        raise expected(what, str(path), "an existing file", ConfigError)
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:  # spreadsheets write a byte-order mark
            reader = csv.DictReader(stream)
            names, content = list(reader.fieldnames or ()), list(reader)
    except (UnicodeDecodeError, csv.Error) as problem:
        raise expected(str(path), str(problem), "a CSV in UTF-8", ConfigError) from problem
    if names != list(columns):
        raise expected(f"columns of {path.name}", names, f"exactly {', '.join(columns)}", ConfigError)
    rows = [(f"{path.name}, row {number}", row) for number, row in enumerate(content, 2)]
    for where, row in rows:
        if None in row.values() or None in row:
            raise expected(
                where, dict(row), f"a value, or nothing, for each of {len(columns)} columns", ConfigError
            )
    ids = [row[columns[0]] for _, row in rows]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise expected(f"{columns[0]}s of {path.name}", twice, "each once", ConfigError)
    return rows


def needed(row: Mapping[str, str], name: str, where: str) -> str:
    """The text of a column; ConfigError if it is empty."""
    if not row[name].strip():
        raise expected(f"{where}, {name}", row[name], "some text", ConfigError)
    return row[name]


def one_of(value: str, allowed: Iterable[str], where: str) -> str:
    """``value`` if it is allowed; else ConfigError with the nearest allowed one."""
    allowed = list(allowed)
    if value not in allowed:
        raise unknown(where, value, [name or "nothing" for name in allowed])
    return value


def known_algorithm(text: str, where: str) -> str:
    """``name``, ``name:variant`` or nothing, as given; ConfigError for an unknown algorithm."""
    if not text:
        return ""
    name, _, variant = text.partition(":")
    if name not in ALGORITHMS:
        raise unknown(f"{where}, algorithm", name, ALGORITHMS)
    algorithm(name, variant or None)
    return text


def number(text: str, where: str) -> float:
    """A number, NaN for an empty text; ConfigError for anything else."""
    try:
        return float(text) if text else math.nan
    except ValueError as problem:
        raise expected(where, text, "a number, or nothing", ConfigError) from problem


def positive(text: str, where: str) -> float | None:
    """A finite number above 0, None for an empty text; ConfigError for anything else."""
    value = number(text, where)
    if value <= 0 or math.isinf(value):
        raise expected(where, text, "a finite number above 0, or nothing", ConfigError)
    return None if math.isnan(value) else value


def whole_number(text: str, where: str) -> int | None:
    """A whole number of at least 1, None for an empty text; ConfigError for anything else."""
    if text and not (text.isdigit() and int(text) > 0):
        raise expected(where, text, "a whole number of at least 1, or nothing", ConfigError)
    return int(text) if text else None
