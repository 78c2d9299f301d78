"""One process at a time in a folder: waiting, giving up, killed owners, file systems without locks."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from subjectdp.errors import StorageError
from subjectdp.io import locks
from subjectdp.io.locks import LockedError, owned

pytestmark = pytest.mark.slow

LIBRARY = Path(__file__).parents[2] / "workflow" / "lib"
HOLDER = """
import os, signal, sys, time
from pathlib import Path
from subjectdp.io.locks import owned
with owned(Path(sys.argv[1]), 0.0):
    worker = os.fork() if sys.argv[2] == "worker" else None
    if worker == 0:
        time.sleep(30)
        os._exit(0)
    print("held", worker, flush=True)
    if worker is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(float(sys.argv[2]))
"""


@contextmanager
def another_process(path: Path, how: object = 60.0) -> Iterator[subprocess.Popen[str]]:
    """A process that holds ``path`` for so many seconds; "worker": that forks one and is killed."""
    command = [sys.executable, "-c", HOLDER, str(path), str(how)]
    environment = {**os.environ, "PYTHONPATH": str(LIBRARY)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.read(5) == "held "
        try:
            yield process
        finally:
            process.kill()


def test_a_lock_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "run" / ".lock"
    with owned(path, 0.0) as waited:
        assert not waited
        assert path.read_text().startswith(f"process {os.getpid()} on ")
    assert not path.parent.exists()
    path.parent.mkdir()
    with owned(path, 0.0):
        pass
    assert list(path.parent.iterdir()) == [], "a folder that was there stays"


def test_a_second_process_gives_up_and_says_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with another_process(path) as holder:
        wanted = rf"in use by process {holder.pid} on \S+ since .*start again"
        with pytest.raises(LockedError, match=wanted), owned(path, 0.2):
            pytest.fail("two owners")
        assert path.exists(), "the holder's file stays"


def test_a_second_process_waits_and_says_so(tmp_path: Path) -> None:
    path, lines = tmp_path / ".lock", list[str]()
    with another_process(path, 0.4) as holder, owned(path, 30.0, lines.append) as waited:
        assert waited and holder.poll() is not None or holder.wait(10) == 0
    assert len(lines) == 1 and lines[0].startswith(f"waiting for process {holder.pid}")


def test_a_killed_owner_is_taken_over_at_once(tmp_path: Path) -> None:
    path, lines = tmp_path / ".lock", list[str]()
    with another_process(path) as holder:
        holder.kill()
        holder.wait()
        assert path.exists()
        with owned(path, 0.0, lines.append) as waited:
            assert not waited
            assert path.read_text().startswith(f"process {os.getpid()} on ")
    assert lines == [line for line in lines if f"from process {holder.pid}" in line] and len(lines) == 1


def test_the_same_process_does_not_get_it_twice(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with owned(path, 0.0):
        with pytest.raises(LockedError, match=str(os.getpid())), owned(path, 0.0):
            pytest.fail("two owners")
        assert path.exists()
    with owned(path, 0.0):
        pass


@pytest.fixture
def no_kernel_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.usefixtures("no_kernel_locks")
@pytest.mark.filterwarnings("ignore:flock not supported")
def test_without_kernel_locks_a_marker_file_excludes(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with owned(path, 0.0):
        with pytest.raises(LockedError, match=r"if none is alive, remove .*\.lock"), owned(path, 0.0):
            pytest.fail("two owners")
        assert str(os.getpid()) in path.read_text().split()
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_outlives_its_killed_owner_does_not_hold_the_lock(tmp_path: Path) -> None:
    with another_process(tmp_path / ".lock", "worker") as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        try:
            assert process.wait(10) == -signal.SIGKILL
            # The owner may die before its worker, which lives for 30 s, has closed the file.
            with owned(tmp_path / ".lock", 10.0):
                os.kill(worker, 0)  # it lives
        finally:
            os.kill(worker, signal.SIGKILL)


def test_the_holder_is_named_without_taking_the_lock(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    assert locks.holder(path) is None
    with another_process(path) as process:
        found = locks.holder(path)
        assert found is not None and found.startswith(f"process {process.pid} on ")
        process.kill()
        process.wait()
        assert path.exists() and locks.holder(path) is None


def test_a_half_written_lock_of_nobody_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("process 12 on a")
    with owned(tmp_path / ".lock", 0.0):
        pass


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be made"), owned(tmp_path / "file" / "run" / ".lock", 0.0):
        pytest.fail("no folder")
