"""Tasks in processes of their own: started with tuned malloc and one thread, or forked to measure peak memory.

A forked process builds the method, resets the kernel's high-water mark of its resident memory, takes a few steps and
reads the mark: the peak is VmHWM minus the resident memory before.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

import torch

from subjectdp.errors import WorkerError
from subjectdp.io.freed_memory import return_freed_memory

_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
}
"""glibc keeps large freed blocks instead of returning them to the kernel, which would cost page faults."""
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_STEPS, _REPEATS = 3, 3
_LARGE = 1 << 30  # bytes: a larger peak is measured once

Result = TypeVar("Result")


def in_worker(task: Callable[..., Result], *arguments: Any) -> Result:
    """The task's result in a new process; WorkerError if that process dies."""
    before = dict(os.environ)
    os.environ.update(_ENVIRONMENT)
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context, torch.set_num_threads, (1,)) as pool:
            return pool.submit(task, *arguments).result()
    except BrokenProcessPool:
        raise WorkerError(f"The worker of {task.__name__} was killed, perhaps for lack of memory.") from None
    finally:
        os.environ.clear()
        os.environ.update(before)


def unmeasurable() -> str | None:
    """Why peak memory cannot be measured here, None if it can."""
    try:
        _CLEAR.write_text("5")
    except OSError as problem:
        return f"peak memory needs a writable {_CLEAR} ({problem.strerror})"
    return None if "VmHWM" in _STATUS.read_text() else f"peak memory needs VmHWM in {_STATUS}"


def peak_bytes(measure: Callable[..., int], *arguments: Any) -> int:
    """What ``measure`` finds in a forked process: the median of three, or one that is large.

    Raises:
        RuntimeError: the measuring process died, for instance for lack of memory.
    """
    peaks: list[int] = []
    while len(peaks) < (_REPEATS if not peaks or peaks[0] < _LARGE else 1):
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            peaks.append(pool.submit(measure, *arguments).result())
    return int(statistics.median(peaks))


def growth(step: Callable[[], object]) -> int:
    """Bytes by which a few calls of ``step`` raise the resident memory of this process at its peak."""
    gc.collect()
    return_freed_memory()  # otherwise it would hide part of what the steps need
    _CLEAR.write_text("5")
    before = _status_bytes("VmRSS")
    for _ in range(_STEPS):
        step()
    return max(0, _status_bytes("VmHWM") - before)


def _status_bytes(name: str) -> int:
    values = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return int(values[name].split()[0]) * 1024
