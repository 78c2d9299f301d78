"""Reading archives that may be broken or hostile: nothing is extracted, and every oddity is a DataError.

A zip file (or a folder with the same layout) becomes a list of :class:`Member`. Members are read by position,
so that a worker process needs nothing but the archive's path and the member.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from subjectdp.errors import DataError

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_GZIP_MAGIC, _ZIP_MAGIC = b"\x1f\x8b", b"PK"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What an archive may hold at most (NIST's by_class.zip, the largest, has about 1.7 million entries)."""

    entries: int = 4_000_000
    member_bytes: int = 8 << 30
    total_bytes: int = 256 << 30
    ratio: float = 300.0  # unpacked / packed; deflate's own limit is about 1,030
    ratio_from_bytes: int = 1 << 20  # smaller members may have any ratio


DEFAULT_LIMITS = Limits()


class Member(NamedTuple):
    """A file of an archive: its name with ``/``, its unpacked size, and where its bytes lie."""

    name: str
    size: int
    packed: int  # bytes in the archive; -1: a plain file of a folder
    offset: int  # of the local header
    crc: int
    method: int


class Archive(NamedTuple):
    """A zip file or a folder, with its files sorted by name."""

    path: Path
    members: list[Member]


def open_archive(path: Path, limits: Limits = DEFAULT_LIMITS) -> Archive:
    """Lists a zip file or a folder; DataError if it is missing, empty, corrupt or unsafe."""
    if path.is_dir():
        members = _list_folder(path, limits)
    elif path.is_file():
        members = _list_zip(path, limits)
    else:
        raise DataError(f"{path} does not exist: expected a zip file or a folder.")
    if not members:
        raise DataError(f"{path} holds no file.")
    return Archive(path, sorted(members))


def read_member(archive: Path, member: Member) -> bytes:
    """The unpacked bytes of one member, its size and checksum verified."""
    if member.packed < 0:
        return (archive / member.name).read_bytes()
    with open(archive, "rb") as stream:
        return _read_packed(stream.fileno(), archive, member)


class MemberReader:
    """Reads many members of one archive with the file opened once; a context manager."""

    def __init__(self, archive: Path):
        self._archive = archive
        self._stream: IO[bytes] | None = None

    def __enter__(self) -> MemberReader:
        if self._archive.is_file():
            self._stream = open(self._archive, "rb")
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def read(self, member: Member) -> bytes:
        """As :func:`read_member`."""
        if self._stream is None:
            return read_member(self._archive, member)
        return _read_packed(self._stream.fileno(), self._archive, member)


@contextmanager
def stream_member(archive: Path, member: Member) -> Iterator[IO[bytes]]:
    """Opens one member for reading piece by piece; a damaged one raises DataError while it is read."""
    if member.packed < 0:
        with open(archive / member.name, "rb") as plain:
            yield plain
        return
    try:
        with zipfile.ZipFile(archive) as opened, opened.open(member.name) as stream:
            yield stream
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{archive}: {member.name} is damaged ({error}). Get the file again.") from None


def read_text_file(path: Path, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The text in a plain file, a gzip file, or a zip file with exactly one ``.txt``; DataError otherwise."""
    if not path.is_file():
        raise DataError(f"{path} does not exist: expected a .txt, .gz or .zip file.")
    with open(path, "rb") as stream:
        magic = stream.read(2)
    if magic == _GZIP_MAGIC:
        return _read_gzip(path, limits)
    if magic == _ZIP_MAGIC:
        members = open_archive(path, limits).members
        texts = [member for member in members if member.name.lower().endswith(".txt")]
        if len(texts) != 1:
            raise DataError(f"{path}: expected one .txt file in the archive, found {len(texts)}.")
        return read_member(path, texts[0])
    return path.read_bytes()


def find_text(folder: Path, names: Iterable[str]) -> Path:
    """The text in a folder: by name (plain, ``.gz``, ``.zip``), else its only .txt or .txt.gz, else its only .zip.

    DataError if there is none, or no telling which.
    """
    for name in names:
        for packing in ("", ".gz", ".zip"):
            if (folder / f"{name}{packing}").is_file():
                return folder / f"{name}{packing}"
    found: list[Path] = []
    for endings in ((".txt", ".txt.gz"), (".zip",)):
        found = found or sorted(file for file in folder.iterdir() if file.name.endswith(endings))
    if len(found) != 1:
        raise DataError(
            f"{folder}: expected one text (100.txt, .txt.gz or .zip), found {len(found)} candidates."
        )
    return found[0]


# --- zip ----------------------------------------------------------------------------------------------------


def _list_zip(path: Path, limits: Limits) -> list[Member]:
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, struct.error, EOFError, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{path} is not a readable zip file ({error}): truncated or corrupt.") from None
    if len(infos) > limits.entries:
        raise DataError(f"{path} has {len(infos)} entries; at most {limits.entries} are read.")
    files = [info for info in infos if not info.is_dir()]
    for info in files:
        _check_entry(path, info, limits)
    _check_totals(path, files, limits)
    return [
        Member(i.filename, i.file_size, i.compress_size, i.header_offset, i.CRC, i.compress_type)
        for i in files
    ]


def _check_entry(path: Path, info: zipfile.ZipInfo, limits: Limits) -> None:
    problem = _unsafe_name(info.filename)
    if stat.S_ISLNK(info.external_attr >> 16):
        problem = "is a symbolic link"
    elif info.flag_bits & 0x1:
        problem = "is encrypted"
    elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        problem = f"is packed by method {info.compress_type} (stored and deflated are read)"
    elif info.file_size > limits.member_bytes:
        problem = f"has {info.file_size} bytes unpacked, more than {limits.member_bytes}"
    elif info.file_size > max(limits.ratio_from_bytes, limits.ratio * info.compress_size):
        problem = f"unpacks to {info.file_size} bytes from {info.compress_size}: refused as a zip bomb"
    if problem is not None:
        raise DataError(f"{path}: entry {info.filename!r} {problem}.")


def _unsafe_name(name: str) -> str | None:
    parts = name.replace("\\", "/").split("/")
    if name == "" or parts[0] == "" or (len(parts[0]) > 1 and parts[0][1] == ":"):
        return "has an absolute or empty name"
    if ".." in parts:
        return "has a name that leaves the archive (path traversal)"
    return None


def _check_totals(path: Path, files: list[zipfile.ZipInfo], limits: Limits) -> None:
    if len({info.filename for info in files}) != len(files):
        raise DataError(f"{path} lists the same name twice.")
    if sum(info.file_size for info in files) > limits.total_bytes:
        raise DataError(f"{path} unpacks to more than {limits.total_bytes} bytes.")
    if sum(info.compress_size for info in files) > path.stat().st_size:
        raise DataError(f"{path} is smaller than its entries together: truncated, or a bomb of overlaps.")


def _read_packed(descriptor: int, archive: Path, member: Member) -> bytes:
    header = os.pread(descriptor, _LOCAL_HEADER.size, member.offset)
    if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
        raise DataError(f"{archive}: {member.name} has no local header; the archive is corrupt.")
    name_length, extra_length = _LOCAL_HEADER.unpack(header)[-2:]
    packed = os.pread(descriptor, member.packed, member.offset + len(header) + name_length + extra_length)
    content = packed
    if member.method == zipfile.ZIP_DEFLATED:
        try:
            content = zlib.decompressobj(-15).decompress(packed, member.size + 1)
        except zlib.error as error:
            raise DataError(f"{archive}: {member.name} is damaged ({error}).") from None
    if len(packed) != member.packed or len(content) != member.size or zlib.crc32(content) != member.crc:
        raise DataError(f"{archive}: {member.name} is truncated or damaged (size or checksum differ).")
    return content


# --- folders and gzip ---------------------------------------------------------------------------------------


def _list_folder(path: Path, limits: Limits) -> list[Member]:
    members: list[Member] = []
    for root, folders, names in os.walk(path):
        folders.sort()
        for name in names:
            file = Path(root, name)
            if not file.is_file():
                raise DataError(f"{file} is not a plain file.")
            members.append(Member(file.relative_to(path).as_posix(), file.stat().st_size, -1, 0, 0, 0))
        if len(members) > limits.entries:
            raise DataError(f"{path} has more than {limits.entries} files.")
    return members


def _read_gzip(path: Path, limits: Limits) -> bytes:
    largest = min(limits.member_bytes, max(limits.ratio_from_bytes, int(limits.ratio * path.stat().st_size)))
    content = io.BytesIO()
    try:
        with gzip.open(path) as stream:
            while chunk := stream.read(_CHUNK):
                content.write(chunk)
                if content.tell() > largest:
                    raise DataError(f"{path} unpacks to more than {largest} bytes: refused as a bomb.")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file ({error}): get it again.") from None
    return content.getvalue()
