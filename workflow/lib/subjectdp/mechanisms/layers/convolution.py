"""2-D convolutions: per-item weight gradients by cache-blocked im2col, in channels-last memory.

The Gram ("ghost") form is never cheaper here: a 14x14 map has 196 positions, so the T x T products cost more than
the gradient itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subjectdp.mechanisms.groups import Grouping, Run
from subjectdp.mechanisms.layers.base import (
    Coefficients,
    Squares,
    Sums,
    group_sums,
    grouped,
    silenced,
    squared_rows,
    wanted,
)

_BLOCK = 4  # items whose im2col copy stays in cache
_KEEP_BYTES = (
    256 << 20
)  # per-item gradients up to this size are kept for the weighted sum, not computed again


class ConvolutionRule:
    """nn.Conv2d with zero padding and one group."""

    def forward(self, module: nn.Conv2d, inputs: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        convolved = F.conv2d(
            inputs, module.weight, module.bias, module.stride, module.padding, module.dilation
        )
        output = wanted(convolved)
        return output, [output], inputs.detach()

    def captured(self, module: nn.Conv2d, kept: Tensor, deltas: list[Tensor]) -> ConvolutionCaptured:
        return ConvolutionCaptured(module, kept, deltas[0].contiguous(memory_format=torch.channels_last))


def supports(module: nn.Conv2d) -> bool:
    """True where the rule's im2col covers the layer; others take the generic rule."""
    return module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)


def _padding(module: nn.Conv2d) -> tuple[int, int]:
    height, width = (int(extent) for extent in module.padding)
    return height, width


@dataclass
class ConvolutionCaptured:
    """Input (B, I, H, W) and output gradient (B, O, H', W'), both channels-last."""

    module: nn.Conv2d
    inputs: Tensor
    delta: Tensor

    def squared_norms(self, grouping: Grouping) -> Squares:
        rows = self.delta.permute(0, 2, 3, 1).flatten(1, 2)  # (B, H'W', O), a view
        self.bias_gradients = rows.sum(1) if self.module.bias is not None else None
        gradients = self._gradient_store(grouping.count)
        norms = rows.new_empty(grouping.count)
        first = 0
        for run in grouping.runs:
            at_once = max(1, _BLOCK // run.size)
            for group in range(0, run.groups, at_once):
                groups = min(at_once, run.groups - group)
                out = gradients[first : first + groups] if self.kept else gradients[:groups]
                self._block_gradients(rows, Run(run.start + group * run.size, groups, run.size), out)
                norms[first : first + groups] = squared_rows(out.flatten(1))
                first += groups
        self.gradients = gradients if self.kept else None
        if self.bias_gradients is not None:
            norms += squared_rows(group_sums(self.bias_gradients, grouping))
        return Squares(norms)

    def _block_gradients(self, rows: Tensor, block: Run, out: Tensor) -> None:
        """Writes the weight gradients of a few groups to ``out`` (groups, O, kh·kw·I)."""
        if block.size <= _BLOCK:
            columns = grouped(self._columns(self.inputs[block.items]), Run(0, block.groups, block.size))
            torch.bmm(grouped(rows, block).transpose(1, 2), columns, out=out)
            return
        for start in range(block.start, block.items.stop, _BLOCK):  # one large group, a few items at a time
            part = slice(start, min(start + _BLOCK, block.items.stop))
            columns = self._columns(self.inputs[part]).flatten(0, 1)
            beta = 0.0 if start == block.start else 1.0
            out[0].addmm_(rows[part].flatten(0, 1).t(), columns, beta=beta)

    def silence(self, items: Tensor, groups: Tensor | None) -> None:
        layout = torch.channels_last
        self.inputs = silenced(self.inputs, items).contiguous(memory_format=layout)
        self.delta = silenced(self.delta, items).contiguous(memory_format=layout)
        if groups is None:
            return
        if self.bias_gradients is not None:
            self.bias_gradients = silenced(self.bias_gradients, items)
        if self.gradients is not None:
            self.gradients.masked_fill_(groups.view(-1, 1, 1), 0.0)

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        if self.gradients is not None:
            out, inner, height, width = into.shape("weight")
            summed = coefficients.groups @ self.gradients.flatten(1)
            into.add("weight", summed.view(out, height, width, inner).permute(0, 3, 1, 2))
        else:
            into.add("weight", self._plain_weight_gradient(coefficients.items))
        if self.bias_gradients is not None:
            into.add("bias", coefficients.items @ self.bias_gradients)

    def _gradient_store(self, groups: int) -> Tensor:
        out, inner, height, width = self.module.weight.shape
        size = height * width * inner
        self.kept = groups * out * size * 4 <= _KEEP_BYTES
        return self.inputs.new_empty(groups if self.kept else _BLOCK, out, size)

    def _columns(self, inputs: Tensor) -> Tensor:
        """im2col of a few items: (n, H'W', kh·kw·I), a copy that stays in cache."""
        (kh, kw), (sh, sw) = self.module.kernel_size, self.module.stride
        (dh, dw), (ph, pw) = self.module.dilation, _padding(self.module)
        padded = F.pad(inputs.permute(0, 2, 3, 1), (0, 0, pw, pw, ph, ph))
        items, height, width, inner = padded.shape
        _, _, out_h, out_w = self.delta.shape
        row = width * inner
        windows = padded.as_strided(
            (items, out_h, out_w, kh, kw, inner),
            (height * row, sh * row, sw * inner, dh * row, dw * inner, 1),
        )
        return windows.reshape(items, out_h * out_w, kh * kw * inner)

    def _plain_weight_gradient(self, coefficients: Tensor) -> Tensor:
        module = self.module
        result = torch.ops.aten.convolution_backward(
            self.delta * coefficients.view(-1, 1, 1, 1),
            self.inputs,
            module.weight,
            None,
            list(module.stride),
            list(_padding(module)),
            list(module.dilation),
            False,
            [0, 0],
            1,
            [False, True, False],
        )
        gradient: Tensor = result[1]
        return gradient
