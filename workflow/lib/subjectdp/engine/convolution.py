"""2-D convolutions: per-item weight gradients by cache-blocked im2col, in channels-last memory.

Of layers whose gradients would be far larger than what they are made of, as the last of a residual network, only the
norms are computed, often by products of their few positions; the weighted sum is a plain gradient of scaled deltas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from subjectdp.engine.batches import Grouping, Run
from subjectdp.engine.flat import row_norms
from subjectdp.engine.rules import (
    Coefficients,
    Squares,
    Sums,
    group_sums,
    grouped,
    joined,
    own_forward,
    product_squares,
    squared_rows,
    summed,
    zeroed,
)

_CPU_BLOCK = 4  # items whose im2col copy stays in cache
_GPU_FLOATS = 1 << 27  # of it at once: on a GPU few launches matter more than cache
_KEPT = 3  # times as large as what they are made of, gradients are kept for the weighted sum, else the latter
_SMALL = 5_000_000  # numbers (20 MB): at most so many are kept as well where products save no time
_CHEAP = 4  # times as large as columns and output gradients: from there on products do


def forward(module: nn.Module, inputs: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
    """The layer's own, in channels-last memory."""
    return own_forward(module, inputs.contiguous(memory_format=torch.channels_last))


def captured(module: nn.Conv2d, kept: Tensor, deltas: list[Tensor]) -> ConvolutionCaptured:
    """nn.Conv2d with zero padding and one group."""
    return ConvolutionCaptured(module, kept, deltas[0].contiguous(memory_format=torch.channels_last))


def supports(module: nn.Conv2d) -> bool:
    """True where the rule's im2col covers the layer."""
    return module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)


def _padding(module: nn.Conv2d) -> tuple[int, int]:
    height, width = (int(extent) for extent in module.padding)
    return height, width


@dataclass
class ConvolutionCaptured:
    """Input (B, I, H, W) and output gradient (B, O, H', W'), both channels-last; freed once the gradients are kept."""

    module: nn.Conv2d
    inputs: Tensor
    delta: Tensor
    gradients: Tensor | None = None  # (groups, O·kh·kw·I), where they are kept
    bias_gradients: Tensor | None = None  # (groups, O)

    def squared_norms(self, grouping: Grouping) -> Squares:
        rows = self.delta.permute(0, 2, 3, 1).flatten(1, 2)  # (B, H'W', O), a view
        self.kept = self._worth_keeping(grouping.count, len(rows) * rows.shape[1])
        squares = [self._in_blocks(rows, grouping)]
        if self.module.bias is not None:
            self.bias_gradients = group_sums(rows.sum(1), grouping)
            squares.append(Squares(squared_rows(self.bias_gradients)))
        if self.kept:
            self.inputs = self.delta = self.delta.new_empty(0)
        else:
            squares.append(self._added_up(rows, grouping))
        return summed(squares)

    def _worth_keeping(self, groups: int, positions: int) -> bool:
        weight = self.module.weight
        gradients, columns = groups * weight.numel(), positions * (weight[0].numel() + len(weight))
        made_of = self.inputs.numel() + self.delta.numel()
        return gradients <= max(_KEPT * made_of, min(_SMALL, _CHEAP * columns))

    def _added_up(self, rows: Tensor, grouping: Grouping) -> Squares:
        """Of the weighted sum, which is computed otherwise than the norms."""
        kh, kw = self.module.kernel_size  # so many columns hold a number of the input
        longest = row_norms(rows.flatten(1)) * row_norms(self.inputs.permute(0, 2, 3, 1).flatten(1))
        added = group_sums(longest.unsqueeze(1), grouping).squeeze(1).square_().mul_(kh * kw)
        return Squares(torch.zeros_like(added), added)

    def _in_blocks(self, rows: Tensor, grouping: Grouping) -> Squares:
        size = self.module.weight[0].numel()
        columns = _Columns(self.inputs, self.delta, self.module, _block(rows, size))
        gradients = rows.new_empty(grouping.count if self.kept else 1, rows.shape[2], size)
        squares, first = [], 0
        for block in _blocks(grouping, columns.block):
            if self.kept or block.size > columns.block:
                out = gradients[first : first + block.groups] if self.kept else gradients
                _block_gradients(rows, columns, block, out)
                squares.append(Squares(squared_rows(out.flatten(1))))
            else:
                squares.append(product_squares(grouped(rows, block), [columns.grouped(block)], 0.0))
            first += block.groups
        self.gradients = gradients.flatten(1) if self.kept else None
        return Squares(joined(squares).values)  # the sum adds up other parts

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        if self.gradients is None:
            layout = torch.channels_last
            self.inputs = zeroed(self.inputs, items).contiguous(memory_format=layout)
            self.delta = zeroed(self.delta, items).contiguous(memory_format=layout)
        elif groups is not None:
            self.gradients = zeroed(self.gradients, groups)
        if self.bias_gradients is not None and groups is not None:
            self.bias_gradients = zeroed(self.bias_gradients, groups)

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        if self.gradients is None:
            into.add("weight", self._plain_weight_gradient(coefficients.items))
        else:
            out, inner, height, width = self.module.weight.shape
            total = (coefficients.groups @ self.gradients).view(out, height, width, inner)
            into.add("weight", total.permute(0, 3, 1, 2))
        if self.bias_gradients is not None:
            into.add("bias", coefficients.groups @ self.bias_gradients)

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


class _Columns:
    def __init__(self, inputs: Tensor, delta: Tensor, module: nn.Conv2d, block: int) -> None:
        (ph, pw), (kh, kw) = _padding(module), module.kernel_size
        (sh, sw), (dh, dw) = module.stride, module.dilation
        self._inputs = inputs.permute(0, 2, 3, 1)
        _, height, width, inner = self._inputs.shape
        _, _, self._out_h, self._out_w = delta.shape
        self.block = block
        self._padded = inputs.new_zeros(block, height + 2 * ph, width + 2 * pw, inner)
        self._inside = self._padded[:, ph : ph + height, pw : pw + width]
        row = self._padded.stride(1)
        # without dilation the columns of a kernel's row are contiguous: kw·I numbers
        taps = (kh, kw * inner) if dw == 1 else (kh, kw, inner)
        steps = (dh * row, 1) if dw == 1 else (dh * row, dw * inner, 1)
        self._windows = self._padded.as_strided(
            (block, self._out_h, self._out_w, *taps), (self._padded.stride(0), sh * row, sw * inner, *steps)
        )
        self._columns = inputs.new_empty(block, self._out_h, self._out_w, *taps)

    def of(self, items: slice) -> Tensor:
        """(items, H'W', kh·kw·I), valid until the next call."""
        inputs = self._inputs[items]
        count = len(inputs)
        self._inside[:count].copy_(inputs)
        self._columns[:count].copy_(self._windows[:count])
        return self._columns[:count].view(count, self._out_h * self._out_w, -1)

    def grouped(self, block: Run) -> Tensor:
        """(groups, size·H'W', kh·kw·I), valid until the next call."""
        columns = self.of(block.items)
        return columns.view(block.groups, -1, columns.shape[2])


def _block(rows: Tensor, size: int) -> int:
    """Items whose columns, ``size`` numbers a position, and gradients are made at once."""
    if rows.device.type == "cpu":
        return _CPU_BLOCK
    return min(len(rows), max(1, _GPU_FLOATS // (size * max(rows.shape[1:]))))


def _blocks(grouping: Grouping, most: int) -> Iterator[Run]:
    """Some groups of one size at a time, of at most so many items together, or one group."""
    for run in grouping.runs:
        at_once = max(1, most // run.size)
        for group in range(0, run.groups, at_once):
            yield Run(run.start + group * run.size, min(at_once, run.groups - group), run.size)


def _block_gradients(rows: Tensor, columns: _Columns, block: Run, out: Tensor) -> None:
    items, at_once = block.items, columns.block
    if block.size <= at_once:
        torch.bmm(grouped(rows, block).transpose(1, 2), columns.grouped(block), out=out)
        return
    for start in range(items.start, items.stop, at_once):  # one large group, a few items at a time
        part = slice(start, min(start + at_once, items.stop))
        beta = 0.0 if start == items.start else 1.0
        out[0].addmm_(rows[part].flatten(0, 1).t(), columns.of(part).flatten(0, 1), beta=beta)
