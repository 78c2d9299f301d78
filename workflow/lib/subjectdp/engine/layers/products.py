"""Products of activations with weights, by oneDNN if this build of PyTorch has it, else by its default library.

On CPUs not made by Intel oneDNN's float32 product is up to a fifth faster than MKL's, and it can keep a reused weight
in its own layout. The operators are those that torch.compile calls; their presence is checked. Results differ by
rounding only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_FEWEST = 1 << 23  # multiplications from which a call's overhead pays


def _operators() -> tuple[Any, Any] | None:
    if not (torch._C._has_mkldnn and torch._C.has_mkl):
        return None
    space = torch.ops.mkldnn
    if not (hasattr(space, "_linear_pointwise") and hasattr(space, "_reorder_linear_weight")):
        return None
    return space._linear_pointwise, space._reorder_linear_weight


_ONEDNN = _operators()


def _covered(inputs: Tensor, weight: Tensor, rows: int) -> bool:
    return (
        _ONEDNN is not None
        and inputs.device.type == "cpu"
        and inputs.dtype is torch.float32
        and weight.dtype is torch.float32
        and rows * weight.numel() >= _FEWEST
    )


def product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``inputs`` (..., d_in) · ``weight`` (d_out, d_in)ᵀ + ``bias``, without autograd."""
    if _ONEDNN is None or not _covered(inputs, weight, inputs.shape[:-1].numel()):
        return F.linear(inputs, weight, bias)
    result: Tensor = _ONEDNN[0](inputs, weight, bias, "none", [], "")
    return result


class Projection(torch.autograd.Function):
    """``product`` whose backward pass computes the inputs' gradient only, not the weight's."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """(..., d_in) to (..., d_out)."""
        ctx.save_for_backward(weight)
        return product(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None]:
        """(..., d_out) to (..., d_in)."""
        (weight,) = ctx.saved_tensors
        wanted = ctx.needs_input_grad[0]
        return product(gradients[0], weight.t()) if wanted else None, None, None


def projected(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer in the engine's forward pass."""
    result: Tensor = Projection.apply(inputs, weight, bias)  # type: ignore[no-untyped-call]
    return result


def repeated(weight: Tensor, rows: int) -> Callable[[Tensor, Tensor | None], Tensor]:
    """x (rows, d_in) · ``weight`` (d_out, d_in)ᵀ + addend, for many x: ``weight`` is laid out once."""
    if _ONEDNN is None or not _covered(weight, weight, rows):
        turned = weight.t()

        def plain(inputs: Tensor, addend: Tensor | None) -> Tensor:
            return torch.mm(inputs, turned) if addend is None else torch.addmm(addend, inputs, turned)

        return plain
    linear, reorder = _ONEDNN
    packed = reorder(weight.contiguous(), rows)

    def fast(inputs: Tensor, addend: Tensor | None) -> Tensor:
        if addend is None:
            result: Tensor = linear(inputs, packed, None, "none", [], "")
        else:
            result = linear.binary(inputs, addend, packed, None, "add")
        return result

    return fast
