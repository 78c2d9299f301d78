"""Where source files come from (config/datasets.yaml), and what a file or folder on this machine holds."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from subjectdp.data.archives import open_archive
from subjectdp.errors import ConfigError, expected, unknown
from subjectdp.io.atomic import sha256_of, write_json
from subjectdp.io.yaml_files import read_yaml
from subjectdp.places import CHECKOUT

_TABLE = Path("config") / "datasets.yaml"
_FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class _Entry(BaseModel):
    """Unknown and missing keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Mirror(_Entry):
    """One address of a file, and what it serves, where known."""

    url: Annotated[str, Field(pattern="^https?://")]
    bytes: Annotated[int, Field(ge=1)] | None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None


class SourceFile(_Entry):
    """A file of a data set: its format in the source folder, and where to get it (nowhere: ``data.path`` only)."""

    name: str = ""
    format: Literal["zip", "gzip", "binary", "text"]
    mirrors: list[Mirror]


class DatasetSources(_Entry):
    """All upstream files of a data set, and its licence note."""

    license: str
    files: Annotated[dict[_FileName, SourceFile], Field(min_length=1)]


def find_table() -> Path:
    """config/datasets.yaml of the working directory, or of the checkout that the library lies in."""
    candidates = [Path.cwd() / _TABLE, CHECKOUT / _TABLE]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ConfigError(f"{_TABLE} was found in none of {', '.join(str(c.parent.parent) for c in candidates)}.")


def load_sources(dataset: str, table: Path | None = None) -> tuple[str, tuple[SourceFile, ...]]:
    """Licence note and files of ``dataset``; ConfigError naming key and value for anything wrong in the table."""
    table = find_table() if table is None else table
    content: Any = read_yaml(table)
    if not isinstance(content, dict) or not content:
        raise expected(str(table), content, "a mapping with at least one entry")
    if dataset not in content:
        raise unknown(f"{table}: data set", dataset, map(str, content))
    try:
        found = TypeAdapter(DatasetSources).validate_python(content[dataset])
    except ValidationError as problem:
        first = problem.errors()[0]
        key = ".".join([dataset, *map(str, first["loc"])])
        raise ConfigError(f"{table}: {key}: {first['msg']}, got {first['input']!r}.") from None
    files = tuple(file.model_copy(update={"name": name}) for name, file in found.files.items())
    return found.license.strip(), files


HASHES = "local_files.json"
"""Name of the file with known hashes, beside the data folders: hashing LEAF's JSON takes seconds a gigabyte, and
Snakemake asks in every process. A file whose size and time of change are the same is not read again."""


def describe(path: Path, known: Path | None = None) -> dict[str, Any]:
    """Name, sha256 and bytes of a file; of a folder: the hash of its files' names, sizes and hashes, and all bytes.

    ``known`` is the file that keeps hashes between calls; None: every file is read. DataError as ``open_archive``.
    """
    hashes = _read(known)
    before = dict(hashes)
    if path.is_file():
        described = {"file": path.name, "sha256": _sha256(path, hashes), "bytes": path.stat().st_size}
    else:
        with open_archive(path) as archive:
            listing = [(name, size, _sha256(path / name, hashes)) for name, size in archive.members]
        digest = hashlib.sha256(json.dumps(listing).encode()).hexdigest()
        described = {"file": f"{path.name}/", "sha256": digest, "bytes": sum(size for _, size, _ in listing)}
    if known is not None and hashes != before:
        write_json(known, hashes)
    return described


def _read(known: Path | None) -> dict[str, list[Any]]:
    """Size, time of change and sha256 by absolute path; none where the file is missing or damaged: they save time."""
    try:
        content = {} if known is None else json.loads(known.read_text(encoding="utf-8"))
        return {str(path): list(facts) for path, facts in content.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _sha256(file: Path, hashes: dict[str, list[Any]]) -> str:
    key, status = str(file.resolve()), file.stat()
    now = [status.st_size, status.st_mtime_ns]
    if hashes.get(key, [])[:2] != now or len(hashes[key]) != 3:
        hashes[key] = [*now, sha256_of(file)]
    return str(hashes[key][2])
