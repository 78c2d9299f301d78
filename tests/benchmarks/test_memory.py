"""Peak memory: what is measured is what the steps touch, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from subjectdp.benchmarks import memory
from subjectdp.benchmarks.methods import METHODS
from subjectdp.benchmarks.worker import environment

pytestmark = pytest.mark.skipif(memory.unmeasurable() is not None, reason=str(memory.unmeasurable()))
MB = 1 << 20


FRESH = """
import torch
from subjectdp.benchmarks import memory
step = lambda: torch.ones({size}, dtype=torch.uint8)  # freed at once: only the peak shows it
print(memory.in_fork(lambda: memory.growth(step)))
"""


# A new process: this one may have tuned its malloc already, which keeps large freed blocks beside new ones.
@pytest.mark.parametrize("megabytes", [64, 192])
def test_growth_is_what_a_step_holds_at_its_peak(megabytes):
    code = FRESH.format(size=megabytes * MB)
    command, fresh = [sys.executable, "-c", code], environment("default", 1)
    found = int(subprocess.run(command, env=fresh, stdout=subprocess.PIPE, check=True).stdout)
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
