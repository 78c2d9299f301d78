"""Peak memory of a method's steps, each method in a process of its own.

The process builds the method, resets the kernel's high-water mark of its resident memory, takes a few steps and reads
the mark: the peak is VmHWM minus the resident memory before. The method has stepped on a narrow copy of the model
before, so that code pages and the libraries' own tables do not count.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import statistics
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.methods import Method
from benchmarks.problem import Case, make_problem

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_STEPS, _REPEATS = 3, 3
_LARGE = 1 << 30  # bytes: a larger peak is measured once
_NARROW = {
    "leaf_cnn": (("hidden", 16),),
    "leaf_lstm": (("hidden", 16), ("dense", 16)),
    "small_lstm": (("hidden", 16), ("dense", 16)),
}


def unmeasurable() -> str | None:
    """Why peak memory cannot be measured here, None if it can."""
    try:
        _reset_mark()
    except OSError as problem:
        return f"peak memory needs a writable {_CLEAR} ({problem.strerror})"
    return None if "VmHWM" in _STATUS.read_text() else f"peak memory needs VmHWM in {_STATUS}"


def peak_bytes(method: Method, case: Case) -> int:
    """Memory of a method's steps above that of the built method, in bytes: median of 3 processes.

    Raises:
        RuntimeError: the measuring process died, for instance for lack of memory.
    """

    def measure() -> int:
        problem = make_problem(case)
        narrow = replace(case, batch=2, subjects=1, parameters=_NARROW.get(case.model, ()))
        method.build(make_problem(narrow)).step()
        return growth(method.build(problem).step)

    method.load()  # once, and not in every fork
    peaks = [in_fork(measure)]
    while len(peaks) < _REPEATS and peaks[0] < _LARGE:
        peaks.append(in_fork(measure))
    return int(statistics.median(peaks))


def growth(step: Callable[[], object]) -> int:
    """Bytes by which a few calls of ``step`` raise the resident memory of this process at its peak."""
    gc.collect()
    _return_freed_memory()
    _reset_mark()
    before = _status_bytes("VmRSS")
    for _ in range(_STEPS):
        step()
    return max(0, _status_bytes("VmHWM") - before)


def in_fork(measure: Callable[[], int]) -> int:
    """The result of ``measure`` in a forked process; RuntimeError if it dies."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(measure, sender))
    child.start()
    sender.close()
    try:
        result: int = receiver.recv()
    except EOFError:
        child.join()
        raise RuntimeError(f"the measuring process ended with code {child.exitcode}") from None
    child.join()
    return result


def _send(measure: Callable[[], int], sender: Connection) -> None:
    sender.send(measure())
    sender.close()


def _reset_mark() -> None:
    _CLEAR.write_text("5")


def _status_bytes(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in {_STATUS}")


def _return_freed_memory() -> None:
    """Makes glibc give freed memory back; otherwise it would hide part of what the steps need."""
    if os.name == "posix":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
