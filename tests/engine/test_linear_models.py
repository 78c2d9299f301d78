"""Models that are one linear layer need no backward pass, and all others get one."""

from __future__ import annotations

import math

import pytest
import torch

from engine import oracle
from engine.test_clipping import data_of, flat_in_order, model_of
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters


@pytest.mark.parametrize(
    ("name", "backward"), [("head", False), ("logistic", False), ("head scaled", True), ("head viewed", True)]
)
def test_one_linear_layer_needs_no_backward_pass(
    name: str, backward: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: calls.append(1) or original(*a, **k))
    engine = ClippingEngine(FlatParameters(model_of(name)))
    engine.clipped_sum(*data_of(name, 4), 1.0)
    engine.gradient_sum(*data_of(name, 4))
    assert bool(calls) == backward


@pytest.mark.parametrize("name", ["head", "head scaled"])
@pytest.mark.parametrize("clip_norm", [0.5, math.inf])
@pytest.mark.parametrize("capacity", [3, 100])
def test_groups_are_those_of_the_float64_loop(name: str, clip_norm: float, capacity: int) -> None:
    inputs, labels = data_of(name, 9)
    groups, weights = [2, 0, 2, 2, 1, 2, 4, 0, 1], [0.5, 1.0, 0.0, -2.0, 0.3, 1.0, 1.0, 0.7, 0.1]
    rows = oracle.per_item_gradients(model_of(name), inputs, labels)
    engine = ClippingEngine(FlatParameters(model_of(name)), physical_batch_size=capacity)
    total, norms = engine.clipped_sum(inputs, labels, clip_norm, torch.tensor(weights), torch.tensor(groups))
    gradients = oracle.group_gradients(rows, weights, groups)
    expected = oracle.clipped_group_sum(gradients, clip_norm)
    assert float((flat_in_order(engine, total) - expected).norm() / expected.norm()) < 1e-5
    assert norms.double().tolist() == pytest.approx([float(g.norm()) for g in gradients], rel=1e-5)


HEADS = ["head", "logistic", "head scaled", "head scaled in place", "head viewed", "head along"]


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("clip_norm", [0.5, 5.0, math.inf])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_pass_is_the_float64_loop(name: str, clip_norm: float, weighted: bool) -> None:
    inputs, labels = data_of(name, 6)
    weights = [0.5, 0.0, 1.0, 0.125, 1.0, 0.25] if weighted else [1.0] * 6
    rows = oracle.per_item_gradients(model_of(name), inputs, labels)
    engine = ClippingEngine(FlatParameters(model_of(name)))
    total, norms = engine.clipped_sum(inputs, labels, clip_norm, torch.tensor(weights) if weighted else None)
    expected = oracle.clipped_sum(rows, clip_norm, weights)
    assert float((flat_in_order(engine, total) - expected).norm() / expected.norm()) < 1e-5
    assert norms.double().tolist() == pytest.approx([oracle.norm(row) for row in rows], rel=1e-5)


def test_an_item_that_is_not_finite_contributes_nothing() -> None:
    inputs, labels = data_of("head", 5)
    engine = ClippingEngine(FlatParameters(model_of("head")))
    kept = torch.tensor([True, False, True, False, True])
    expected, norms = engine.clipped_sum(inputs[kept], labels[kept], 0.5)
    inputs[1], inputs[3] = math.inf, math.nan
    total, spoilt = engine.clipped_sum(inputs, labels, 0.5)
    assert float((total - expected).norm() / expected.norm()) < 1e-6
    assert spoilt[kept].tolist() == pytest.approx(norms.tolist()) and not spoilt[~kept].isfinite().any()


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("capacity", [4, 100])
def test_weighted_sums_without_clipping_are_those_of_the_float64_loop(name: str, capacity: int) -> None:
    inputs, labels = data_of(name, 6)
    weights = [0.5, 0.0, 1.0, -1.0, 2.0, 0.25]
    rows = oracle.per_item_gradients(model_of(name), inputs, labels)
    engine = ClippingEngine(FlatParameters(model_of(name)), physical_batch_size=capacity)
    expected = oracle.clipped_sum(rows, math.inf, weights)
    found = flat_in_order(engine, engine.gradient_sum(inputs, labels, torch.tensor(weights)))
    assert float((found - expected).norm() / expected.norm()) < 1e-5
