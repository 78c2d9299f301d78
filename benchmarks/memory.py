"""Peak memory of a method's steps, each method in a process of its own.

The process builds the method, resets the kernel's high-water mark of its resident memory, takes a few steps and reads
the mark: the peak is VmHWM minus the resident memory before. The method has stepped on a narrow copy of the model
before, so that code pages and the libraries' own tables do not count.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.methods import METHODS
from benchmarks.problem import Case, make_problem

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_STEPS, _REPEATS = 3, 3
_LARGE = 1 << 30  # bytes: a larger peak is measured once
_OF_AN_LSTM = (("hidden", 16), ("dense", 16))
_NARROW = {
    "leaf_cnn": (("hidden", 16),),
    "leaf_lstm": _OF_AN_LSTM,
    "small_lstm": _OF_AN_LSTM,
}  # other models are small


def unmeasurable() -> str | None:
    """Why peak memory cannot be measured here, None if it can."""
    try:
        _CLEAR.write_text("5")
    except OSError as problem:
        return f"peak memory needs a writable {_CLEAR} ({problem.strerror})"
    return None if "VmHWM" in _STATUS.read_text() else f"peak memory needs VmHWM in {_STATUS}"


def peak_bytes(name: str, case: Case) -> int:
    """Memory of a method's steps above that of the built method, in bytes: median of 3 processes.

    Raises:
        RuntimeError: the measuring process died, for instance for lack of memory.
    """
    peaks = [in_fork(_peak, name, case)]
    while len(peaks) < _REPEATS and peaks[0] < _LARGE:
        peaks.append(in_fork(_peak, name, case))
    return int(statistics.median(peaks))


def _peak(name: str, case: Case) -> int:
    build, problem = METHODS[name].build, make_problem(case)
    build(make_problem(replace(case, batch=2, subjects=1, parameters=_NARROW.get(case.model, ())))).step()
    return growth(build(problem).step)


def growth(step: Callable[[], object]) -> int:
    """Bytes by which a few calls of ``step`` raise the resident memory of this process at its peak."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)  # glibc gives freed memory back; otherwise it would hide part of what the steps need
    _CLEAR.write_text("5")
    before = _status_bytes("VmRSS")
    for _ in range(_STEPS):
        step()
    return max(0, _status_bytes("VmHWM") - before)


def in_fork(measure: Callable[..., int], *arguments: Any) -> int:
    """The result of ``measure`` in a forked process; BrokenProcessPool, a RuntimeError, if it dies."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(measure, *arguments).result()


def _status_bytes(name: str) -> int:
    values = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return int(values[name].split()[0]) * 1024
