"""Tasks in processes of their own, which start with the task's malloc and thread settings in the environment."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch

from subjectdp.errors import SubjectDPError

TUNED = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""glibc keeps large freed blocks instead of returning them to the kernel, which would cost page faults."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class WorkerError(SubjectDPError):
    """A worker process that died."""


def in_worker(malloc: str, threads: int, task: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """``task``, to be called in a new process; the call raises WorkerError if that process dies."""

    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        context = multiprocessing.get_context("spawn")
        with _environment(malloc, threads), ProcessPoolExecutor(1, context, _start, (threads,)) as pool:
            try:
                return pool.submit(task, *arguments, **options).result()
            except BrokenProcessPool:
                name = getattr(task, "__name__", str(task))
                raise WorkerError(f"The worker of {name} was killed, perhaps for lack of memory.") from None

    return call


@contextmanager
def _environment(malloc: str, threads: int) -> Iterator[None]:
    """Variables that a new process inherits; ``default`` malloc drops all settings, ``tuned`` makes ours."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("MALLOC_")]:
        del os.environ[name]
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    os.environ.update(TUNED if malloc == "tuned" else {})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _start(threads: int) -> None:
    """Prepares a new process; its output goes to standard error, so that --json prints JSON alone."""
    sys.stdout = sys.stderr
    torch.set_num_threads(threads)
