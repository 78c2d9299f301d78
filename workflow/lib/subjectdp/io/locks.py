"""One process at a time in a folder: a lock file that says who holds it.

Two guards stand one behind the other. The kernel's lock (``fcntl.lockf``; on NFS the server's) goes away with the
process that holds it, so that a killed owner leaves nothing to clean up, and it is not inherited by worker processes.
Where a file system has no such locks, or grants them on each host by itself (NFS mounted with ``nolock``), what the
file says still counts: an owner on this host is asked for by its process id and start, one on another host counts as
alive as long as it touches the file.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from subjectdp.errors import StorageError

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 30.0
STALE_SECONDS = 150.0
"""How long an owner on another host may be silent before it counts as gone."""
_POLL_SECONDS = 0.5
_REMINDER_SECONDS = 60.0
_HELD = (errno.EACCES, errno.EAGAIN)
_OWN: set[Path] = set()
"""Lock files that this process holds: the kernel would grant them to it again."""
_GUARD = threading.Lock()  # of _OWN


class LockedError(StorageError):
    """Another process holds the lock and did not let go of it in time."""


@dataclass(frozen=True)
class Owner:
    """Who holds a lock: enough to find the process, and to tell it from a later one with the same id."""

    host: str
    pid: int
    started: str  # ticks since boot, from /proc; empty where there is none
    job: str  # Slurm's job id, or empty
    since: str  # local time

    def __str__(self) -> str:
        job = f" (Slurm job {self.job})" if self.job else ""
        return f"process {self.pid} on {self.host}{job} since {self.since}"


def this_process() -> Owner:
    """The owner that this process would be."""
    return Owner(
        socket.gethostname(),
        os.getpid(),
        _start_of(os.getpid()) or "",
        os.environ.get("SLURM_JOB_ID", ""),
        time.strftime("%Y-%m-%d %H:%M:%S"),
    )


@contextmanager
def owned(path: Path, wait_seconds: float, report: Callable[[str], None] = log.info) -> Iterator[bool]:
    """Holds the lock file ``path`` for the block; yields whether another process had to be waited for.

    The file goes away at the end; a folder that was made for it and stayed empty too. Threads of one process exclude
    each other as processes do.

    Raises:
        LockedError: another process still holds it after ``wait_seconds`` (``math.inf``: never).
        StorageError: the folder cannot be written.
    """
    path = path.absolute()
    made = not path.parent.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, waited = _acquire(path, wait_seconds, report)
    except OSError as error:
        raise StorageError(f"{path} cannot be made: {error.strerror or error}.") from None
    stop = threading.Event()
    threading.Thread(target=_heartbeat, args=(path, stop), daemon=True).start()
    try:
        yield waited
    finally:
        stop.set()
        with suppress(OSError):
            path.unlink(missing_ok=True)
        with _GUARD:
            os.close(descriptor)
            _OWN.discard(path)
        if made:
            with suppress(OSError):
                path.parent.rmdir()


def holder(path: Path) -> Owner | None:
    """Who holds the lock file, for those who only look; None where nobody does or nothing can be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        owner = _read(descriptor)
        return owner if owner is not None and _alive(owner, path) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _acquire(path: Path, wait_seconds: float, report: Callable[[str], None]) -> tuple[int, bool]:
    start, next_report, waited = time.monotonic(), 0.0, False
    while True:
        with _GUARD:
            descriptor, owner = _attempt(path, report)
            if descriptor is not None:
                _OWN.add(path)
                return descriptor, waited
        passed = time.monotonic() - start
        if passed >= wait_seconds:
            who = "another process" if owner is None else str(owner)
            raise LockedError(
                f"{path.parent} is in use by {who}: wait until it is done, or stop it, and start again."
            )
        if passed >= next_report:
            report(f"waiting for {owner or 'another process'}, which writes {path.parent}")
            next_report = passed + _REMINDER_SECONDS
        waited = True
        time.sleep(min(_POLL_SECONDS, wait_seconds - passed))


def _attempt(path: Path, report: Callable[[str], None]) -> tuple[int | None, Owner | None]:
    """The descriptor of the lock file if it is ours now, else None and who holds it."""
    if path in _OWN:
        return None, this_process()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        held = not _lock(descriptor, path)
        owner = _read(descriptor)
        if held or _replaced(descriptor, path) or (owner is not None and _alive(owner, path)):
            os.close(descriptor)
            return None, owner
        if owner is not None:
            report(f"taking over {path.parent} from {owner}, which is gone")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(this_process())).encode(), 0)
        os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            os.close(descriptor)
        raise
    return descriptor, None


def _lock(descriptor: int, path: Path) -> bool:
    """Whether the kernel's lock was granted, or the file system has none to grant."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        log.warning("%s has no file locks (%s): only what the file says guards it", path, error.strerror)
    return True


def _replaced(descriptor: int, path: Path) -> bool:
    """Whether its last owner removed the file between our opening and locking it."""
    try:
        return os.stat(path).st_ino != os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return True


def _read(descriptor: int) -> Owner | None:
    """Whom the file names; None for nobody, or for a file that was cut off while it was written."""
    try:
        return Owner(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError):
        return None


def _alive(owner: Owner, path: Path) -> bool:
    if owner.host == socket.gethostname():
        start = _start_of(owner.pid)
        return start is not None and start == owner.started
    return _now_of(path.parent) - path.stat().st_mtime < STALE_SECONDS


def _start_of(pid: int) -> str | None:
    """When a process of this host started, in ticks since boot; None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        return "" if _exists(pid) else None
    return None if fields[0] == "Z" else fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _now_of(folder: Path) -> float:
    """The time by the clock of the folder's file system, which may be another host's."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".clock.") as file:
        return os.fstat(file.fileno()).st_mtime


def _heartbeat(path: Path, stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT_SECONDS):
        with suppress(OSError):
            os.utime(path)
