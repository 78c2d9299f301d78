"""The fraction of clipped units that a step logs."""

from __future__ import annotations

import math

import pytest
import torch

from subjectdp.training.steps.silo_step import _share_above


@pytest.mark.parametrize("count", [1, 3, 7, 512])
@pytest.mark.parametrize("of_each", [False, True])
def test_the_share_is_torchs_mean_in_float32(count: int, of_each: bool) -> None:
    generator = torch.Generator().manual_seed(count)
    norms = torch.rand(count, generator=generator)
    bound = torch.rand(count, generator=generator) if of_each else 0.5
    assert _share_above(norms, bound) == (norms > bound).to(torch.float32).mean().item()


def test_a_norm_at_the_bound_is_not_above_it_and_one_that_is_not_finite_counts_by_comparison() -> None:
    norms = torch.tensor([1.0, 1.000001, math.inf, math.nan])
    assert _share_above(norms, 1.0) == 0.5


@pytest.mark.parametrize("bound", [1.0, torch.empty(0)])
def test_no_units_have_no_share(bound: float | torch.Tensor) -> None:
    assert math.isnan(float(_share_above(torch.empty(0), bound)))
