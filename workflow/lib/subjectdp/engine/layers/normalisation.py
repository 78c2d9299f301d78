"""GroupNorm and LayerNorm: scale and shift have small per-item gradients, formed directly."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from subjectdp.engine.groups import Grouping
from subjectdp.engine.layers.base import (
    Coefficients,
    Squares,
    Sums,
    group_sums,
    squared_rows,
    wanted,
    zeroed,
)


class GroupNormRule:
    """nn.GroupNorm on (B, C, ...)."""

    def forward(self, module: nn.GroupNorm, inputs: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        normed = F.group_norm(inputs, module.num_groups, None, None, module.eps)
        shape = (1, -1) + (1,) * (inputs.dim() - 2)
        output = wanted(normed * module.weight.view(shape) + module.bias.view(shape))
        return output, [output], normed.detach()

    def captured(self, module: nn.GroupNorm, kept: Tensor, deltas: list[Tensor]) -> AffineCaptured:
        over = tuple(range(2, kept.dim()))
        delta = deltas[0]
        if not over:
            return AffineCaptured(delta * kept, delta, True)
        return AffineCaptured((delta * kept).sum(over), delta.sum(over), True)


class LayerNormRule:
    """nn.LayerNorm over the last dimensions."""

    def forward(self, module: nn.LayerNorm, inputs: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        normed = F.layer_norm(inputs, module.normalized_shape, None, None, module.eps)
        scaled = normed * module.weight
        output = wanted(scaled if module.bias is None else scaled + module.bias)
        return output, [output], normed.detach()

    def captured(self, module: nn.LayerNorm, kept: Tensor, deltas: list[Tensor]) -> AffineCaptured:
        over = tuple(range(1, kept.dim() - len(module.normalized_shape)))
        scale, shift = deltas[0] * kept, deltas[0]
        if over:
            scale, shift = scale.sum(over), shift.sum(over)
        return AffineCaptured(scale.flatten(1), shift.flatten(1), module.bias is not None)


@dataclass
class AffineCaptured:
    """Per-item gradients of a scale and a shift, (B, size)."""

    scale: Tensor
    shift: Tensor
    bias: bool

    def squared_norms(self, grouping: Grouping) -> Squares:
        total = squared_rows(group_sums(self.scale, grouping))
        return Squares(total + squared_rows(group_sums(self.shift, grouping)) if self.bias else total)

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        self.scale, self.shift = zeroed(self.scale, items), zeroed(self.shift, items)

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        into.add("weight", coefficients.items @ self.scale)
        if self.bias:
            into.add("bias", coefficients.items @ self.shift)
