"""Peak memory: what is measured is what the steps touch, in a process of their own.

Each test measures from a new process, as the suite does: a fork of this one could inherit a lock of a library's thread.
"""

from __future__ import annotations

import os

import pytest
import torch

from benchmarks import memory
from benchmarks.problem import Case
from benchmarks.worker import in_worker

pytestmark = pytest.mark.skipif(memory.unmeasurable() is not None, reason=str(memory.unmeasurable()))
MB = 1 << 20


def growth_of_ones(size: int) -> int:
    return memory.growth(lambda: torch.ones(size, dtype=torch.uint8))  # freed at once


def growth_beside_held_memory() -> int:
    return memory.growth(torch.ones(128 * MB, dtype=torch.uint8).max)


def die_in_fork() -> str:
    try:
        return str(memory.in_fork(os._exit, 7))
    except RuntimeError as error:
        return str(error)


@pytest.mark.long
@pytest.mark.parametrize("megabytes", [64, 192])
def test_growth_is_what_a_step_holds_at_its_peak(megabytes: int) -> None:
    found = in_worker("default", 1, growth_of_ones, megabytes * MB)
    assert (megabytes - 8) * MB < found < (megabytes + 8) * MB


@pytest.mark.long
def test_what_was_there_before_does_not_count() -> None:
    assert in_worker("default", 1, growth_beside_held_memory) < 16 * MB


@pytest.mark.long
@pytest.mark.parametrize(("case", "least"), [("cnn", 1), ("lstm", 1), ("head", 0)])
def test_the_peak_of_a_method_is_measured(cases: dict[str, Case], case: str, least: int) -> None:
    """A linear head's step at this batch may fit into pages that are resident already."""
    assert least <= in_worker("default", 1, memory.peak_bytes, "sgd", cases[case]) < 200 * MB


@pytest.mark.long
def test_a_process_that_dies_is_reported() -> None:
    assert "terminated abruptly" in in_worker("default", 1, die_in_fork)


def test_where_the_kernel_does_not_let_us_it_says_so(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "missing" / "clear_refs")
    assert "peak memory needs" in str(memory.unmeasurable())
