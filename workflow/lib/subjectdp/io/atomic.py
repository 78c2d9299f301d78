"""Atomic file output: temporary name beside the target, fsync, rename.

A reader never sees half a file: it finds the old content, the new content, or nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from subjectdp.errors import DataError, StorageError

if TYPE_CHECKING:
    import pandas as pd


_FULL = 1 << 20  # bytes that are free on a full disk
_CANNOT_WRITE = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "it is larger than this disk or process may have",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "no permission to write there",
    errno.EPERM: "no permission to write there",
    errno.EIO: "the disk reports an error",
}


@contextmanager
def atomic_path(target: Path | str) -> Iterator[Path]:
    """Yields a temporary path beside ``target``; on a clean exit its content replaces ``target``.

    The suffix is kept, so that writers which look at it (matplotlib, numpy) choose the right format. On an exception
    the temporary file is removed and ``target`` stays as it was. StorageError for a full disk, or a file or folder that
    cannot be written.
    """
    target = Path(target)
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}.", suffix=f".tmp{target.suffix}")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        _sync(temporary)
        os.umask(mask := os.umask(0))
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
        _sync(target.parent)
    except OSError as error:
        reason = _why_not_written(error, target)
        if reason is None:
            raise
        raise StorageError(f"{target} cannot be written: {reason}.") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _why_not_written(error: OSError, target: Path) -> str | None:
    """The reason in words, also without an errno (numpy, pyarrow); None if it is not about writing ``target``."""
    if error.errno in (errno.EACCES, errno.EPERM) and not _beside(error.filename, target):
        return None
    if error.errno is None:
        with suppress(OSError):
            return _CANNOT_WRITE[errno.ENOSPC] if shutil.disk_usage(target.parent).free < _FULL else None
        return None
    return _CANNOT_WRITE.get(error.errno)


def _beside(filename: object, target: Path) -> bool:
    """Whether an error names ``target``'s folder, one above it, or a file in it."""
    if not isinstance(filename, str):
        return False
    named, folder = Path(os.path.abspath(filename)), Path(os.path.abspath(target.parent))
    return named.parent == folder or named == folder or named in folder.parents


@contextmanager
def atomic_open(target: Path | str) -> Iterator[IO[bytes]]:
    """Opens a temporary file for writing that becomes ``target`` on a clean exit."""
    with atomic_path(target) as temporary, open(temporary, "wb") as stream:
        yield stream


def write_bytes(target: Path | str, content: bytes) -> None:
    with atomic_open(target) as stream:
        stream.write(content)


def write_text(target: Path | str, content: str) -> None:
    """Writes ``content`` as UTF-8, atomically."""
    write_bytes(target, content.encode())


def write_json(target: Path | str, content: Any) -> None:
    """Writes ``content`` as indented JSON with sorted keys, atomically."""
    write_text(target, json.dumps(content, indent=1, sort_keys=True) + "\n")


def write_frame(target: Path | str, frame: pd.DataFrame) -> None:
    """Writes a data frame by its target's suffix (.csv, or .parquet with checksums), atomically."""
    with atomic_path(target) as temporary:
        if Path(target).suffix == ".parquet":
            frame.to_parquet(temporary, index=False, write_page_checksum=True)
        else:
            frame.to_csv(temporary, index=False)


def sha256_of(path: Path | str) -> str:
    """The hex sha256 of a file's content, read in chunks."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


SEAL = "seal"  # the key of the hash


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` with its hash; keys are text and values JSON-able."""
    return {**content, SEAL: _digest(content)}


def is_intact(content: Any) -> bool:
    """Whether ``content``, read from a file, is a mapping whose checksum fits."""
    return isinstance(content, Mapping) and content.get(SEAL) == _digest(content)


def read_sealed(path: Path, remedy: str = "") -> dict[str, Any]:
    """What :func:`sealed` gave, from a file; DataError with the ``remedy`` if it is missing, damaged or changed."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise DataError(f"{path} is missing or damaged ({problem}). {remedy}".rstrip()) from None
    if not is_intact(content):
        raise DataError(f"{path} was changed after it was written: checksum mismatch. {remedy}".rstrip())
    return dict(content)


def _digest(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != SEAL}
    # through JSON once, as a reader gets it: tuples become lists, keys text
    text = json.dumps(json.loads(json.dumps(rest)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
