"""Norms of long vectors: what many short entries beside a few long ones lose in a sum of float32 squares."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from algorithms import tiny
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters, row_norms
from subjectdp.plan.plan import AccountingMode
from subjectdp.training.subject_updates import _clipped

MARGIN = 2.0**-18  # the engine's, which has to cover the rounding of a norm
SMALL = 2.4e-4  # its square is just less than half a unit in the last place of 1


def uneven(length: int, long: int) -> Tensor:
    """``long`` entries of 1, which each partial sum of a plain loop meets first, and the rest too short to be seen."""
    vector = torch.full((length,), SMALL)
    vector[:long] = 1.0
    return vector


@pytest.mark.parametrize("length", [1, 255, 256, 257, 3136, 51_200, 65_793, 1 << 20])
@pytest.mark.parametrize("long", [1, 8, 16, 64])
def test_norms_are_right_within_the_engines_margin(length: int, long: int) -> None:
    generator = torch.Generator().manual_seed(length)
    rows = torch.stack([uneven(length, min(long, length)), torch.randn(length, generator=generator) ** 3])
    exact = rows.double().norm(dim=1)
    assert float((row_norms(rows).double() / exact - 1).abs().max()) < 0.75 * MARGIN


def test_torchs_own_norm_is_not() -> None:
    """Why there is a norm of our own; should this fail one day, it is no longer needed."""
    vector = uneven(1 << 20, 8)
    assert float(torch.linalg.vector_norm(vector)) < float(vector.double().norm()) * (1 - 100 * MARGIN)


def test_rows_of_no_length_and_no_rows() -> None:
    assert row_norms(torch.zeros(3, 0)).tolist() == [0.0, 0.0, 0.0]
    assert row_norms(torch.zeros(0, 700)).shape == (0,)


def test_what_is_not_finite_stays_so() -> None:
    rows = torch.ones(3, 1000)
    rows[0, 999], rows[1, 3] = float("inf"), float("nan")
    assert torch.isfinite(row_norms(rows)).tolist() == [False, False, True]


@pytest.mark.parametrize("long", [8, 16, 32])
def test_an_item_with_many_short_inputs_is_clipped_to_the_clip_norm(long: int) -> None:
    """A linear layer's gradient is as long as its input: 200,000 numbers here."""
    model = nn.Linear(200_000, 2, bias=False)
    nn.init.zeros_(model.weight)
    engine = ClippingEngine(FlatParameters(model), physical_batch_size=1)
    inputs, labels = 50.0 * uneven(200_000, long).expand(2, -1), torch.zeros(2, dtype=torch.int64)
    one, _ = engine.clipped_sum(inputs[:1], labels[:1], 1.0)
    assert 1 - 1e-5 < float(one.double().norm()) <= 1.0
    group, _ = engine.clipped_sum(inputs, labels, 1.0, groups=torch.zeros(2, dtype=torch.int64))
    assert 1 - 1e-5 < float(group.double().norm()) <= 1.0  # more items than go through at once


@pytest.mark.parametrize("long", [8, 16, 32])
def test_updates_of_silos_and_subjects_are_clipped_to_the_clip_norm(long: int) -> None:
    vector = 50.0 * uneven(1 << 20, long)
    plan = tiny.tiny_plan("user_ldp", None, AccountingMode.SOUND, 1)
    plan = replace(plan, settings=replace(plan.settings, clip_norm=1.0))
    silo = tiny.tiny_run(plan).step(1, 0, 0).clip(vector.clone())
    rows = _clipped(vector[None], row_norms(vector[None]), torch.ones(1))
    for clipped in (silo, rows[0]):
        assert 1 - 1e-5 < float(clipped.double().norm()) <= 1.0


def test_a_short_vector_stays_as_it_is() -> None:
    plan = tiny.tiny_plan("user_ldp", None, AccountingMode.SOUND, 1)
    vector = torch.randn(500, generator=torch.Generator().manual_seed(1))
    vector *= plan.settings.clip_norm * (1 - 2 * MARGIN) / float(vector.double().norm())
    assert torch.equal(tiny.tiny_run(plan).step(1, 0, 0).clip(vector.clone()), vector)


@pytest.mark.parametrize("stride", [64, 256, 512, 768])
@pytest.mark.parametrize("items", [2, 32])
def test_items_whose_long_parts_cancel_are_clipped_by_what_is_left(stride: int, items: int) -> None:
    """A group's norm from inner products, of which its true length is a hundred-thousandth part."""
    model = nn.Linear(3136, 300, bias=False)
    nn.init.zeros_(model.weight)
    engine = ClippingEngine(FlatParameters(model))
    short, long = torch.full((3136,), SMALL), torch.zeros(3136)
    short[::stride], long[::stride] = 0.0, 1.0
    signs = torch.tensor([1.0, -1.0]).repeat(items // 2)
    inputs, labels = short + signs[:, None] * long, torch.zeros(items, dtype=torch.int64)
    groups = torch.zeros(items, dtype=torch.int64)
    whole, _ = engine.clipped_sum(inputs, labels, float("inf"), groups=groups)
    bound = 1e-2 * float(whole.double().norm())
    clipped, _ = engine.clipped_sum(inputs, labels, bound, groups=groups)
    assert 0.99 * bound < float(clipped.double().norm()) <= bound * (1 + 1e-6)
