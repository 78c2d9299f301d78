"""Peak memory: what is measured is what the steps touch, in a process of their own."""

from __future__ import annotations

import os

import pytest
import torch

from subjectdp.benchmarks import memory
from subjectdp.benchmarks.methods import METHODS

pytestmark = pytest.mark.skipif(memory.unmeasurable() is not None, reason=str(memory.unmeasurable()))
MB = 1 << 20


# Up to a few MB may come from freed memory that glibc cannot give back in a process with a past, such as this one.
@pytest.mark.parametrize("megabytes", [64, 192])
def test_growth_is_what_a_step_holds_at_its_peak(megabytes):
    def step() -> None:
        torch.ones(megabytes * MB, dtype=torch.uint8)  # freed at once: only the peak shows it

    found = memory.in_fork(lambda: memory.growth(step))
    assert (megabytes - 8) * MB < found < (megabytes + 8) * MB


def test_what_was_there_before_does_not_count():
    held = torch.ones(128 * MB, dtype=torch.uint8)
    assert memory.in_fork(lambda: memory.growth(held.max)) < 16 * MB


def test_a_method_is_measured_without_touching_this_process(cases):
    before = torch.random.get_rng_state()
    small = memory.peak_bytes(METHODS["sgd"], cases["cnn"])
    assert 0 < small < 200 * MB
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_process_that_dies_is_reported():
    with pytest.raises(RuntimeError, match="code 7"):
        memory.in_fork(lambda: os._exit(7))


def test_where_the_kernel_does_not_let_us_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "missing" / "clear_refs")
    assert "peak memory needs" in str(memory.unmeasurable())
