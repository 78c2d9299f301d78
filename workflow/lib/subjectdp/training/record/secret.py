"""The secret of a run with ``privacy.noise_source: secure``: 256 bits that its sampling and noise are drawn from.

It is in memory, and in one file beside the checkpoints, so that a stopped run can go on with the same draws (correlated
noise draws that of earlier rounds again). Its owner alone may read the file. It is deleted, not overwritten, when the
run ends: what a disk or a snapshot keeps of deleted files is outside this program's reach.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from pathlib import Path

from subjectdp.errors import StorageError

SECRET = "noise.secret"
"""Name of the file in the folder of the checkpoints."""

BYTES = 32
_OWNER_ALONE = 0o600


def run_secret(checkpoints: Path) -> int:
    """The secret of the run that was stopped here, else a new one; no checkpoint survives without its secret.

    Raises:
        StorageError: the file cannot be written, or others may read it.
    """
    found = _read(checkpoints / SECRET)
    if found is None:
        shutil.rmtree(checkpoints, ignore_errors=True)
        found = secrets.token_bytes(BYTES)
        _write(checkpoints / SECRET, found)
    return int.from_bytes(found, "little")


def forget_secret(checkpoints: Path) -> None:
    """Deletes the secret, if there is one. Raises StorageError where that fails."""
    try:
        (checkpoints / SECRET).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"{checkpoints / SECRET} cannot be deleted ({error.strerror}): delete it."
        ) from None


def _read(path: Path) -> bytes | None:
    try:
        status, content = path.lstat(), path.read_bytes()
    except OSError:
        return None
    own = status.st_uid == os.getuid() and stat.S_ISREG(status.st_mode)
    private = stat.S_IMODE(status.st_mode) == _OWNER_ALONE
    return content if own and private and len(content) == BYTES else None


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ALONE), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}.") from error
    if _read(path) != content:
        path.unlink(missing_ok=True)
        raise StorageError(f"{path} would be readable by others: this disk keeps no file modes.")
