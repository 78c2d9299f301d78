"""The local steps of a silo's round, which draw their mini-batches ahead."""

from __future__ import annotations

import weakref
from itertools import pairwise

import numpy as np

from algorithms.tiny import tiny_plan, tiny_run
from subjectdp.plan.plan import AccountingMode
from subjectdp.training.steps.silo_step import _AHEAD, silo_steps

STEPS = 2 * _AHEAD + 3


def test_steps_that_draw_ahead_draw_what_each_draws_alone() -> None:
    run = tiny_run(tiny_plan("local_item_dp", None, AccountingMode.SOUND, steps=STEPS, noise=1.0))
    found = [(step.step, step.sample_batch().addresses) for step in silo_steps(run.federation, 1, 1)]
    assert [number for number, _ in found] == list(range(STEPS))
    for number, addresses in found:
        np.testing.assert_array_equal(addresses, run.step(1, 1, number).sample_batch().addresses)
    assert any(len(a) != len(b) or (a != b).any() for (_, a), (_, b) in pairwise(found))


def test_a_step_that_is_over_is_not_kept() -> None:
    run = tiny_run(tiny_plan("local_item_dp", None, AccountingMode.SOUND, steps=3, noise=1.0))
    steps = silo_steps(run.federation, 1, 0)
    first = weakref.ref(next(steps))
    next(steps)
    assert first() is None
