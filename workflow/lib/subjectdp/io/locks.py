"""One process at a time in a folder: ``filelock`` does the locking, the lock file says who holds it.

The kernel frees the lock of a process that ends or is killed. On shared file systems it holds between hosts where locks
are shared: NFS with its lock service, Lustre mounted with ``flock``; ``nolock`` and ``localflock`` guard one host only.
Without any kernel locks filelock falls back to a marker file; then the mark of a killed job on another host stays, and
the message asks to remove it.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout, lock_descriptor

from subjectdp.errors import StorageError

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_REMINDER_SECONDS = 60.0


class LockedError(StorageError):
    """Another process held the lock for the whole waiting time."""


@contextmanager
def owned(path: Path, wait_seconds: float, report: Callable[[str], None] = log.info) -> Iterator[bool]:
    """Hold the lock file ``path`` for the block; yield whether another process had to be waited for.

    Creates the folder if needed. Afterwards removes the lock file, and the folder if it was created here and is empty.
    Threads of one process exclude each other as processes do. LockedError where another process still holds the lock
    after ``wait_seconds`` (``math.inf``: wait forever), StorageError for a folder that cannot be written.
    """
    path = path.absolute()
    created = not path.parent.exists()
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        waited = _acquire(lock, path, wait_seconds, report)
    except OSError as error:
        raise StorageError(f"{path} cannot be made: {error.strerror or error}.") from None
    try:
        _sign(lock, path, report)
        yield waited
    finally:
        _release(lock, path)
        if created:
            with suppress(OSError):
                path.parent.rmdir()


def holder(path: Path) -> str | None:
    """The process that holds the lock file, in words; None if it is free or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY)
    except OSError:
        return None
    try:
        return None if lock_descriptor(descriptor, blocking=False) else _recorded(path)
    except OSError:  # no kernel lock can be tried here
        return _recorded(path)
    finally:
        os.close(descriptor)


def _acquire(lock: BaseFileLock, path: Path, wait_seconds: float, report: Callable[[str], None]) -> bool:
    """Acquire the lock, with a reminder every minute; return whether that took more than one attempt."""
    deadline = time.monotonic() + wait_seconds
    patience = 0.0
    while True:
        left = max(0.0, deadline - time.monotonic())
        try:
            lock.acquire(timeout=min(patience, left), poll_interval=_POLL_SECONDS)
            return patience > 0
        except Timeout:
            owner = _recorded(path) or "another process"
        if left == 0.0:
            remove = f" (if none is alive, remove {path})" if isinstance(lock, SoftFileLock) else ""
            told = "wait until it is done, or stop it, and start again"
            raise LockedError(f"{path.parent} is in use by {owner}{remove}: {told}.")
        report(f"waiting for {owner}, which writes {path.parent}")
        patience = _REMINDER_SECONDS


def _sign(lock: BaseFileLock, path: Path, report: Callable[[str], None]) -> None:
    """Write the owner into the lock file; a recorded owner that is still in it was killed."""
    if isinstance(lock, SoftFileLock):
        return  # the file is filelock's own marker
    if (gone := _recorded(path)) is not None:
        report(f"taking over {path.parent} from {gone}, which is gone")
    job = f" (Slurm job {number})" if (number := os.environ.get("SLURM_JOB_ID")) else ""
    owner = f"process {os.getpid()} on {socket.gethostname()}{job} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
    with suppress(OSError):  # a full disk: the lock holds, only its owner has no name
        path.write_text(f"{owner}\n")


def _release(lock: BaseFileLock, path: Path) -> None:
    """Remove the lock file, then unlock it: whoever waits for the removed file tries again with a new one."""
    if not isinstance(lock, SoftFileLock):
        with suppress(OSError):
            path.unlink()
    lock.release()


def _recorded(path: Path) -> str | None:
    """The owner named in the file; None if the file is gone, cut off or of another format."""
    try:
        text = path.read_text()
    except (OSError, ValueError):
        return None
    return text.strip() if text.startswith("process ") and text.endswith("\n") else None
