"""Tasks in processes of their own, which start with the task's malloc and thread settings in the environment."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import torch

from subjectdp.errors import SubjectDPError

TUNED = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""glibc keeps large freed blocks instead of returning them to the kernel, which would cost page faults."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

Result = TypeVar("Result")


class WorkerError(SubjectDPError):
    """A worker process that died."""


def in_worker(malloc: str, threads: int, task: Callable[..., Result], *arguments: Any) -> Result:
    """The task's result in a new process; WorkerError if that process dies."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("MALLOC_")]:
        del os.environ[name]
    os.environ.update(dict.fromkeys(_THREADS, str(threads)) | (TUNED if malloc == "tuned" else {}))
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context, _start, (threads,)) as pool:
            return pool.submit(task, *arguments).result()
    except BrokenProcessPool:
        raise WorkerError(f"The worker of {task.__name__} was killed, perhaps for lack of memory.") from None
    finally:
        os.environ.clear()
        os.environ.update(before)


def _start(threads: int) -> None:
    """Prepares a new process; its output goes to standard error, so that --json prints JSON alone."""
    sys.stdout = sys.stderr
    torch.set_num_threads(threads)
