"""Which of LEAF's files lie at ``data.path``, and how many items a subject of them or of a table has.

Imports nothing heavy: the sizes are asked for each time a scenario is read.
"""

import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from subjectdp.data.archives import Archive, Member, open_archive
from subjectdp.data.names import WHOLE_BY_COMMA, person
from subjectdp.errors import DataError

STAGES = (("train", "test"), ("rem_user_data",), ("sampled_data",), ("all_data",))
"""Folders of LEAF's output, the most processed first."""

FILE = "file"  # data.silo where each silo has a file of its own, whose name it has
_MOST = 1 << 26  # bytes that are read each time: of a table, of the head of a LEAF file
_CHUNK = 1 << 20
_END = b'"user_data"'  # LEAF writes the lists users and num_samples before the items


class LeafFile(NamedTuple):
    """A JSON file and its folder in LEAF's layout (``train``, ``all_data``, ...; empty if none)."""

    member: Member
    stage: str


def opened(path: Path) -> AbstractContextManager[Archive]:
    """A folder, a zip file, or a JSON file as an archive of one file."""
    if path.is_file() and path.suffix == ".json":
        return nullcontext(Archive(path.parent, [Member(path.name, path.stat().st_size)]))
    return open_archive(path)


def find_files(archive: Archive) -> list[LeafFile]:
    """The JSON files of the most processed stage, in natural order; DataError if there are none."""
    members = sorted((m for m in archive.members if _is_data(m.name)), key=lambda member: _natural(member.name))
    if not members:
        told = "expected LEAF's all_data_*.json, or its train and test files"
        raise DataError(f"{archive.path} holds no .json file: {told}.")
    files = [LeafFile(member, PurePosixPath(member.name).parent.name) for member in members]
    for stages in STAGES:
        if chosen := [file for stage in stages for file in files if file.stage == stage]:
            return chosen
    return [LeafFile(member, "") for member in members]


def _is_data(name: str) -> bool:
    base = PurePosixPath(name).name
    hidden = base.startswith("._") or "__MACOSX" in name
    return base.endswith(".json") and base != "users_and_plays.json" and not hidden


def _natural(name: str) -> list[tuple[int, str]]:
    """Numbers by value: all_data_2 before all_data_10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(int(p), "") if p.isdecimal() and p.isascii() else (-1, p) for p in parts]


def leaf_sizes(path: str) -> tuple[int, ...] | None:
    """Items of each user at ``path``; None where there is nothing to read, or the head does not tell."""
    file = Path(path)
    return _sizes_of_leaf(file, file.stat().st_mtime_ns) if file.exists() else None


@lru_cache(maxsize=8)
def _sizes_of_leaf(path: Path, changed: int) -> tuple[int, ...] | None:
    counts: Counter[str] = Counter()
    try:
        with opened(path) as archive:
            for file in find_files(archive):
                with archive.open(file.member) as stream:
                    content = b""
                    while _END not in content and len(content) < _MOST and (more := stream.read(_CHUNK)):
                        content += more
                head = json.loads(content.partition(_END)[0].decode().rstrip().rstrip(",") + "}")
                counts.update(dict(zip(head["users"], map(int, head["num_samples"]), strict=True)))
    except (DataError, ValueError, KeyError, TypeError):
        return None  # reading the whole files will say what is wrong
    return tuple(count for count in counts.values() if count > 0) or None


def table_sizes(path: str, subject: str | Sequence[str] | None) -> tuple[int, ...] | None:
    """Rows of each subject (None: each row is its own) of a table in text; None if none, large, or not to be read."""
    file, columns = Path(path), (subject,) if isinstance(subject, str) else tuple(subject or ())
    counts = _rows_by(file, columns, file.stat().st_mtime_ns) if _is_short_table(file) else None
    return None if counts is None else tuple(counts.values()) or None


def table_silos(path: str, silo: str) -> int | None:
    """How many silos the column ``silo`` (``file``: the files' names) of a table in text names; None as above."""
    place, cells = Path(path), set[str]()
    inside = [each for each in place.rglob("*") if each.is_file() and not each.name.startswith((".", "_"))]
    for file in inside if place.is_dir() else [place]:
        if not _is_short_table(file):
            return None
        counts = _rows_by(file, (silo,), file.stat().st_mtime_ns)
        if counts is None and silo != FILE:
            return None
        cells |= {silo_of_file(file)} if counts is None else {cell for (cell,) in counts}
    try:
        return len({person(WHOLE_BY_COMMA.sub(r"\1", cell)) for cell in cells}) or None
    except DataError:
        return None  # a missing one, of which reading the whole file will say the row


def silo_of_file(file: Path) -> str:
    """The name of the silo whose file this is."""
    return Path(re.sub(r"\.gz$", "", file.name, flags=re.IGNORECASE)).stem


def _is_short_table(file: Path) -> bool:
    text = file.suffix.lower() in (".csv", ".tsv", ".txt", ".gz")
    return text and file.is_file() and file.stat().st_size <= _MOST


@lru_cache(maxsize=8)
def _rows_by(path: Path, columns: tuple[str, ...], changed: int) -> Counter[tuple[str, ...]] | None:
    opened = gzip.open if path.suffix.lower() == ".gz" else open
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
    return counts


def first_row(line: str) -> tuple[list[str], str]:
    """The names in a table's first line, and what separates them: a comma, a semicolon or a tab."""
    split = {mark: next(csv.reader([line], delimiter=mark), []) for mark in ",;\t"}
    mark = max(split, key=lambda each: len(split[each]))
    return [name.strip() for name in split[mark]], mark
