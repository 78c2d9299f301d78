"""One hostile input at a time: read within limits of time and memory, and judged.

An outcome is right (the slow oracle reads the same), refused (one clear SubjectDPError), or a failure: another
exception, a hang, too much memory, a result that the oracle does not have, a valid input refused, a file that has
appeared or changed.
"""

from __future__ import annotations

import os
import resource
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hypothesis.strategies import SearchStrategy

from subjectdp.errors import SubjectDPError

CPU_SECONDS = 10.0
WALL_SECONDS = 120.0
MEMORY_BYTES = 2 << 30
LONGEST_LINE = 2000
MOST_LINES = 42

Files = Mapping[str, bytes]


class Invalid(Exception):
    """The oracle's word for an input that has no right reading."""


class Hang(BaseException):
    """An input that took longer than it may; no reader catches it."""


class Failure(AssertionError):
    """What must not happen, with the input that made it happen."""


@dataclass(frozen=True)
class Case:
    """An input: its files; whether it is known to be valid (made by a change that means nothing); whether the oracle
    knows all that the library checks (not where an archive's directory was changed)."""

    files: Files
    valid: bool = False
    exact: bool = True


@dataclass(frozen=True)
class Outcome:
    """How an input was taken: ``right``, or ``refused`` with the message."""

    right: bool
    message: str = ""


class Reader(Protocol):
    """A reader of the library, inputs for it, and its oracle."""

    name: str
    decisive: bool  # the oracle also knows what is valid: refusing such an input is a failure

    def generated(self) -> SearchStrategy[Case]:
        """Whole inputs, built from parts."""
        ...

    def mutated(self, key: str) -> Case:
        """A valid small input with some changes, drawn by ``key``."""
        ...

    def read(self, folder: Path) -> Any:
        """What the library makes of the files in ``folder``; SubjectDPError where it refuses them."""
        ...

    def oracle(self, folder: Path) -> Any:
        """The same by other means, slowly; :class:`Invalid` where there is no right reading."""
        ...


def judge(reader: Reader, case: Case) -> Outcome:
    """Lets ``reader`` read the case in an empty folder; raises :class:`Failure`."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "source")
        folder.mkdir()
        for name, content in case.files.items():
            (folder / name).write_bytes(content)
        before = tree(Path(temporary))
        outcome, result = _read(reader, folder)
        if tree(Path(temporary)) != before:
            raise Failure(f"{reader.name}: reading changed the folder of the input")
        try:
            with warnings.catch_warnings(action="ignore"):
                wanted = reader.oracle(folder)
        except Invalid as reason:
            if case.valid:
                raise Failure(f"{reader.name}: no valid input, by the oracle: {reason}") from None
            if outcome.right:
                raise Failure(f"{reader.name}: read what the oracle finds invalid ({reason})") from None
            return outcome
        if outcome.right and result != wanted:
            raise Failure(f"{reader.name}: read something else than the oracle")
        if not outcome.right and (case.valid or (reader.decisive and case.exact)):
            raise Failure(f"{reader.name}: refused a valid input: {outcome.message}")
        return outcome


def _read(reader: Reader, folder: Path) -> tuple[Outcome, Any]:
    try:
        with limited_time(), warnings.catch_warnings(action="error"):
            return Outcome(True), reader.read(folder)
    except SubjectDPError as problem:
        check_message(str(problem))
        return Outcome(False, str(problem)), None
    except (Exception, Hang) as problem:
        raise Failure(f"{reader.name}: {type(problem).__name__}: {str(problem)[:500]}") from problem


def check_message(message: str) -> None:
    """A clear message is there, and short enough to be read."""
    lines = message.split("\n")
    if not message.strip() or len(lines) > MOST_LINES or max(map(len, lines)) > LONGEST_LINE:
        raise Failure(f"not a clear message ({len(lines)} lines): {message[:500]!r}")


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below ``folder``: kind and mode, size, time of change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        found[path.relative_to(folder).as_posix()] = (state.st_mode, state.st_size, state.st_mtime_ns)
    return found


@contextmanager
def limited_time(cpu_seconds: float = CPU_SECONDS) -> Iterator[None]:
    """Raises :class:`Hang` in the block once it has used so much time of the processor, or waited very long."""

    def stop(number: int, _: object) -> None:
        raise Hang(f"signal {number} after {cpu_seconds} s of CPU or {WALL_SECONDS} s")

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, cpu_seconds),
        (signal.SIGALRM, signal.ITIMER_REAL, WALL_SECONDS),
    )
    previous: list[tuple[int, Any]] = []
    try:
        for number, timer, seconds in timers:
            previous.append((number, signal.signal(number, stop)))
            signal.setitimer(timer, seconds)
        yield
    finally:
        for _, timer, _ in timers:
            signal.setitimer(timer, 0)
        for number, handler in previous:
            signal.signal(number, handler)


def limit_memory(more: int = MEMORY_BYTES) -> None:
    """Lets this process have ``more`` bytes above what it has now, for good; beyond them comes MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def text_or_invalid(read: Callable[[], Any]) -> Any:
    """``read()``, with any exception of a standard parser as :class:`Invalid`."""
    try:
        return read()
    except Invalid:
        raise
    except Exception as problem:
        raise Invalid(f"{type(problem).__name__}: {problem}") from None


def real_file(name: str) -> Path | None:
    """A file of the real data, where ``SUBJECTDP_REAL_DATA`` names their folder."""
    folder = os.environ.get("SUBJECTDP_REAL_DATA")
    path = None if folder is None else Path(folder, name)
    return path if path is not None and path.is_file() else None
