"""The directory of a zip file that may be hostile: what it lists is checked before anything is read or unpacked.

Refused are names that leave the archive, links and devices, encryption, methods other than stored and deflated, sizes
that no real source has, bombs, overlaps, entries that lie outside of the file, and two entries of one name.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from subjectdp.errors import DataError, in_words

_END = struct.Struct("<4s4H2LH")  # the record at the end, without its comment
_HEADER_BYTES = 30  # of an entry's local header, without its name
_LONGEST_NAME = 1024
_DIRECTORY_BYTES = 256  # of an entry in the directory, at most on average (NIST's have about 130)


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


class _DirectoryTooLong(Exception):
    """More is to be read at once than any allowed directory has."""


class _BoundedFile(io.FileIO):
    """A file that refuses to be read by more than ``most`` bytes at once: the directory is, whole."""

    def __init__(self, path: Path, most: int):
        super().__init__(path)
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self._most:
            raise _DirectoryTooLong(f"its directory has {size} bytes")
        return super().read(-1 if size is None else size)


def list_zip(path: Path, limits: Limits = DEFAULT_LIMITS) -> list[Member]:
    """The files in the directory of ``path``; DataError where it is corrupt or lists anything unsafe."""
    infos, declared = _read_directory(path, limits)
    if len(infos) > limits.entries:
        raise DataError(f"{path} has {len(infos)} entries; at most {limits.entries} are read.")
    if declared not in (len(infos) & 0xFFFF, 0xFFFF):
        raise DataError(f"{path} lists {len(infos)} entries and declares {declared}: it is corrupt.")
    size = path.stat().st_size
    for info in infos:
        problem = _problem_of_name(info) or _problem_of_entry(info, limits, size)
        if problem is not None:
            raise DataError(f"{path}: entry {in_words(info.filename)} {problem}.")
    files = [info for info in infos if not info.is_dir()]
    _check_totals(path, infos, limits, size)
    return [
        Member(i.filename, i.file_size, i.compress_size, i.header_offset, i.CRC, i.compress_type)
        for i in files
    ]


def _read_directory(path: Path, limits: Limits) -> tuple[list[zipfile.ZipInfo], int]:
    """The entries, and how many the record at the end declares (modulo 65,536; 65,535 may stand for more)."""
    most = _DIRECTORY_BYTES * (limits.entries + 4096)
    try:
        with _BoundedFile(path, most) as file, zipfile.ZipFile(file) as archive:
            file.seek(-len(archive.comment) - _END.size, io.SEEK_END)
            declared = _END.unpack(file.read(_END.size))[4]
            return archive.infolist(), int(declared)
    except _DirectoryTooLong as problem:
        raise DataError(f"{path} is refused: {problem}, more than {limits.entries} entries need.") from None
    except (
        zipfile.BadZipFile,
        struct.error,
        EOFError,
        OSError,
        ValueError,
        NotImplementedError,
        OverflowError,
    ) as error:
        raise DataError(f"{path} is not a readable zip file ({error}): truncated or corrupt.") from None


def _problem_of_name(info: zipfile.ZipInfo) -> str | None:
    """Why the entry's name is refused; directories are named like files, with a slash behind."""
    name = info.orig_filename
    parts = name.replace("\\", "/").removesuffix("/").split("/")
    if parts[0] == "" or (len(parts[0]) > 1 and parts[0][1] == ":"):
        return "has an absolute or empty name"
    if ".." in parts:
        return "has a name that leaves the archive (path traversal)"
    if "" in parts or "." in parts:
        return "has a name with an empty part"
    if len(name) > _LONGEST_NAME:
        return f"has a name of {len(name)} characters, more than {_LONGEST_NAME}"
    if not name.isprintable():
        return "has a name with characters that cannot be printed"
    return None


def _problem_of_entry(info: zipfile.ZipInfo, limits: Limits, size: int) -> str | None:
    """Why the entry's kind, packing, size or place is refused."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        return "is a symbolic link"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a device, a pipe or a socket"
    if info.flag_bits & 0x1:
        return "is encrypted"
    if info.flag_bits & 0x60:
        return "is a patch or strongly encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"is packed by method {info.compress_type} (stored and deflated are read)"
    if info.file_size > limits.member_bytes:
        return f"has {info.file_size} bytes unpacked, more than {limits.member_bytes}"
    if info.file_size > max(limits.ratio_from_bytes, limits.ratio * info.compress_size):
        return f"unpacks to {info.file_size} bytes from {info.compress_size}: refused as a zip bomb"
    if info.header_offset < 0:
        return "lies before the beginning of the file"
    if info.header_offset + _HEADER_BYTES > size:
        return "lies behind the end of the file"
    return None


def _check_totals(path: Path, infos: list[zipfile.ZipInfo], limits: Limits, size: int) -> None:
    if len({info.filename for info in infos}) != len(infos):
        raise DataError(f"{path} lists the same name twice.")
    if sum(info.file_size for info in infos) > limits.total_bytes:
        raise DataError(f"{path} unpacks to more than {limits.total_bytes} bytes.")
    if sum(info.compress_size for info in infos) > size:
        raise DataError(f"{path} is smaller than its entries together: truncated, or a bomb of overlaps.")
