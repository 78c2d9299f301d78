"""Layers of several silos at once: each silo's items meet the silo's own weights, in one batched matrix product.

The batch is silo-major: items 0 .. B-1 are the first silo's, the next B the second's. What a layer's item is made of
does not change, so that norms come from the layers' own rules; products with weights are over (silos, ...) tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subjectdp.engine.groups import Grouping
from subjectdp.engine.layers.base import (
    Captured,
    Coefficients,
    LayerRule,
    Squares,
    Sums,
    product_squares,
    silenced,
    summed,
    wanted,
)
from subjectdp.engine.layers.dense import EmbeddingRule, LinearRule

Weights = Mapping[str, Tensor]  # parameter name within the layer -> (silos, ...)


class StackedLinearRule:
    """nn.Linear on (silos·B, ..., d) inputs."""

    def __init__(self, weights: Weights) -> None:
        self._weight, self._bias = weights["weight"], weights.get("bias")

    def forward(self, module: nn.Linear, inputs: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        rows = inputs.reshape(len(self._weight), -1, inputs.shape[-1])
        product = torch.bmm(rows, self._weight.transpose(1, 2))
        if self._bias is not None:
            product = product + self._bias.unsqueeze(1)
        output = wanted(product.view(*inputs.shape[:-1], -1))
        return output, [output], inputs.detach()

    def captured(self, module: nn.Linear, kept: Tensor, deltas: list[Tensor]) -> StackedLinearCaptured:
        plain = LinearRule().captured(module, kept, [deltas[0]])
        return StackedLinearCaptured(plain, kept, deltas[0], len(self._weight))


@dataclass
class StackedLinearCaptured:
    """Inputs (silos·B, ..., d_in) and output gradients (silos·B, ..., d_out)."""

    plain: Captured
    inputs: Tensor
    delta: Tensor
    silos: int

    def squared_norms(self, grouping: Grouping) -> Squares:
        return self.plain.squared_norms(grouping)

    def silence(self, items: Tensor, groups: Tensor | None) -> None:
        self.plain.silence(items, groups)
        self.inputs, self.delta = silenced(self.inputs, items), silenced(self.delta, items)

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        scaled = self.delta * coefficients.items.view(-1, *[1] * (self.delta.dim() - 1))
        rows = self.inputs.reshape(self.silos, -1, self.inputs.shape[-1])
        scaled = scaled.reshape(self.silos, -1, scaled.shape[-1])
        into["weight"].baddbmm_(scaled.transpose(1, 2), rows)
        if "bias" in into:
            into["bias"].add_(scaled.sum(1))


class StackedEmbeddingRule:
    """nn.Embedding on integer inputs (silos·B, ...): one table below the other."""

    def __init__(self, weights: Weights) -> None:
        self._tables = weights["weight"]

    def forward(self, module: nn.Embedding, inputs: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        output = wanted(F.embedding(_below(inputs, self._tables), self._tables.flatten(0, 1)))
        return output, [output], inputs

    def captured(self, module: nn.Embedding, kept: Tensor, deltas: list[Tensor]) -> StackedEmbeddingCaptured:
        plain = EmbeddingRule().captured(module, kept, deltas)
        return StackedEmbeddingCaptured(plain, _below(kept, self._tables), deltas[0], module.padding_idx)


@dataclass
class StackedEmbeddingCaptured:
    """Rows (silos·B, ...) of all tables, and what reached them."""

    plain: Captured
    rows: Tensor
    delta: Tensor
    padding: int | None

    def squared_norms(self, grouping: Grouping) -> Squares:
        return self.plain.squared_norms(grouping)

    def silence(self, items: Tensor, groups: Tensor | None) -> None:
        self.plain.silence(items, groups)
        self.delta = silenced(self.delta, items)

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        tables = into["weight"]
        scaled = self.delta * coefficients.items.view(-1, *[1] * (self.delta.dim() - 1))
        gradient = tables.new_zeros(tables.shape[0] * tables.shape[1], tables.shape[2])
        gradient.index_add_(0, self.rows.flatten(), scaled.flatten(0, -2))
        gradient = gradient.view(tables.shape)
        if self.padding is not None:
            gradient[:, self.padding] = 0.0
        tables.add_(gradient)


def _below(indices: Tensor, tables: Tensor) -> Tensor:
    """Indices (silos·B, ...) into the silos' tables, (silos, rows, width), laid one below the other."""
    silos, rows, _ = tables.shape
    first = torch.arange(silos, device=indices.device).view(-1, *[1] * indices.dim()) * rows
    return (indices.view(silos, -1, *indices.shape[1:]) + first).view(indices.shape)


class StackedRecurrence(torch.autograd.Function):
    """``recurrent.Recurrence`` for (silos, T, B, 4H) inputs and (silos, 4H, H) weights: states (silos, T, B, H)."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, weight: Tensor) -> Tensor:
        """Gate order i, f, g, o; from zero states."""
        silos, steps, batch, width = projected.shape
        hidden = width // 4
        gates = projected.detach().clone()
        states = gates.new_zeros(silos, steps + 1, batch, hidden)
        cells = gates.new_zeros(silos, steps + 1, batch, hidden)
        squashed = gates.new_empty(silos, steps, batch, hidden)
        transposed = weight.transpose(1, 2)
        for t in range(steps):
            gate = gates[:, t].baddbmm_(states[:, t], transposed)
            gate[..., : 2 * hidden].sigmoid_()
            gate[..., 2 * hidden : 3 * hidden].tanh_()
            gate[..., 3 * hidden :].sigmoid_()
            i, f, g, o = gate.chunk(4, dim=-1)
            cell = cells[:, t + 1].copy_(f * cells[:, t]).addcmul_(i, g)
            squashed[:, t] = cell.tanh()
            states[:, t + 1] = o * squashed[:, t]
        ctx.save_for_backward(gates, cells, squashed, weight)
        return states[:, 1:]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The gradient of the inputs, which is the gate gradient itself."""
        (output_gradient,) = gradients
        gates, cells, squashed, weight = ctx.saved_tensors
        silos, steps, batch, width = gates.shape
        hidden = width // 4
        i, f, g, o = gates.chunk(4, dim=-1)
        delta = torch.cat(
            (g * i * (1 - i), cells[:, :-1] * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o)), dim=-1
        )
        to_cell = o * (1 - squashed * squashed)
        cell_gradient = gates.new_zeros(silos, batch, hidden)
        state_gradient = gates.new_zeros(silos, batch, hidden)
        for t in range(steps - 1, -1, -1):
            state_gradient = state_gradient + output_gradient[:, t]
            cell_gradient.addcmul_(state_gradient, to_cell[:, t])
            step = delta[:, t].view(silos, batch, 4, hidden)
            step[..., :3, :].mul_(cell_gradient.unsqueeze(-2))
            step[..., 3, :].mul_(state_gradient)
            cell_gradient.mul_(f[:, t])
            if t:
                state_gradient = torch.bmm(delta[:, t], weight)
        return delta, None


class StackedLSTMRule:
    """nn.LSTM, batch first, as ``recurrent.LSTMRule`` covers it."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights

    def forward(self, module: nn.LSTM, inputs: Tensor) -> tuple[tuple[Tensor, None], list[Tensor], Any]:
        silos = len(self._weights["weight_ih_l0"])
        current = inputs.view(silos, -1, *inputs.shape[1:]).transpose(1, 2)  # (silos, T, B, d)
        projections, kept = [], []
        for layer in range(module.num_layers):
            rows = current.reshape(silos, -1, current.shape[-1])
            product = torch.bmm(rows, self._weights[f"weight_ih_l{layer}"].transpose(1, 2))
            if module.bias:
                bias = self._weights[f"bias_ih_l{layer}"] + self._weights[f"bias_hh_l{layer}"]
                product = product + bias.unsqueeze(1)
            projected = wanted(product.view(*current.shape[:3], -1))
            states: Tensor = StackedRecurrence.apply(  # type: ignore[no-untyped-call]
                projected, self._weights[f"weight_hh_l{layer}"]
            )
            projections.append(projected)
            kept.append((current.detach(), states.detach()))
            current = states
        output = current.transpose(1, 2).flatten(0, 1)
        return (output, None), projections, kept

    def captured(self, module: nn.LSTM, kept: Any, deltas: list[Tensor]) -> StackedLSTMCaptured:
        return StackedLSTMCaptured(kept, deltas, module.bias)


@dataclass
class StackedLSTMCaptured:
    """Of every layer: inputs (silos, T, B, d), states (silos, T, B, H) and gate gradients (silos, T, B, 4H)."""

    layers: list[tuple[Tensor, Tensor]]
    deltas: list[Tensor]
    bias: bool

    def squared_norms(self, grouping: Grouping) -> Squares:
        """Those of the items, whose silo does not matter (see ``recurrent``)."""
        return summed(
            [
                product_squares(_items(delta), [_items(inputs), _items(_previous(states))], 2.0 * self.bias)
                for (inputs, states), delta in zip(self.layers, self.deltas, strict=True)
            ]
        )

    def silence(self, items: Tensor, groups: Tensor | None) -> None:
        marked = items.view(self.deltas[0].shape[0], 1, -1, 1)
        self.deltas = [delta.masked_fill(marked, 0.0) for delta in self.deltas]
        self.layers = [(x.masked_fill(marked, 0.0), h.masked_fill(marked, 0.0)) for x, h in self.layers]

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        for number, ((inputs, states), delta) in enumerate(zip(self.layers, self.deltas, strict=True)):
            silos, _, batch, _ = delta.shape
            scaled = (delta * coefficients.items.view(silos, 1, batch, 1)).flatten(1, 2)
            turned = scaled.transpose(1, 2)
            into[f"weight_ih_l{number}"].baddbmm_(turned, inputs.reshape(silos, -1, inputs.shape[-1]))
            into[f"weight_hh_l{number}"].baddbmm_(turned, _previous(states).flatten(1, 2))
            if self.bias:
                summed = scaled.sum(1)
                into[f"bias_ih_l{number}"].add_(summed)
                into[f"bias_hh_l{number}"].add_(summed)


def _items(rows: Tensor) -> Tensor:
    """(silos, T, B, d) as (silos·B, T, d)."""
    return rows.transpose(1, 2).flatten(0, 1)


def _previous(states: Tensor) -> Tensor:
    """h_0 .. h_{T-1} for h_1 .. h_T, with h_0 = 0."""
    return torch.cat((torch.zeros_like(states[:, :1]), states[:, :-1]), dim=1)


RULES: dict[type[nn.Module], type[StackedLinearRule] | type[StackedEmbeddingRule] | type[StackedLSTMRule]] = {
    nn.Linear: StackedLinearRule,
    nn.Embedding: StackedEmbeddingRule,
    nn.LSTM: StackedLSTMRule,
}


def stacked_rule(module: nn.Module, weights: Weights) -> LayerRule:
    """The rule of a layer of one of the types in ``RULES``."""
    return RULES[type(module)](weights)
