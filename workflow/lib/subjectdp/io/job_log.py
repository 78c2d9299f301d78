"""The log file of a workflow job, with user errors in one line instead of a traceback."""

import gc
import io
import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import Literal, TextIO

from subjectdp.errors import DownloadError, StorageError, SubjectDPError, WorkerError

EXIT_USER_ERROR = 2
_SECONDS_BETWEEN_LINES = 5.0  # of progress
_NO_RETRY = "Not tried again: the error would be the same."
_LOGGER = logging.getLogger(__name__)
_PASSING = (DownloadError, StorageError, WorkerError)


@contextmanager
def job_log(path: Path | str, mode: Literal["w", "a"] = "w") -> Iterator[None]:
    """Sends what the block prints or logs to ``path``, line by line; ``mode`` "a" keeps what is in the file.

    A ``SubjectDPError`` ends the process with status 2 and one line, ``error: <message>``, in the log and on the
    console; the log says whether a next try would end the same (:func:`would_fail_again`). Any other exception leaves
    its traceback in the log and goes on. A block that ended early because a signal asked for it (``Stopped``, or
    Ctrl-C) ends the process with 128 + signal and one line, ``stopped: <message>``.
    """
    if not gc.isenabled():  # io.job_start: what has been loaded stays
        gc.freeze()
        gc.enable()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    console = sys.stderr
    with _LogFile(Path(path), mode) as log, redirect_stdout(log), redirect_stderr(log):
        handler = logging.StreamHandler(log)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        root, level = logging.getLogger(), logging.getLogger().level
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        try:
            yield
        except SubjectDPError as problem:
            _say(f"error: {problem}", log, console)
            if not isinstance(problem, _PASSING):
                print(_NO_RETRY, file=log, flush=True)
            raise SystemExit(EXIT_USER_ERROR) from problem
        except (Stopped, KeyboardInterrupt) as problem:
            stop = problem if isinstance(problem, Stopped) else Stopped(signal.SIGINT)
            _say(f"stopped: {stop}", log, console)
            raise SystemExit(stop.exit_status) from None
        except BaseException:
            traceback.print_exc(file=log)
            raise
        finally:
            root.removeHandler(handler)
            root.setLevel(level)


def _say(line: str, *streams: io.TextIOBase | TextIO) -> None:
    for stream in streams:
        print(line, file=stream, flush=True)


def would_fail_again(path: Path | str) -> bool:
    """Whether the log's last line says that the job ended by an error that no retry mends."""
    with suppress(OSError):
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1:] == [_NO_RETRY]
    return False


class _LogFile(io.TextIOWrapper):
    """A text file that drops lines when the disk is full: a log must not end a training."""

    def __init__(self, path: Path, mode: Literal["w", "a"]) -> None:
        super().__init__(path.open(f"{mode}b"), "utf-8", line_buffering=True)

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):  # the disk is full, the file is closed
            super().flush()

    def close(self) -> None:
        with suppress(OSError):
            super().close()


SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """The work ended early because a signal asked for it; ``exit_status`` is the shell's 128 + signal."""

    def __init__(self, signum: int, message: str = "") -> None:
        super().__init__(f"{signal.Signals(signum).name}{message}")
        self.signum, self.exit_status = signum, 128 + signum


class StopRequest:
    def __init__(self) -> None:
        self.signum: int | None = None

    def check(self) -> None:
        """Raises Stopped if a signal has come."""
        if self.signum is not None:
            raise Stopped(self.signum)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Notes SIGTERM and SIGINT in the request that it yields, for the block; only in the main thread."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {signum: signal.getsignal(signum) for signum in SIGNALS}

    def note(signum: int, frame: FrameType | None) -> None:
        request.signum = signum
        signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)

    try:
        for signum, handler in before.items():
            if handler != signal.SIG_IGN:  # a job in the background of a shell ignores Ctrl-C
                signal.signal(signum, note)
        yield request
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class Progress:
    """Counts work done, in bytes or files, and logs it every few seconds; ``total`` None: unknown."""

    def __init__(self, label: str, total: int | None):
        self._label, self._total = label, total
        self._last, self.count = time.monotonic(), 0

    def add(self, amount: int) -> None:
        """Records ``amount`` more, and logs a line if the last one is some seconds old."""
        self.count += amount
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self.finish()

    def finish(self) -> None:
        self._last = time.monotonic()
        share = f" of {self._total:,} ({100 * self.count / self._total:.0f} %)" if self._total else ""
        _LOGGER.info(f"{self._label}: {self.count:,}{share}")
