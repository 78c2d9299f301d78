"""The script that chooses the constants of the rule "Without tuning": its gradients, its noise, its choice."""

from __future__ import annotations

import itertools
import math

import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from benchmarks.untuned_rule import (
    RULES,
    SIGNALS,
    Federation,
    Row,
    Rule,
    federation_of,
    mean_direction,
    table_of,
    trained,
)
from subjectdp.accounting.gaussian import gdp_mu
from subjectdp.accounting.untuned import untuned_schedule


@pytest.fixture
def writers() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    sizes = (9, 4, 7)
    features = [torch.randn(size, 6, generator=generator) for size in sizes]
    return features, [torch.randint(0, 5, (size,), generator=generator) for size in sizes]


@pytest.mark.parametrize("spread", [1, 3])
def test_parts_count_by_the_direction_of_their_gradient(
    spread: int, writers: tuple[list[torch.Tensor], list[torch.Tensor]]
) -> None:
    """Against autograd, part by part; parts of unequal sizes are filled up."""
    features, labels = writers
    made = federation_of(features, labels, spread, "some")
    head = torch.randn(5, 6, generator=torch.Generator().manual_seed(6), requires_grad=True)
    directions = []
    for x, y in zip(features, labels, strict=True):
        kept = round(0.64 * len(y))
        for part in range(min(spread, kept)):
            loss = F.cross_entropy(x[:kept][part::spread] @ head.T, y[:kept][part::spread])
            (gradient,) = torch.autograd.grad(loss, head)
            directions.append(gradient / gradient.norm())
    expected = torch.stack(directions).mean(0)
    found = mean_direction(made, made.features @ made.features.mT, head.detach())
    torch.testing.assert_close(found, expected)
    assert len(made.test_labels) == sum(len(y) - round(0.64 * len(y)) for y in labels)


def test_the_noise_of_all_rounds_on_a_weight_is_kappa() -> None:
    """Without features there is noise alone; the mean of the last half has its share of it."""
    x, y = torch.zeros(1, 1, 200), torch.zeros(1, 1).long()
    nothing = Federation(x, y, x[0], y[0], "nothing")
    rounds, noise = 8, 0.7
    head = trained(nothing, torch.zeros(200, 200), 160.0, noise, rounds)
    shares = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25])  # in how many of the last four rounds' models
    expected = noise * math.sqrt(float(shares.square().sum()) / rounds)
    assert float(head.std()) == pytest.approx(expected, rel=0.02)


def test_a_rule_is_that_of_the_library() -> None:
    for subjects, weights, epsilon in itertools.product((20, 180, 3500), (7936, 10_320), (0.5, 4.0, 8.0)):
        found = untuned_schedule(subjects, weights, epsilon, 1e-5)
        noise, rounds = LIBRARY.schedule(subjects * gdp_mu(epsilon, 1e-5), weights)
        assert (noise, rounds) == (pytest.approx(found.weight_noise, abs=1e-4), found.rounds)


def test_the_rule_with_the_greatest_mean_comes_first() -> None:
    weights = 7936
    best = Rule(1.0, 2.0, 20, 80.0)
    rows = []
    for signal in SIGNALS:
        for noise, rounds in {rule.schedule(signal, weights) for rule in RULES}:
            aim, steps = best.schedule(signal, weights)
            away = abs(math.log(noise / aim)) + abs(math.log(rounds / steps))
            rows += [Row(number, 1, signal, noise, rounds, 0.9 - away / 100 + number) for number in (0, -0.1)]
    found = table_of(pd.DataFrame(rows, columns=Row._fields), weights)
    assert tuple(found.iloc[0])[:4] == (1.0, 2.0, 20, 80.0)
    assert found.accuracy.iloc[0] == pytest.approx(85.0)
    assert found.accuracy.is_monotonic_decreasing and len(found) == len(RULES)


LIBRARY = Rule(1.0, 4.0, 40, 20.0)
