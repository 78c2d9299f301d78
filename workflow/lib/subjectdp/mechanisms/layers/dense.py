"""Linear and embedding layers: outer products, never formed per item where a cheaper form exists."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subjectdp.mechanisms.layers.base import Sums, squared_rows, wanted


class LinearRule:
    """nn.Linear on (B, d) or (B, ..., d) inputs."""

    def forward(self, module: nn.Linear, inputs: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        output = wanted(F.linear(inputs, module.weight, module.bias))
        return output, [output], inputs.detach()

    def captured(
        self, module: nn.Linear, kept: Tensor, deltas: list[Tensor]
    ) -> LinearCaptured | SequenceCaptured:
        if kept.dim() == 2:
            return LinearCaptured(kept, deltas[0], module.bias is not None)
        return SequenceCaptured(kept.flatten(1, -2), deltas[0].flatten(1, -2), module.bias is not None)


@dataclass
class LinearCaptured:
    """Rank-one gradients: g_i = δ_i ⊗ x_i, so |g_i|² = |δ_i|² |x_i|²."""

    inputs: Tensor  # (B, d_in)
    delta: Tensor  # (B, d_out)
    bias: bool

    def squared_norms(self) -> Tensor:
        return squared_rows(self.delta) * (squared_rows(self.inputs) + float(self.bias))

    def add_weighted_sum(self, coefficients: Tensor, into: Sums) -> None:
        scaled = self.delta.mul_(coefficients.unsqueeze(1))
        into["weight"].addmm_(scaled.t(), self.inputs)
        if self.bias:
            into["bias"].add_(scaled.sum(0))


@dataclass
class SequenceCaptured:
    """Linear layer applied along T positions: g_i = Σ_t δ_it ⊗ x_it."""

    inputs: Tensor  # (B, T, d_in)
    delta: Tensor  # (B, T, d_out)
    bias: bool

    def squared_norms(self) -> Tensor:
        _, steps, d_in = self.inputs.shape
        d_out = self.delta.shape[2]
        if steps * (d_in + d_out) < d_in * d_out:  # Gram matrices are cheaper than the gradients themselves
            products = torch.bmm(self.inputs, self.inputs.transpose(1, 2))
            if self.bias:
                products.add_(1.0)
            grams = torch.bmm(self.delta, self.delta.transpose(1, 2))
            return grams.mul_(products).sum((1, 2)).clamp_min_(0.0)
        total = squared_rows(torch.bmm(self.delta.transpose(1, 2), self.inputs).flatten(1))
        return total + squared_rows(self.delta.sum(1)) if self.bias else total

    def add_weighted_sum(self, coefficients: Tensor, into: Sums) -> None:
        scaled = self.delta.mul_(coefficients.view(-1, 1, 1)).flatten(0, 1)
        into["weight"].addmm_(scaled.t(), self.inputs.flatten(0, 1))
        if self.bias:
            into["bias"].add_(scaled.sum(0))


class EmbeddingRule:
    """nn.Embedding on integer inputs (B, ...)."""

    def forward(self, module: nn.Embedding, inputs: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        output = wanted(F.embedding(inputs, module.weight))
        return output, [output], inputs

    def captured(self, module: nn.Embedding, kept: Tensor, deltas: list[Tensor]) -> EmbeddingCaptured:
        return EmbeddingCaptured(
            kept.flatten(1), deltas[0].flatten(1, -2), module.num_embeddings, module.padding_idx
        )


@dataclass
class EmbeddingCaptured:
    """Rows of the table that an item reads collect its deltas."""

    indices: Tensor  # (B, T)
    delta: Tensor  # (B, T, E)
    rows: int
    padding: int | None

    def __post_init__(self) -> None:
        if self.padding is not None:
            self.delta = self.delta * (self.indices != self.padding).unsqueeze(2)

    def squared_norms(self) -> Tensor:
        batch, steps, width = self.delta.shape
        if self.rows <= 4 * steps:  # a small table: each item's gradient fits
            offsets = torch.arange(batch, device=self.delta.device).unsqueeze(1) * self.rows
            table = self.delta.new_zeros(batch * self.rows, width)
            table.index_add_(0, (self.indices + offsets).flatten(), self.delta.flatten(0, 1))
            return squared_rows(table.view(batch, -1))
        same = self.indices.unsqueeze(2) == self.indices.unsqueeze(1)
        return (torch.bmm(self.delta, self.delta.transpose(1, 2)) * same).sum((1, 2)).clamp_min_(0.0)

    def add_weighted_sum(self, coefficients: Tensor, into: Sums) -> None:
        scaled = self.delta * coefficients.view(-1, 1, 1)
        into["weight"].index_add_(0, self.indices.flatten(), scaled.flatten(0, 1))
