"""How many rows each subject of a table has, before it is prepared. Imports nothing heavy."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

_MOST = 1 << 26  # bytes of a file that is counted each time a scenario is read


def table_sizes(path: str, subject: str | Sequence[str] | None) -> tuple[int, ...] | None:
    """Rows of each subject of a table in text; None where it is no such file, a large one, or one that cannot be read.

    Without a subject each row is its own.
    """
    file, columns = Path(path), (subject,) if isinstance(subject, str) else tuple(subject or ())
    if not file.is_file() or file.suffix not in (".csv", ".tsv", ".txt", ".gz") or file.stat().st_size > _MOST:
        return None
    return _sizes(file, columns, file.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _sizes(path: Path, columns: tuple[str, ...], changed: int) -> tuple[int, ...] | None:
    opened = gzip.open if path.suffix == ".gz" else open
    counts: Counter[tuple[str, ...]] = Counter()
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as lines:
            header, mark = first_row(next((line for line in lines if line.strip()), ""))
            places = [header.index(name) for name in columns]
            for number, row in enumerate(csv.reader(lines, delimiter=mark)):
                if row:
                    counts[tuple(row[place] for place in places) if places else (str(number),)] += 1
    except (OSError, EOFError, ValueError, IndexError, csv.Error):
        return None  # reading the whole file will say what is wrong
    return tuple(counts.values()) or None


def first_row(line: str) -> tuple[list[str], str]:
    """The names in a table's first line, and what separates them: a comma, a semicolon or a tab."""
    split = {mark: next(csv.reader([line], delimiter=mark), []) for mark in ",;\t"}
    mark = max(split, key=lambda each: len(split[each]))
    return [name.strip() for name in split[mark]], mark
