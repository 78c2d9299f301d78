"""Source files: where they come from (config/datasets.yaml), what they hold, and archives of them.

Files of a zip archive or of a folder with the same layout are read without extracting anything to disk. ``zipfile``
checks the directory, headers and checksums. Checked here is what it lets pass: names that cannot be printed,
encryption, zip bombs and wrong sizes. Every problem is a DataError.
"""

import gzip
import hashlib
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from subjectdp.errors import ConfigError, DataError, in_words, unknown
from subjectdp.io.atomic import sha256_of, write_json
from subjectdp.io.yaml_files import read_yaml
from subjectdp.places import CHECKOUT

LARGEST_FILE = 8 << 30  # bytes of an unpacked file that is read piece by piece (LEAF's JSON has 4 GB at most)
LARGEST_TEXT = 64 << 20  # bytes of a text, which is read into memory whole (the Complete Works have 5.5 MB)
_LARGEST_RATIO = 300  # unpacked to packed size; NIST's images and LEAF's JSON stay below 30
_RATIO_FROM_BYTES = 1 << 20  # smaller files may have any ratio
_HTML_STARTS = (b"<!doctype", b"<html", b"<?xml", b"<head", b"<script")
_BROKEN = (  # what zipfile and gzip raise for damaged files
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    *(ValueError, NotImplementedError, OverflowError),
)


class Readable(Protocol):
    """What readers need of a binary stream."""

    def read(self, size: int = -1, /) -> bytes: ...


class Member(NamedTuple):
    """A file of an archive: its name, with ``/`` between folders, and its unpacked size in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class Archive:
    """An open zip file, or a folder; ``members`` are sorted by name."""

    path: Path
    members: list[Member]
    packed: zipfile.ZipFile | None = None  # None: a folder

    @contextmanager
    def open(self, member: Member) -> Iterator[Readable]:
        """Open a member to be read piece by piece; reading a damaged one raises DataError."""
        name = f"{self.path}: {member.name}"
        try:
            stream = self.packed.open(member.name) if self.packed else (self.path / member.name).open("rb")
        except _BROKEN as error:
            raise DataError(f"{name} is damaged or cannot be read ({_reason(error)}).") from None
        with stream:
            yield _Checked(stream, name)

    def read(self, member: Member) -> bytes:
        """The member's bytes, of the size that the archive states."""
        with self.open(member) as stream:
            content = stream.read(member.size + 1)  # one more: a longer file is noticed, and its checksum verified
        if len(content) != member.size:
            raise DataError(f"{self.path}: {member.name} is truncated or damaged (its size differs).")
        return content


@contextmanager
def open_archive(path: Path, largest: int = LARGEST_FILE) -> Iterator[Archive]:
    """Open a zip file or a folder for the block; DataError if it is missing, empty, corrupt or unsafe.

    ``largest`` is the unpacked size in bytes that no file may exceed.
    """
    if path.is_dir():
        yield _archive(path, _list_folder(path), largest)
        return
    if not path.is_file():
        raise DataError(f"{path} does not exist: expected a zip file or a folder.")
    try:
        packed = zipfile.ZipFile(path)
    except _BROKEN as error:
        raise DataError(f"{path} is not a readable zip file ({_reason(error)}): truncated or corrupt.") from None
    with packed:
        yield _archive(path, _list_zip(path, packed), largest, packed)


def _archive(path: Path, members: list[Member], largest: int, packed: zipfile.ZipFile | None = None) -> Archive:
    if not members:
        raise DataError(f"{path} holds no file.")
    for name, size in members:
        if size > largest:
            raise DataError(f"{path}: {name} has {size} bytes, more than {largest}.")
    return Archive(path, sorted(members), packed)


def read_text_file(path: Path, largest: int = LARGEST_TEXT) -> bytes:
    """The text in a plain or gzip file, or in a zip file's one ``.txt``; DataError for another file, or a web page."""
    content = read_unpacked(path, largest)
    if content.startswith(b"PK"):
        content = _only_text(path, largest)
    if len(content) > largest:
        raise DataError(f"{path} has more than {largest} bytes: no text of this project has.")
    refuse_web_page(content[:512], path)
    if content.strip() == b"" or b"\0" in content:
        raise DataError(f"{path} holds no text: it is empty, or has zero bytes.")
    return content


def read_unpacked(path: Path, largest: int) -> bytes:
    """What a plain or gzip file holds, to the first byte beyond ``largest``; DataError if it is missing or damaged."""
    if not path.is_file():
        raise DataError(f"{path} does not exist: expected a file, plain or packed.")
    try:
        with open(path, "rb") as stream:
            packed = stream.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as stream:
            return stream.read(largest + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read or is a damaged gzip file ({_reason(error)}): get it again.") from None


def refuse_web_page(start: bytes, path: Path) -> None:
    """DataError if a file that starts like this is a web page (an error page, a login form)."""
    if start.lstrip(b"\xef\xbb\xbf \r\n\t").lower().startswith(_HTML_STARTS):
        raise DataError(f"{path}: a web page came instead of the file (an error page, or a login is needed)")


def find_text(folder: Path, names: Iterable[str]) -> Path:
    """A folder's text: by name (plain, ``.gz``, ``.zip``), else its only .txt or .txt.gz, or .zip; DataError."""
    for name in names:
        for packing in ("", ".gz", ".zip"):
            if (folder / f"{name}{packing}").is_file():
                return folder / f"{name}{packing}"
    found: list[Path] = []
    for endings in ((".txt", ".txt.gz"), (".zip",)):
        found = found or sorted(file for file in folder.iterdir() if file.name.endswith(endings))
    if len(found) != 1:
        raise DataError(f"{folder}: expected one text (100.txt, .txt.gz or .zip), found {len(found)} candidates.")
    return found[0]


def _only_text(path: Path, largest: int) -> bytes:
    with open_archive(path) as archive:
        texts = [member for member in archive.members if member.name.lower().endswith(".txt")]
        if len(texts) != 1:
            raise DataError(f"{path}: expected one .txt file in the archive, found {len(texts)}.")
        with archive.open(texts[0]) as stream:
            return stream.read(largest + 1)


class _Checked:
    """A stream whose errors name the file."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream, self._name = stream, name

    def read(self, size: int = -1, /) -> bytes:
        try:
            return self._stream.read(size)
        except _BROKEN as error:
            raise DataError(f"{self._name} is truncated or damaged ({_reason(error)}).") from None


def _reason(error: Exception) -> str:
    """The error's text on one short line; zipfile may quote 64 kB of a damaged header."""
    text = str(error) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}..."


def _list_zip(path: Path, packed: zipfile.ZipFile) -> list[Member]:
    infos = packed.infolist()
    for info in infos:
        if (problem := _problem(info)) is not None:
            raise DataError(f"{path}: entry {in_words(info.filename)} {problem}.")
    if len(set(packed.namelist())) != len(infos):
        raise DataError(f"{path} lists the same name twice.")
    return [Member(info.filename, info.file_size) for info in infos if not info.is_dir()]


def _problem(info: zipfile.ZipInfo) -> str | None:
    if not info.filename.isprintable() or len(info.filename) > 1024:
        return "has a name that is too long or cannot be printed"
    if info.flag_bits & 0x1:
        return "is encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"is packed by method {info.compress_type} (stored and deflated are read)"  # others unpack unbounded
    if info.file_size > max(_RATIO_FROM_BYTES, _LARGEST_RATIO * info.compress_size):
        return f"unpacks to {info.file_size} bytes from {info.compress_size}: refused as a zip bomb"
    return None


def _list_folder(path: Path) -> list[Member]:
    members = []
    for root, folders, names in os.walk(path, onerror=_refuse):
        linked = [name for name in folders if Path(root, name).is_symlink()]
        for file in (Path(root, name) for name in (*linked, *names)):
            if not file.is_file() or not file.name.isprintable():
                kinds = "devices, links to folders and names that cannot be printed are refused"
                raise DataError(f"{in_words(str(file))} is not a plain file in {path}: {kinds}.")
            members.append(Member(file.relative_to(path).as_posix(), file.stat().st_size))
    return members


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename} cannot be read ({error.strerror}).") from None


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
    content = read_yaml(table)
    if dataset not in content:
        raise unknown(f"{table}: data set", dataset, content)
    try:
        found = DatasetSources.model_validate(content[dataset])
    except ValidationError as problem:
        first = problem.errors()[0]
        key = ".".join([dataset, *map(str, first["loc"])])
        raise ConfigError(f"{table}: {key}: {first['msg']}, got {first['input']!r}.") from None
    files = tuple(file.model_copy(update={"name": name}) for name, file in found.files.items())
    return found.license.strip(), files


HASHES = "local_files.json"
"""Name of the file with known hashes, beside the data folders: hashing LEAF's JSON takes seconds a gigabyte, and
Snakemake asks in every process. A file whose size and times are the same is not read again: an edit may set the time of
its content back, and none that of the file itself."""


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
    """Size, both times and sha256 by absolute path; none where the file is missing or damaged: they save time."""
    try:
        content = {} if known is None else json.loads(known.read_text(encoding="utf-8"))
        return {str(path): list(facts) for path, facts in content.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _sha256(file: Path, hashes: dict[str, list[Any]]) -> str:
    key, status = str(file.resolve()), file.stat()
    now = [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    if hashes.get(key, [])[:3] != now or len(hashes[key]) != 4:
        hashes[key] = [*now, sha256_of(file)]
    return str(hashes[key][3])
