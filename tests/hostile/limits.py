"""Limits around hostile inputs: time, memory, messages, the folder; PNGs that declare what they are told."""

import resource
import signal
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CPU_SECONDS, WALL_SECONDS = 10.0, 120.0
MEMORY_BYTES = 2 << 30
LONGEST_LINE, MOST_LINES = 2000, 42

TOKEN = ("HOSTILE_TEST_TOKEN", "a-secret-that-no-message-may-show")
"""A variable of the environment, as a site's passwords are, that no scenario may read."""


class Hang(BaseException):
    """An input that took longer than it may; no reader catches it."""


def check_message(message: str) -> None:
    """A clear message is there, and short enough to be read."""
    lines = message.split("\n")
    if not message.strip() or len(lines) > MOST_LINES or max(map(len, lines)) > LONGEST_LINE:
        raise AssertionError(f"not a clear message ({len(lines)} lines): {message[:500]!r}")


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below ``folder``: kind and mode, size, time of change."""
    states = {path.relative_to(folder).as_posix(): path.lstat() for path in sorted(folder.rglob("*"))}
    return {name: (state.st_mode, state.st_size, state.st_mtime_ns) for name, state in states.items()}


@contextmanager
def limited_time(cpu_seconds: float = CPU_SECONDS) -> Iterator[None]:
    """Raises :class:`Hang` in the block once it has used so much time of the processor, or waited very long."""

    def stop(number: int, _: object) -> None:
        raise Hang(f"signal {number} after {cpu_seconds} s of CPU or {WALL_SECONDS} s")

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, cpu_seconds), (signal.SIGALRM, signal.ITIMER_REAL, WALL_SECONDS))
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


def chunk(kind: bytes, body: bytes) -> bytes:
    """A PNG chunk with its right checksum."""
    return struct.pack(">L", len(body)) + kind + body + struct.pack(">L", zlib.crc32(kind + body))


def png_with(width: int, height: int, depth: int = 8, colour: int = 0, body: bytes = b"", more: bytes = b"") -> bytes:
    """A PNG that declares what it is told to, whatever its pixels are."""
    header = struct.pack(">2L5B", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + more + chunk(b"IDAT", body) + chunk(b"IEND", b"")
