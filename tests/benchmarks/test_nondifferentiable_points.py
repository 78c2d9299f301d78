"""Items near a non-differentiable point are found, on inputs whose distance from it is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from benchmarks.gate import gate_problem
from benchmarks.nondifferentiable_points import MARGIN, differentiable_items
from benchmarks.problem import make_problem

PLAIN = [[3.0, -1.0, 2.0, -4.0], [1.0, -3.0, 5.0, -1.0], [2.0, 1.0, -2.0, 1.5], [4.0, -2.0, 1.0, 6.0]]


def items(*changes: dict[tuple[int, int], float]) -> Tensor:
    """(B, 1, 4, 4) copies of one image, each with some values of its own."""
    images = torch.tensor(PLAIN, dtype=torch.float64).repeat(len(changes), 1, 1, 1)
    for image, values in zip(images, changes, strict=True):
        for (row, column), value in values.items():
            image[0, row, column] = value
    return images


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_only_items_away_from_relu_zeros_and_pooling_ties_are_kept(scale):
    model = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    near, far = MARGIN / 10, MARGIN * 100
    found = differentiable_items(
        model,
        scale
        * items(
            {},
            {(0, 1): near},  # a ReLU's input almost 0
            {(0, 1): far},
            {(2, 0): 4.0 + near},  # two of a window almost the same
            {(2, 0): 4.0 + far},
            {(0, 2): -1.0, (1, 2): -2.0},  # a window of zeros behind the ReLU
        ),
    )
    assert found.tolist() == [0, 2, 4, 5]


def test_functions_count_like_modules():
    class Functional(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return torch.max_pool2d(torch.relu(inputs), 2)

    assert differentiable_items(Functional(), items({}, {(0, 1): 1e-9}, {(2, 0): 4.0 + 1e-9})).tolist() == [0]


def test_the_gate_steps_on_differentiable_items_only(cases, monkeypatch):
    problem = make_problem(cases["cnn"])
    monkeypatch.setattr("benchmarks.gate.differentiable_items", lambda model, inputs: torch.tensor([1, 4]))
    tested = gate_problem(problem)
    assert torch.equal(tested.inputs, problem.inputs[[1, 4, 1, 4, 1, 4]])
    assert torch.equal(tested.labels, problem.labels[[1, 4, 1, 4, 1, 4]])
    assert tested.noise_multiplier == 0.0 and torch.equal(tested.owners, problem.owners)
