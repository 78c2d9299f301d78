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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from subjectdp.data.zip_directory import DEFAULT_LIMITS, Limits, Member, list_zip
from subjectdp.errors import DataError, in_words

__all__ = [
    "DEFAULT_LIMITS",
    "TEXT_LIMITS",
    "Archive",
    "Limits",
    "Member",
    "MemberReader",
    "Readable",
    "find_text",
    "open_archive",
    "read_member",
    "read_text_file",
    "stream_member",
]

TEXT_LIMITS = Limits(entries=10_000, member_bytes=64 << 20, total_bytes=1 << 30)
"""Of a text, which is read into memory whole (the Complete Works have 5.5 MB)."""

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_GZIP_MAGIC, _ZIP_MAGIC = b"\x1f\x8b", b"PK"
_UTF8_NAME = 0x800
_CHUNK = 1 << 20


class Readable(Protocol):
    """What readers need of a binary stream."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to ``size`` bytes (-1: all that is left); b'' at the end."""
        ...


class Archive(NamedTuple):
    """A zip file or a folder, with its files sorted by name."""

    path: Path
    members: list[Member]


def open_archive(path: Path, limits: Limits = DEFAULT_LIMITS) -> Archive:
    """Lists a zip file or a folder; DataError if it is missing, empty, corrupt or unsafe."""
    if path.is_dir():
        members = _list_folder(path, limits)
    elif path.is_file():
        members = list_zip(path, limits)
    else:
        raise DataError(f"{path} does not exist: expected a zip file or a folder.")
    if not members:
        raise DataError(f"{path} holds no file.")
    return Archive(path, sorted(members))


def read_member(archive: Path, member: Member) -> bytes:
    """The unpacked bytes of one member, its size and checksum verified."""
    with _opened(archive, member) as stream:
        return (
            _read_plain(stream, archive, member)
            if member.packed < 0
            else _read_packed(stream, archive, member)
        )


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
        return _read_packed(self._stream, self._archive, member)


@contextmanager
def stream_member(archive: Path, member: Member) -> Iterator[Readable]:
    """Opens one member for reading piece by piece; a damaged one raises DataError while it is read."""
    with _opened(archive, member) as stream:
        yield stream if member.packed < 0 else _PackedStream(stream, archive, member)


def read_text_file(path: Path, limits: Limits = TEXT_LIMITS) -> bytes:
    """The text in a plain file, a gzip file, or a zip file with exactly one ``.txt``; DataError otherwise."""
    if not path.is_file():
        raise DataError(f"{path} does not exist: expected a .txt, .gz or .zip file.")
    try:
        with open(path, "rb") as stream:
            content = stream.read(limits.member_bytes + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from None
    if content.startswith(_GZIP_MAGIC):
        return _read_gzip(path, limits)
    if content.startswith(_ZIP_MAGIC):
        members = open_archive(path, limits).members
        texts = [member for member in members if member.name.lower().endswith(".txt")]
        if len(texts) != 1:
            raise DataError(f"{path}: expected one .txt file in the archive, found {len(texts)}.")
        return read_member(path, texts[0])
    if len(content) > limits.member_bytes:
        raise DataError(f"{path} has more than {limits.member_bytes} bytes: no text of this project has.")
    return content


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


# --- members ------------------------------------------------------------------------------------------------


@contextmanager
def _opened(archive: Path, member: Member) -> Iterator[IO[bytes]]:
    """The zip file, or the plain file of a folder."""
    path = archive / member.name if member.packed < 0 else archive
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(open(path, "rb"))
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}).") from None
        yield stream


def _read_plain(stream: IO[bytes], archive: Path, member: Member) -> bytes:
    content = stream.read(member.size + 1)
    if len(content) != member.size:
        raise DataError(f"{archive}: {member.name} has changed while it was read.")
    return content


def _data_start(stream: IO[bytes], archive: Path, member: Member) -> int:
    """Where the packed bytes begin, behind a local header that says what the directory says."""
    header = os.pread(stream.fileno(), _LOCAL_HEADER.size + 4 * len(member.name), member.offset)
    if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
        raise DataError(f"{archive}: {member.name} has no local header; the archive is corrupt.")
    _, _, flags, method, *_, name_length, extra_length = _LOCAL_HEADER.unpack_from(header)
    name = header[_LOCAL_HEADER.size :][:name_length]
    encoding = "utf-8" if flags & _UTF8_NAME else "cp437"
    if len(name) != name_length or name.decode(encoding, "replace") != member.name or method != member.method:
        raise DataError(f"{archive}: {member.name} is damaged (its local header is that of another entry).")
    return int(member.offset + _LOCAL_HEADER.size + name_length + extra_length)


def _read_packed(stream: IO[bytes], archive: Path, member: Member) -> bytes:
    packed = os.pread(stream.fileno(), member.packed, _data_start(stream, archive, member))
    content = packed
    if member.method == zipfile.ZIP_DEFLATED:
        try:
            content = zlib.decompressobj(-15).decompress(packed, member.size + 1)
        except zlib.error as error:
            raise DataError(f"{archive}: {member.name} is damaged ({error}).") from None
    if len(packed) != member.packed or len(content) != member.size or zlib.crc32(content) != member.crc:
        raise _damaged(archive, member)
    return content


def _damaged(archive: Path, member: Member) -> DataError:
    return DataError(f"{archive}: {member.name} is truncated or damaged (size or checksum differ).")


class _PackedStream:
    """A member unpacked piece by piece; its size and checksum are verified when its end is reached."""

    def __init__(self, stream: IO[bytes], archive: Path, member: Member):
        self._descriptor, self._archive, self._member = stream.fileno(), archive, member
        self._at = _data_start(stream, archive, member)
        self._left, self._read, self._crc = member.packed, 0, 0
        self._inflater = zlib.decompressobj(-15) if member.method == zipfile.ZIP_DEFLATED else None
        self._waiting = b""

    def read(self, size: int = -1, /) -> bytes:
        """As :class:`Readable`; DataError where the member is damaged."""
        if size < 0:
            size = self._member.size - self._read + 1
        pieces: list[bytes] = []
        while size > 0 and (piece := self._piece(size)):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _piece(self, most: int) -> bytes:
        """1 to ``most`` bytes; b'' at a sound end."""
        while self._waiting or self._left or (self._inflater is not None and not self._inflater.eof):
            packed = self._waiting or self._fetch()
            piece = self._unpack(packed, most)
            if packed == b"" and piece == b"":
                break
            if piece:
                self._crc, self._read = zlib.crc32(piece, self._crc), self._read + len(piece)
                if self._read > self._member.size:
                    raise _damaged(self._archive, self._member)
                return piece
        if self._read != self._member.size or self._crc != self._member.crc:
            raise _damaged(self._archive, self._member)
        return b""

    def _fetch(self) -> bytes:
        packed = os.pread(self._descriptor, min(_CHUNK, self._left), self._at)
        if packed == b"" and self._left > 0:
            raise _damaged(self._archive, self._member)
        self._at, self._left = self._at + len(packed), self._left - len(packed)
        return packed

    def _unpack(self, packed: bytes, most: int) -> bytes:
        if self._inflater is None:
            self._waiting = packed[most:]
            return packed[:most]
        try:
            piece = self._inflater.decompress(packed, most)
        except zlib.error as error:
            raise DataError(f"{self._archive}: {self._member.name} is damaged ({error}).") from None
        self._waiting = self._inflater.unconsumed_tail
        return piece


# --- folders and gzip ---------------------------------------------------------------------------------------


def _list_folder(path: Path, limits: Limits) -> list[Member]:
    members: list[Member] = []
    total = 0
    for root, folders, names in os.walk(path):
        folders.sort()
        for name in (*folders, *names):
            size = _size_in_folder(path, Path(root, name), limits)
            if size is not None:
                members.append(Member(Path(root, name).relative_to(path).as_posix(), size, -1, 0, 0, 0))
                total += size
        if len(members) > limits.entries:
            raise DataError(f"{path} has more than {limits.entries} files.")
        if total > limits.total_bytes:
            raise DataError(f"{path} holds more than {limits.total_bytes} bytes.")
    return members


def _size_in_folder(folder: Path, file: Path, limits: Limits) -> int | None:
    """Bytes of ``file``, None for a folder; DataError for a link that leads elsewhere, and for no plain file."""
    if not file.name.isprintable():
        raise DataError(f"{folder}: {in_words(file.name)} is a name with characters that cannot be printed.")
    try:
        found = os.lstat(file)
        if stat.S_ISLNK(found.st_mode):
            found = os.stat(file)
            if stat.S_ISDIR(found.st_mode) or not file.resolve().is_relative_to(folder.resolve()):
                raise DataError(f"{file} is a link to a folder, or to a file outside of {folder}.")
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error.strerror}).") from None
    if stat.S_ISDIR(found.st_mode):
        return None
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{file} is not a plain file.")
    if found.st_size > limits.member_bytes:
        raise DataError(f"{file} has {found.st_size} bytes, more than {limits.member_bytes}.")
    return found.st_size


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
