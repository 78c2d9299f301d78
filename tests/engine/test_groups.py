"""Groups clipped as one, padding and overflow, against a float64 loop over items."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from engine import oracle
from engine.test_clipping import NAMES, data_of, engine_of, flat_in_order, model_of
from subjectdp.engine.batches import group_parts
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.errors import ConfigError, PrivacyError

pytestmark = pytest.mark.slow

GROUPS = [3, 0, 3, 7, 0, 3, 5, 3, 3]


@pytest.mark.parametrize("name", NAMES)
def test_clipped_groups_are_those_of_the_float64_loop(name: str) -> None:
    """Capacity 5 takes several passes, 4 is less than the largest group has."""
    inputs, labels = data_of(name, len(GROUPS))
    weights = torch.rand(len(GROUPS), generator=torch.Generator().manual_seed(2)) * 3
    gradients = oracle.group_gradients(oracle.per_item_gradients(model_of(name), inputs, labels), weights, GROUPS)
    lengths = gradients.norm(dim=1).tolist()
    for clip_norm in (0.01, sorted(lengths)[-2], math.inf):
        expected = oracle.clipped_sum(gradients, clip_norm)
        for capacity in (100, 5, 4):
            engine = engine_of(name, capacity)
            total, norms = engine.clipped_sum(inputs, labels, clip_norm, weights, torch.tensor(GROUPS))
            assert oracle.relative(flat_in_order(engine, total), expected) < 1e-5
            assert norms.double().tolist() == pytest.approx(lengths, rel=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    clip_norm=st.floats(1e-3, 10.0),
    groups=st.none() | st.lists(st.integers(0, 3), min_size=7, max_size=7),
    weights=st.lists(st.floats(-1.0, 1.0, width=32), min_size=7, max_size=7),
    capacity=st.sampled_from([2, 4, 100]),
    seed=st.integers(0, 2**31),
)
def test_one_item_or_group_moves_the_sum_by_at_most_clip_norm(
    clip_norm: float, groups: list[int] | None, weights: list[float], capacity: int, seed: int
) -> None:
    """However many items a group has; a group's weights count before it is clipped, an item's after."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(7, 1, 28, 28, generator=generator) * float(torch.rand(1, generator=generator)) * 50
    labels = torch.randint(0, 62, (7,), generator=generator)
    model = nn.Sequential(nn.Conv2d(1, 3, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(192, 62))
    engine = ClippingEngine(FlatParameters(model), capacity)
    units, w = torch.tensor(range(7) if groups is None else groups), torch.tensor(weights)
    w = w if groups is None else 5 * w
    keep = units != units[0]
    numbers, kept = (None, None) if groups is None else (units, units[keep])
    with_unit, _ = engine.clipped_sum(inputs, labels, clip_norm, w, numbers)
    without, _ = engine.clipped_sum(inputs[keep], labels[keep], clip_norm, w[keep], kept)
    assert float((with_unit.double() - without.double()).norm()) <= clip_norm * (1 + 1e-5)


@pytest.mark.parametrize("rest", [1e-4, 3e-4, 1e-3, 3e-3])
@pytest.mark.parametrize("pairs", [1, 20])
@pytest.mark.parametrize("name", ["leaf_cnn", "leaf_lstm", "words", "late convolutions"])
def test_gradients_that_almost_cancel_are_not_taken_for_short_ones(name: str, rest: float, pairs: int) -> None:
    """|Σ w_i g_i|² from products is wrong by a part of Σ|w_i g_i|²; the bound must hold all the same."""
    inputs, labels = data_of(name, 1)
    engine = engine_of(name)
    _, (norm,) = engine.clipped_sum(inputs, labels, 1.0)
    items = 2 * pairs
    many = inputs.repeat(items, *(1,) * (inputs.dim() - 1)), labels.repeat(items)
    for clip_norm in (0.2 * rest * float(norm), 0.9 * rest * float(norm)):
        weights = torch.tensor([1.0, -(1.0 - rest)]).repeat(pairs) / pairs
        total, _ = engine.clipped_sum(*many, clip_norm, weights, torch.zeros(items, dtype=torch.int64))
        assert float(total.double().norm()) <= clip_norm * (1 + 1e-2)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_padding_contributes_exactly_nothing(name: str, grouped: bool) -> None:
    """Items of weight 0, alone or in a group, with gradients that are finite, enormous or not numbers."""
    inputs, labels = data_of(name, 6)
    weights = torch.tensor([0.5, 0.0, 1.0, 1.0, 0.0, 0.25])
    groups = torch.tensor([0, 0, 1, 1, 2, 0]) if grouped else None
    engine = engine_of(name)
    kept = weights > 0
    others = None if groups is None else groups[kept]
    alone, _ = engine.clipped_sum(inputs[kept], labels[kept], 0.3, weights[kept], others)
    found = []
    for filler in (0.0, 1e30, math.inf, math.nan) if inputs.is_floating_point() else (1, 7):
        inputs[~kept] = filler
        found.append(engine.clipped_sum(inputs, labels, 0.3, weights, groups)[0])
    assert all(torch.equal(total, found[0]) for total in found[1:])
    assert oracle.relative(found[0], alone) < 1e-6


@pytest.mark.parametrize("name", ["leaf_cnn", "small_cnn", "every_layer"])
def test_a_group_with_an_item_that_is_not_finite_contributes_nothing(name: str) -> None:
    inputs, labels = data_of(name, 6)
    groups = torch.tensor([0, 1, 1, 2, 2, 0])
    keep = groups != 1
    for capacity in (100, 1):
        engine = engine_of(name, capacity)
        expected, _ = engine.clipped_sum(inputs[keep], labels[keep], 1.0, groups=groups[keep])
        spoilt = inputs.clone()
        spoilt[2, 0, 3, 3] = math.inf
        total, norms = engine.clipped_sum(spoilt, labels, 1.0, groups=groups)
        assert torch.isfinite(norms).tolist() == [True, False, True]
        assert oracle.relative(total, expected) < 1e-6


def test_clip_norms_may_differ_between_groups_and_items() -> None:
    inputs, labels = data_of("small_cnn", 4)
    engine = engine_of("small_cnn", 2)
    for groups in (None, torch.tensor([2, 0, 1, 3])):
        bounds = torch.tensor([0.1, 0.2, 0.3, 0.4])
        total, _ = engine.clipped_sum(inputs, labels, bounds, groups=groups)
        of_items = bounds if groups is None else bounds[groups]
        parts = [engine.clipped_sum(inputs[i : i + 1], labels[i : i + 1], float(of_items[i]))[0] for i in range(4)]
        assert oracle.relative(total, torch.stack(parts).sum(0)) < 1e-6


@settings(max_examples=100, deadline=None)
@given(numbers=st.lists(st.integers(0, 6), min_size=1, max_size=25), capacity=st.integers(1, 12))
def test_parts_hold_every_item_once_and_groups_whole(numbers: list[int], capacity: int) -> None:
    seen_items: list[int] = []
    seen_groups: list[int] = []
    for part in group_parts(torch.tensor(numbers), capacity):
        items, groups = part.items.tolist(), part.groups.tolist()
        assert len(items) <= capacity or len(groups) == 1
        owners = part.grouping.to_items(torch.tensor(groups)).tolist()
        assert [numbers[i] for i in items] == owners
        assert sum(run.groups * run.size for run in part.grouping.runs) == len(items)
        for group in groups:
            assert owners.count(group) == numbers.count(group)
        seen_items += items
        seen_groups += groups
    assert sorted(seen_items) == list(range(len(numbers)))
    assert sorted(seen_groups) == sorted(set(numbers))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"groups": torch.tensor([0, 1])}, r"groups to be one number an item, shape \(3,\)"),
        ({"groups": torch.tensor([0.0, 1.0, 1.0])}, "type of groups"),
        ({"groups": torch.tensor([True, False, True])}, "type of groups"),
        ({"groups": torch.tensor([0, -1, 2])}, "groups to be numbers from 0 on, got -1"),
        ({"weights": torch.ones(2)}, "weights to be one an item"),
    ],
)
def test_groups_and_weights_that_are_none_and_no_capacity_are_refused(wrong: dict[str, Tensor], message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        engine_of("small_cnn").clipped_sum(*data_of("small_cnn", 3), 1.0, **wrong)
    with pytest.raises(ConfigError, match="physical_batch_size to be at least 1, got 0"):
        engine_of("small_cnn", 0)
