"""What a layer rule gives to the clipping engine, and helpers that the rules share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

Sums = Mapping[str, Tensor]  # parameter name within the layer -> view into the flat result


class Captured(Protocol):
    """One layer's part of the book-keeping of one batch, after the backward pass."""

    def squared_norms(self) -> Tensor:
        """(B,) squared L2 norm of each item's gradient of this layer's parameters."""
        ...

    def add_weighted_sum(self, coefficients: Tensor, into: Sums) -> None:
        """Adds Σ_i coefficients_i · g_i to each parameter's view; may spend the captured tensors."""
        ...


class LayerRule(Protocol):
    """Captures a layer in the forward pass and makes its :class:`Captured` once the output gradients are known."""

    def forward(self, module: Any, inputs: Tensor) -> tuple[Any, list[Tensor], Any]:
        """Runs the layer: output, the tensors whose gradients are wanted, and what to keep."""
        ...

    def captured(self, module: Any, kept: Any, deltas: list[Tensor]) -> Captured:
        """Joins what was kept with the gradients of the wanted tensors."""
        ...


def wanted(output: Tensor) -> Tensor:
    """Marks a layer's output as one whose gradient is wanted (the first layer's output is a leaf)."""
    return output if output.requires_grad else output.requires_grad_()


def squared_rows(rows: Tensor) -> Tensor:
    """(B,) squared L2 norm of each row of a (B, d) tensor."""
    squares: Tensor = torch.linalg.vector_norm(rows, dim=1).square_()
    return squares
