"""Worker processes: the settings they start with, their results, and their deaths."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from benchmarks.worker import TUNED, WorkerError, in_worker


def settings() -> tuple[dict[str, str], str, int, int]:
    malloc = {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}
    return malloc, os.environ["OMP_NUM_THREADS"], torch.get_num_threads(), os.getpid()


def refuse() -> None:
    raise ValueError("a reason")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.long
def test_workers_get_threads_and_malloc_from_the_start(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before = dict(os.environ)
    for malloc, expected in (("tuned", TUNED), ("default", {})):
        found, threads, used, process = in_worker(malloc, 2, settings)
        assert (found, threads, used) == (expected, "2", 2)
        assert process != os.getpid()
    assert dict(os.environ) == before


@pytest.mark.long
def test_an_error_in_a_worker_is_raised_and_a_killed_worker_is_named():
    with pytest.raises(ValueError, match="a reason"):
        in_worker("default", 1, refuse)
    with pytest.raises(WorkerError, match="worker of die was killed, perhaps for lack of memory"):
        in_worker("default", 1, die)
