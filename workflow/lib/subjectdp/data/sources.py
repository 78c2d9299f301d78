"""The table of upstream files and their mirrors (config/datasets.yaml)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subjectdp.errors import ConfigError, expected, unknown
from subjectdp.io.yaml_files import read_yaml
from subjectdp.places import CHECKOUT

FORMATS = ("zip", "gzip", "binary", "text")
_TABLE = Path("config") / "datasets.yaml"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Mirror:
    """One address of a file, and what it serves, where known."""

    url: str
    bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class SourceFile:
    """A file of a data set: its name and format in the source folder, and where to get it."""

    name: str
    format: str
    mirrors: tuple[Mirror, ...]


@dataclass(frozen=True)
class DatasetSources:
    """All upstream files of a data set, and its licence note."""

    dataset: str
    license: str
    files: tuple[SourceFile, ...]


def find_table() -> Path:
    """config/datasets.yaml of the working directory, or of the checkout that the library lies in."""
    candidates = [Path.cwd() / _TABLE, CHECKOUT / _TABLE]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ConfigError(f"{_TABLE} was found in none of {', '.join(str(c.parent.parent) for c in candidates)}.")


def load_sources(dataset: str, table: Path | None = None) -> DatasetSources:
    """The sources of ``dataset``; ConfigError naming key and value for anything wrong in the table."""
    table = find_table() if table is None else table
    sets = _mapping(read_yaml(table), str(table))
    if dataset not in sets:
        raise unknown(f"{table}: data set", dataset, map(str, sets))
    entry = _keys(sets[dataset], f"{table}: {dataset}", {"license", "files"})
    files = _mapping(entry["files"], f"{table}: {dataset}.files")
    return DatasetSources(
        dataset,
        str(entry["license"]).strip(),
        tuple(_file(str(name), value, f"{table}: {dataset}.files.{name}") for name, value in files.items()),
    )


def _file(name: str, value: Any, where: str) -> SourceFile:
    if _NAME.fullmatch(name) is None:
        raise expected(f"{where}: file name", name, "letters, digits, dot, dash and underscore")
    entry = _keys(value, where, {"format", "mirrors"})
    if entry["format"] not in FORMATS:
        raise expected(f"{where}.format", entry["format"], " or ".join(FORMATS))
    if not isinstance(entry["mirrors"], list):
        raise expected(
            f"{where}.mirrors", entry["mirrors"], "a list, empty for a file that only data.path gives"
        )
    return SourceFile(name, entry["format"], tuple(_mirror(m, f"{where}.mirrors") for m in entry["mirrors"]))


def _mirror(value: Any, where: str) -> Mirror:
    entry = _keys(value, where, {"url", "bytes", "sha256"})
    url, size, digest = entry["url"], entry["bytes"], entry["sha256"]
    if not isinstance(url, str) or not url.startswith(("https://", "http://")):
        raise expected(f"{where}.url", url, "an http or https address")
    if size is not None and (type(size) is not int or size < 1):
        raise expected(f"{where}.bytes", size, "a whole number above 0, or null")
    if digest is not None and (not isinstance(digest, str) or _SHA256.fullmatch(digest) is None):
        raise expected(f"{where}.sha256", digest, "64 hex digits, or null")
    return Mirror(url, size, digest)


def _keys(value: Any, where: str, keys: set[str]) -> dict[str, Any]:
    entry = _mapping(value, where)
    for key in entry:
        if key not in keys:
            raise unknown(f"{where}: key", str(key), keys)
    if missing := keys - entry.keys():
        raise ConfigError(f"{where} lacks {', '.join(sorted(missing))}.")
    return entry


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise expected(where, value, "a mapping with at least one entry")
    return value
