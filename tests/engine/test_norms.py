"""Norms of long vectors, which sums of float32 squares get wrong, and the compiled softmax, against float64."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from algorithms import tiny
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters, row_norms
from subjectdp.engine.linear_models import errors_and_norms, softmax_columns
from subjectdp.engine.rules import Squares, joined, product_squares
from subjectdp.plan.plan import AccountingMode
from subjectdp.training.silo_step import _clipped

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


def test_rows_of_no_length_no_rows_and_what_is_not_finite() -> None:
    assert row_norms(torch.zeros(3, 0)).tolist() == [0.0, 0.0, 0.0]
    assert row_norms(torch.zeros(0, 700)).shape == (0,)
    rows = torch.ones(3, 1000)
    rows[0, 999], rows[1, 3] = float("inf"), float("nan")
    assert torch.isfinite(row_norms(rows)).tolist() == [False, False, True]


def test_squares_of_a_large_mini_batch_are_those_of_each_item() -> None:
    delta, inputs = torch.randn(2, 8000, 2, 20, generator=torch.Generator().manual_seed(1))
    exact = torch.einsum("nto,nti->noi", delta.double(), inputs.double()).square().sum((1, 2))
    found = joined([Squares(torch.ones(1)), product_squares(delta, [inputs], 0.0)])
    assert torch.allclose(found.values[1:].double(), exact, rtol=1e-6)
    assert found.added is not None and found.added.count_nonzero() == 8000


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
    assert 0.97 * bound < float(clipped.double().norm()) <= bound * (1 + 1e-6)


# --- softmax, errors and their norms ----------------------------------------------------------------------------------

LABELS = torch.tensor([0, 3, 3, 1, 2, 0, 3])


def found(logits: Tensor, lengths: list[float], bias: bool = False) -> tuple[Tensor, Tensor, bool]:
    """Errors, norms and whether all are finite, of the first columns' labels."""
    errors, norms = logits.clone().numpy(), np.empty(logits.shape[1], np.float32)
    finite = errors_and_norms(errors, LABELS.numpy(), np.float32(lengths), bias, norms)
    return torch.from_numpy(errors), torch.from_numpy(norms), finite


def softmax(logits: Tensor) -> Tensor:
    columns: NDArray[np.float32] = logits.clone().numpy()
    softmax_columns(columns)
    return torch.from_numpy(columns)


@pytest.mark.parametrize("classes", [1, 2, 10, 62, 1000])
@pytest.mark.parametrize("spread", [1e-6, 1.0, 30.0, 1e6])
def test_softmax_is_that_of_float64(classes: int, spread: float) -> None:
    logits = spread * torch.randn(classes, 137, generator=torch.Generator().manual_seed(classes))
    exact = torch.softmax(logits.double(), 0)
    assert float((softmax(logits) / exact - 1).abs()[exact > 1e-35].max()) < 2e-5 * max(1.0, classes / 100)
    assert float((softmax(logits) - exact).abs().max()) < 1e-6


def test_every_power_is_right_to_the_last_digits() -> None:
    powers = torch.linspace(-87.0, 0.0, 100_001).unsqueeze(0)
    found = softmax(torch.cat([torch.zeros_like(powers), powers]))
    exact = torch.softmax(torch.cat([torch.zeros_like(powers), powers]).double(), 0)
    assert float((found / exact - 1).abs().max()) < 4e-7


@pytest.mark.parametrize("bias", [False, True])
def test_errors_and_norms_are_those_of_float64(bias: bool) -> None:
    logits = 3 * torch.randn(4, 7, generator=torch.Generator().manual_seed(0))
    exact = torch.softmax(logits.double(), 0) - torch.nn.functional.one_hot(LABELS, 4).t()
    lengths = [0.0, 1.0, 2.5, 1e-3, 1e3, 7.0, 0.1]
    errors, norms, finite = found(logits, lengths, bias)
    squares = torch.tensor(lengths, dtype=torch.float64).square() + float(bias)
    assert finite and float((errors - exact).abs().max()) < 1e-6
    assert norms.tolist() == pytest.approx((exact.norm(dim=0) * squares.sqrt()).tolist(), rel=1e-6)


@pytest.mark.parametrize("classes", [4, 1 << 20])
def test_norms_of_errors_are_right_within_the_engines_margin(classes: int) -> None:
    """Many short entries beside a long one, which a sum of float32 squares loses."""
    logits = torch.zeros(classes, 7)
    errors, norms, _ = found(logits, [1.0] * 7)
    assert float((norms.double() / errors.double().norm(dim=0) - 1).abs().max()) < 0.01 * MARGIN


@pytest.mark.parametrize("row", [0, 2, 3])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_logits_that_are_not_finite_stay_so(row: int, number: float) -> None:
    logits = torch.zeros(4, 7)
    logits[row, 1] = number
    _, norms, finite = found(logits, [1.0, 1.0, 1.0, math.inf, math.nan, 1e38, 1.0])
    assert not finite and torch.isfinite(norms).tolist() == [True, False, True, False, False, True, True]


def test_a_class_of_no_probability_is_no_trouble() -> None:
    logits = torch.zeros(4, 7)
    logits[2] = -math.inf
    errors, _, finite = found(logits, [1.0] * 7)
    assert finite and float(errors[2, :4].abs().max()) < 1e-37 and float(errors[2, 4]) == -1.0


@pytest.mark.parametrize("label", [-1, 4, 1 << 40])
def test_a_label_that_is_no_class_is_an_error(label: int) -> None:
    labels, ones = LABELS.clone(), np.ones(7, np.float32)
    labels[6] = label
    with pytest.raises(IndexError, match="Expected labels from 0"):
        errors_and_norms(np.zeros((4, 7), np.float32), labels.numpy(), ones, False, ones.copy())
