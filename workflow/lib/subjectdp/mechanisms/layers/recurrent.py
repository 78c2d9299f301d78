"""Stacked LSTM: one backward through time gives every gate's gradient, norms come from T x T Gram matrices.

For layer l with gate gradients D (T, B, 4H), inputs X (T, B, d) and states h, the gradients of W_ih, W_hh and the two
biases are Σ_t D_t ⊗ x_t, Σ_t D_t ⊗ h_{t-1}, Σ_t D_t, Σ_t D_t, so that their squared norms share one Gram of D:
Σ_{t,s} (D_t·D_s) (x_t·x_s + h_{t-1}·h_{s-1} + 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subjectdp.mechanisms.groups import Grouping, Run
from subjectdp.mechanisms.layers.base import (
    Coefficients,
    Squares,
    Sums,
    grouped,
    joined,
    product_squares,
    wanted,
)


class Recurrence(torch.autograd.Function):
    """h_t = LSTM(x̃_t, h_{t-1}) over time for projected inputs x̃ = W_ih x + b; gate order i, f, g, o."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, weight: Tensor) -> Tensor:
        """Projected inputs (T, B, 4H) and W_hh (4H, H) to states (T + 1, B, H): h_0 = 0, h_1 .. h_T."""
        steps, batch, width = projected.shape
        hidden = width // 4
        gates = projected.detach().clone()
        states = gates.new_zeros(steps + 1, batch, hidden)
        cells = gates.new_zeros(steps + 1, batch, hidden)
        squashed = gates.new_empty(steps, batch, hidden)
        transposed = weight.t()
        for t in range(steps):
            gate = gates[t].addmm_(states[t], transposed)
            gate[:, : 2 * hidden].sigmoid_()
            gate[:, 2 * hidden : 3 * hidden].tanh_()
            gate[:, 3 * hidden :].sigmoid_()
            i, f, g, o = (gate[:, k * hidden : (k + 1) * hidden] for k in range(4))
            torch.mul(f, cells[t], out=cells[t + 1])
            cells[t + 1].addcmul_(i, g)
            torch.tanh(cells[t + 1], out=squashed[t])
            torch.mul(o, squashed[t], out=states[t + 1])
        ctx.save_for_backward(gates, cells, squashed, weight)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The gradient of x̃, which is the gate gradient D itself."""
        (output_gradient,) = gradients
        gates, cells, squashed, weight = ctx.saved_tensors
        steps, batch, width = gates.shape
        hidden = width // 4
        i, f, g, o = (gates[..., k * hidden : (k + 1) * hidden] for k in range(4))
        # factors that do not depend on the recursion, for all steps at once
        delta = torch.cat(
            (g * i * (1 - i), cells[:-1] * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o)), dim=2
        )
        to_cell = o * (1 - squashed * squashed)
        cell_gradient = gates.new_zeros(batch, hidden)
        state_gradient = gates.new_zeros(batch, hidden)
        for t in range(steps - 1, -1, -1):
            state_gradient = state_gradient + output_gradient[t + 1]
            cell_gradient.addcmul_(state_gradient, to_cell[t])
            step = delta[t].view(batch, 4, hidden)
            step[:, :3].mul_(cell_gradient.unsqueeze(1))
            step[:, 3].mul_(state_gradient)
            cell_gradient.mul_(f[t])
            if t:
                state_gradient = delta[t] @ weight
        return delta, None


@dataclass
class _Layer:
    inputs: Tensor  # (T, B, d)
    states: Tensor  # (T + 1, B, H): h_0 = 0, h_1 .. h_T

    @property
    def previous(self) -> Tensor:
        """h_0 .. h_{T-1}."""
        return self.states[:-1]


class LSTMRule:
    """nn.LSTM, one direction, without projection; dropout between layers is not supported."""

    def forward(
        self, module: nn.LSTM, inputs: Tensor
    ) -> tuple[tuple[Tensor, None], list[Tensor], list[_Layer]]:
        current = inputs.transpose(0, 1) if module.batch_first else inputs
        projections, kept = [], []
        for layer in range(module.num_layers):
            bias = None
            if module.bias:
                bias = getattr(module, f"bias_ih_l{layer}") + getattr(module, f"bias_hh_l{layer}")
            projected = wanted(F.linear(current, getattr(module, f"weight_ih_l{layer}"), bias))
            states: Tensor = Recurrence.apply(  # type: ignore[no-untyped-call]
                projected, getattr(module, f"weight_hh_l{layer}")
            )
            projections.append(projected)
            kept.append(_Layer(current.detach(), states.detach()))
            current = states[1:]
        return (current.transpose(0, 1) if module.batch_first else current, None), projections, kept

    def captured(self, module: nn.LSTM, kept: list[_Layer], deltas: list[Tensor]) -> LSTMCaptured:
        return LSTMCaptured(kept, deltas, module.bias)


def supports(module: nn.LSTM) -> bool:
    """True for the LSTMs that the rule covers."""
    return not module.bidirectional and module.proj_size == 0 and module.dropout == 0.0


@dataclass
class LSTMCaptured:
    """Gate gradients (T, B, 4H), inputs and states of every layer."""

    layers: list[_Layer]
    deltas: list[Tensor]
    bias: bool

    def squared_norms(self, grouping: Grouping) -> Squares:
        parts = [joined([self._of_run(number, run) for run in grouping.runs]) for number in self._numbers]
        slacks = [part.slack for part in parts if part.slack is not None]
        return Squares(
            torch.stack([part.values for part in parts]).sum(0),
            torch.stack(slacks).sum(0) if slacks else None,
        )

    def _of_run(self, number: int, run: Run) -> Squares:
        layer = self.layers[number]
        delta, inputs, previous = (
            grouped(values.transpose(0, 1), run)
            for values in (self.deltas[number], layer.inputs, layer.previous)
        )
        return product_squares(delta, [inputs, previous], 2.0 * self.bias)

    def silence(self, items: Tensor, groups: Tensor | None) -> None:
        by_item = items.view(1, -1, 1)
        for number in self._numbers:
            layer = self.layers[number]
            self.deltas[number] = self.deltas[number].masked_fill(by_item, 0.0)
            self.layers[number] = _Layer(
                layer.inputs.masked_fill(by_item, 0.0), layer.states.masked_fill(by_item, 0.0)
            )

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        for number in self._numbers:
            layer = self.layers[number]
            rows = self.deltas[number].mul_(coefficients.items.view(1, -1, 1)).flatten(0, 1)
            into.add_product(f"weight_ih_l{number}", rows.t(), layer.inputs.flatten(0, 1))
            into.add_product(f"weight_hh_l{number}", rows.t(), layer.previous.flatten(0, 1))
            if self.bias:
                summed = rows.sum(0)
                into.add(f"bias_ih_l{number}", summed)
                into.add(f"bias_hh_l{number}", summed)

    @property
    def _numbers(self) -> range:
        return range(len(self.layers))
