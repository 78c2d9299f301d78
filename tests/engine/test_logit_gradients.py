"""The compiled softmax and norms, against torch in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.test_norms import MARGIN
from subjectdp.engine.logit_gradients import errors_and_norms, softmax_columns

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
def test_norms_are_right_within_the_engines_margin(classes: int) -> None:
    """Many short entries beside a long one, which a sum of float32 squares loses."""
    logits = torch.zeros(classes, 7)
    errors, norms, _ = found(logits, [1.0] * 7)
    assert float((norms.double() / errors.double().norm(dim=0) - 1).abs().max()) < 0.01 * MARGIN


@pytest.mark.parametrize("row", [0, 2, 3])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_not_finite_stays_so(row: int, number: float) -> None:
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
    labels = LABELS.clone()
    labels[6] = label
    with pytest.raises(IndexError, match="Expected labels from 0"):
        errors_and_norms(
            np.zeros((4, 7), np.float32), labels.numpy(), np.ones(7, np.float32), False, np.empty(7, np.float32)
        )
