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

from subjectdp.engine.batches import Grouping, Run
from subjectdp.engine.rules import Coefficients, Squares, Sums, grouped, joined, product_squares, summed, wanted


class Recurrence(torch.autograd.Function):
    """h_t = LSTM(x̃_t, h_{t-1}) over time for projected inputs x̃ = W_ih x + b; gate order i, f, g, o.
    The gates' values, and in the one backward pass their gradients, overwrite x̃, to save a copy of that size."""

    @staticmethod
    def forward(ctx: Any, gate_inputs: Tensor, weight: Tensor) -> Tensor:
        """Projected inputs (T, B, 4H) and W_hh (4H, H) to states (T + 1, B, H): h_0 = 0, h_1 .. h_T."""
        steps, batch, width = gate_inputs.shape
        hidden = width // 4
        gates = gate_inputs.data  # the same memory, outside of autograd: nothing reads x̃ again
        states, cells = (gates.new_empty(steps + 1, batch, hidden) for _ in range(2))
        squashed = gates.new_empty(steps, batch, hidden)
        states[0].zero_()
        cells[0].zero_()
        turned = weight.t()
        for t in range(steps):
            i, f, g, o = torch.split(gates[t].addmm_(states[t], turned), hidden, dim=1)
            for gate in (i, f, o):
                gate.sigmoid_()
            cell = torch.mul(f, cells[t], out=cells[t + 1]).addcmul_(i, g.tanh_())
            torch.mul(o, torch.tanh(cell, out=squashed[t]), out=states[t + 1])
        ctx.save_for_backward(gates, cells, squashed, weight)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The gradient of x̃, which is the gate gradient D itself."""
        (output_gradient,) = gradients
        gates, cells, squashed, weight = ctx.saved_tensors
        steps, batch, width = gates.shape
        hidden = width // 4
        sigmoid, tanh = (getattr(torch.ops.aten, f"{name}_backward").grad_input for name in ("sigmoid", "tanh"))
        of_cell, of_state = gates.new_zeros(batch, hidden), gates.new_zeros(batch, hidden)
        of_i, of_f, of_g, product = (torch.empty_like(of_cell) for _ in range(4))
        for t in range(steps - 1, -1, -1):
            i, f, g, o = torch.split(gates[t], hidden, dim=1)
            of_state.add_(output_gradient[t + 1])
            torch.mul(of_state, o, out=product)
            of_cell.add_(tanh(product, squashed[t], grad_input=product))
            torch.mul(of_cell, g, out=of_i)
            torch.mul(of_cell, cells[t], out=of_f)
            torch.mul(of_cell, i, out=of_g)
            of_cell.mul_(f)
            sigmoid(of_i, i, grad_input=i)
            sigmoid(of_f, f, grad_input=f)
            tanh(of_g, g, grad_input=g)
            sigmoid(of_state.mul_(squashed[t]), o, grad_input=o)
            if t:
                of_state = torch.mm(gates[t], weight)
        return gates, None


@dataclass
class _Layer:
    inputs: Tensor  # (T, B, d)
    states: Tensor  # (T + 1, B, H): h_0 = 0, h_1 .. h_T

    @property
    def previous(self) -> Tensor:
        return self.states[:-1]


def forward(module: nn.LSTM, inputs: Tensor) -> tuple[tuple[Tensor, None], list[Tensor], list[_Layer]]:
    """nn.LSTM in one direction, without projection and without dropout between layers; in float32 always.
    Of a model that reads the last states no LSTM has this rule."""
    projections, kept = [], []
    with torch.autocast(inputs.device.type, enabled=False):
        current = (inputs.transpose(0, 1) if module.batch_first else inputs).float()
        for layer in range(module.num_layers):
            bias = None
            if module.bias:
                bias = getattr(module, f"bias_ih_l{layer}") + getattr(module, f"bias_hh_l{layer}")
            of_inputs, of_states = (getattr(module, f"weight_{kind}_l{layer}") for kind in ("ih", "hh"))
            inputs_of_gates = wanted(F.linear(current, of_inputs, bias))
            states: Tensor = Recurrence.apply(inputs_of_gates, of_states)  # type: ignore[no-untyped-call]
            projections.append(inputs_of_gates)
            kept.append(_Layer(current.detach(), states.detach()))
            current = states[1:]
    return ((current.transpose(0, 1) if module.batch_first else current), None), projections, kept


def captured(module: nn.LSTM, kept: list[_Layer], deltas: list[Tensor]) -> LSTMCaptured:
    """Of every layer, what :func:`forward` kept."""
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
        return summed([joined([self._of_run(number, run) for run in grouping.runs]) for number in self._numbers])

    def _of_run(self, number: int, run: Run) -> Squares:
        layer = self.layers[number]
        of_layer = self.deltas[number], layer.inputs, layer.previous
        delta, inputs, previous = (grouped(values.transpose(0, 1), run) for values in of_layer)
        return product_squares(delta, [inputs, previous], 2.0 * self.bias)

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        by_item = items.view(1, -1, 1)
        for number in self._numbers:
            layer = self.layers[number]
            self.deltas[number] = self.deltas[number].masked_fill(by_item, 0.0)
            self.layers[number] = _Layer(layer.inputs.masked_fill(by_item, 0.0), layer.states.masked_fill(by_item, 0.0))

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
