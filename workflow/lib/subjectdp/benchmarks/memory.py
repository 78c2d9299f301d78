"""Peak memory of a method's steps, each method in a process of its own.

The process builds the method, resets the kernel's high-water mark of its resident memory, takes a few steps and reads
the mark: VmHWM minus the resident memory before. Before that, the same method has stepped on a narrow copy of the
model, so that code pages and the libraries' own tables do not count (a compiled method has stepped on the model
itself). The processes are forked from one that has only imported what they need.
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

from subjectdp.benchmarks.cases import Case, make_problem
from subjectdp.benchmarks.methods import Method

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_STEPS, _REPEATS = 3, 3
_LARGE = 1 << 30  # bytes: a larger peak is measured once
_NARROW = {
    "leaf_cnn": (("hidden", 16),),
    "small_cnn": (("width", 4),),
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
    """Memory that the steps of a method need above what it holds when it is built, in bytes: median of 3 processes.

    Raises:
        RuntimeError: the measuring process died, for instance for want of memory.
    """

    def measure() -> int:
        problem = make_problem(case)
        if not method.compiled:
            narrow = replace(case, batch=2, subjects=1, parameters=_NARROW.get(case.model, ()))
            method.build(make_problem(narrow)).step()
        stepper = method.build(problem)
        if method.compiled:
            stepper.step()  # the compiler's memory is not the step's
        return growth(stepper.step)

    peaks = [in_fork(measure)]
    while len(peaks) < _REPEATS and peaks[0] < _LARGE and not method.compiled:
        peaks.append(in_fork(measure))
    return int(statistics.median(peaks))


def growth(step: Callable[[], object]) -> int:
    """Bytes by which a few calls of ``step`` raise the resident memory of this process at its highest."""
    gc.collect()
    _return_freed_memory()
    _reset_mark()
    before = _status_bytes("VmRSS")
    for _ in range(_STEPS):
        step()
    return max(0, _status_bytes("VmHWM") - before)


def in_fork(measure: Callable[[], int]) -> int:
    """The result of ``measure`` in a forked process; RuntimeError where it dies."""
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
    """Asks glibc to give freed memory back, so that it does not hide what the steps need."""
    if os.name == "posix":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
