"""Rules of all layers but convolutions and LSTMs.

Linear and embedding layers give outer products, formed per item only where nothing is cheaper. Scale and shift of
GroupNorm and LayerNorm have small per-item gradients, formed directly. Any other layer goes through per-item
vector-Jacobian products (torch.func): slow, general, exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from subjectdp.engine.groups import Grouping, Run
from subjectdp.engine.layers.base import (
    GRAM_ROUNDING,
    Coefficients,
    OwnForward,
    Squares,
    Sums,
    group_sums,
    grouped,
    joined,
    product_squares,
    squared_rows,
    summed,
    zeroed,
)


class LinearRule(OwnForward):
    """nn.Linear on (B, d) or (B, ..., d) inputs."""

    def captured(self, module: nn.Linear, kept: Tensor, deltas: list[Tensor]) -> LinearCaptured:
        if kept.dim() == 2:
            return LinearCaptured(kept.unsqueeze(1), deltas[0].unsqueeze(1), module.bias is not None)
        return LinearCaptured(kept.flatten(1, -2), deltas[0].flatten(1, -2), module.bias is not None)


@dataclass
class LinearCaptured:
    """A layer along T positions: g_i = Σ_t δ_it ⊗ x_it, of rank one where T = 1."""

    inputs: Tensor  # (B, T, d_in)
    delta: Tensor  # (B, T, d_out)
    bias: bool

    def squared_norms(self, grouping: Grouping) -> Squares:
        return joined([self._of_run(run) for run in grouping.runs])

    def _of_run(self, run: Run) -> Squares:
        inputs, delta = grouped(self.inputs, run), grouped(self.delta, run)
        if inputs.shape[1] == 1:  # |g_i|² = |δ_i|² (|x_i|² + 1)
            return Squares(squared_rows(delta[:, 0]) * (squared_rows(inputs[:, 0]) + float(self.bias)))
        return product_squares(delta, [inputs], float(self.bias))

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        self.inputs, self.delta = zeroed(self.inputs, items), zeroed(self.delta, items)

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        scaled = (self.delta * coefficients.items.view(-1, 1, 1)).flatten(0, 1)
        into.add_product("weight", scaled.t(), self.inputs.flatten(0, 1))
        if self.bias:
            into.add("bias", scaled.sum(0))


class EmbeddingRule(OwnForward):
    """nn.Embedding on integer inputs (B,) or (B, ...)."""

    def captured(self, module: nn.Embedding, kept: Tensor, deltas: list[Tensor]) -> EmbeddingCaptured:
        delta = deltas[0].reshape(len(kept), -1, module.embedding_dim)
        return EmbeddingCaptured(kept.reshape(len(kept), -1), delta, module.num_embeddings, module.padding_idx)


@dataclass
class EmbeddingCaptured:
    """An item's gradient: the deltas, added to the table's rows that the item reads."""

    indices: Tensor  # (B, T)
    delta: Tensor  # (B, T, E)
    rows: int
    padding: int | None

    def __post_init__(self) -> None:
        if self.padding is not None:
            self.delta = self.delta * (self.indices != self.padding).unsqueeze(2)

    def squared_norms(self, grouping: Grouping) -> Squares:
        return joined([self._of_run(run) for run in grouping.runs])

    def _of_run(self, run: Run) -> Squares:
        indices, delta = grouped(self.indices, run), grouped(self.delta, run)
        count, steps, width = delta.shape
        if steps == 1:  # one row of the table
            return Squares(squared_rows(delta[:, 0]))
        if self.rows <= 4 * steps:  # a small table: each group's gradient fits
            offsets = torch.arange(count, device=delta.device).unsqueeze(1) * self.rows
            table = delta.new_zeros(count * self.rows, width)
            table.index_add_(0, (indices + offsets).flatten(), delta.flatten(0, 1))
            return Squares(squared_rows(table.view(count, -1)))
        same = indices.unsqueeze(2) == indices.unsqueeze(1)
        products = torch.bmm(delta, delta.transpose(1, 2)).mul_(same)
        largest = products.diagonal(dim1=1, dim2=2).sqrt().sum(1).square_()
        return Squares(products.sum((1, 2)).clamp_min_(0.0), largest.mul_(GRAM_ROUNDING))

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        self.delta = zeroed(self.delta, items)

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        scaled = self.delta * coefficients.items.view(-1, 1, 1)
        into["weight"].index_add_(0, self.indices.flatten(), scaled.flatten(0, 1))


@dataclass
class TiedCaptured:
    """A table that a linear map reads too: ‖O + R‖² = ‖O‖² + ‖R‖² + 2 Σ_st δ_s[r_t] (x_s · d_t)."""

    linear: LinearCaptured
    table: EmbeddingCaptured

    def squared_norms(self, grouping: Grouping) -> Squares:
        return joined([self._of_run(run) for run in grouping.runs])

    def _of_run(self, run: Run) -> Squares:
        inputs, delta = grouped(self.linear.inputs, run), grouped(self.linear.delta, run)
        rows, own = grouped(self.table.indices, run), grouped(self.table.delta, run)
        read = delta.gather(2, rows.unsqueeze(1).expand(-1, delta.shape[1], -1))
        cross = read.mul_(torch.bmm(inputs, own.transpose(1, 2))).sum((1, 2))
        both = summed([product_squares(delta, [inputs], 0.0), self.table.squared_norms(Grouping((run,)))])
        longest = (delta.norm(dim=2) * inputs.norm(dim=2)).sum(1) + own.norm(dim=2).sum(1)
        return Squares((both.values + 2 * cross).clamp_min_(0.0), longest.square_().mul_(2 * GRAM_ROUNDING))

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        self.linear.zero_out(items, groups)
        self.table.zero_out(items, groups)

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        self.linear.add_weighted_sum(coefficients, into)
        self.table.add_weighted_sum(coefficients, into)


class GroupNormRule(OwnForward):
    """nn.GroupNorm on (B, C, ...)."""

    def captured(self, module: nn.GroupNorm, kept: Tensor, deltas: list[Tensor]) -> ItemGradients:
        over = tuple(range(2, kept.dim()))
        delta = deltas[0]
        scale, shift = delta * F.group_norm(kept, module.num_groups, None, None, module.eps), delta
        return ItemGradients(
            {"weight": scale.sum(over), "bias": shift.sum(over)} if over else {"weight": scale, "bias": shift}
        )


class LayerNormRule(OwnForward):
    """nn.LayerNorm over the last dimensions."""

    def captured(self, module: nn.LayerNorm, kept: Tensor, deltas: list[Tensor]) -> ItemGradients:
        over = tuple(range(1, kept.dim() - len(module.normalized_shape)))
        scale, shift = F.layer_norm(kept, module.normalized_shape, None, None, module.eps).mul_(deltas[0]), deltas[0]
        if over:
            scale, shift = scale.sum(over), shift.sum(over)
        return ItemGradients({"weight": scale} if module.bias is None else {"weight": scale, "bias": shift})


class GenericRule(OwnForward):
    """A layer with one tensor input (batch first) and one tensor output that treats items one by one."""

    def captured(self, module: nn.Module, kept: Tensor, deltas: list[Tensor]) -> ItemGradients:
        parameters = {name: p.detach() for name, p in module.named_parameters(recurse=False)}

        def gradients(item: Tensor, delta: Tensor) -> Any:
            # the layer must run its own forward, not the engine's recording one
            def run(values: dict[str, Tensor]) -> Tensor:
                result: Tensor = functional_call(
                    _Plain(module), {f"inner.{k}": v for k, v in values.items()}, item[None]
                )
                return result

            return vjp(run, parameters)[1](delta[None])[0]

        return ItemGradients(vmap(gradients)(kept, deltas[0]))


class _Plain(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = type(self.inner).forward(self.inner, inputs)
        return result


@dataclass
class ItemGradients:
    """Per-item gradients of each parameter, (B, ...)."""

    gradients: dict[str, Tensor]

    def squared_norms(self, grouping: Grouping) -> Squares:
        squares = [squared_rows(group_sums(g.flatten(1), grouping)) for g in self.gradients.values()]
        return Squares(torch.stack(squares).sum(0))

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        self.gradients = {name: zeroed(gradient, items) for name, gradient in self.gradients.items()}

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        for name, gradient in self.gradients.items():
            into.add(name, coefficients.items @ gradient.flatten(1))
