"""Items on which the model is numerically non-differentiable: a ReLU input near 0, or a tie in a max-pooling window.

At such a point float32 and float64 may take different sides. Both gradients are right, and differ by far more than
rounding. The correctness gate compares on the other items.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

MARGIN = 3e-6  # relative to an activation's root mean square; float32 is off by a tenth of that
_CHUNK = 32


class _Margins(TorchFunctionMode):
    """Records each item's smallest distance from a non-differentiable point, relative to the root mean square."""

    def __init__(self, items: int) -> None:
        super().__init__()
        self.smallest = torch.full((items,), float("inf"), dtype=torch.float64)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("relu", "max_pool2d"):
            values = args[0].detach()
            with torch._C.DisableTorchFunction():
                gaps = values.abs() if name == "relu" else _gaps(values, *args[1:3])
                scale = values.flatten(1).square().mean(1).sqrt()
                self.smallest = torch.minimum(self.smallest, gaps.flatten(1).min(1).values / scale)
        return func(*args, **(kwargs or {}))


def _gaps(values: Tensor, kernel: Any, stride: Any = None) -> Tensor:
    """(B, windows) gap between a window's two largest values; infinite if all are 0, where the gradient is 0."""
    windows = F.unfold(values.flatten(0, 1).unsqueeze(1), kernel, stride=stride or kernel)
    largest = windows.topk(2, dim=1).values
    gaps = torch.where(largest[:, 0] == 0, float("inf"), largest[:, 0] - largest[:, 1])
    return gaps.reshape(len(values), -1)


@torch.no_grad()
def differentiable_items(model: nn.Module, inputs: Tensor) -> Tensor:
    """Positions of the items (B, ...) on which the float64 ``model`` keeps its margin."""
    margins = []
    for chunk in torch.split(inputs, _CHUNK):
        with _Margins(len(chunk)) as mode:
            model(chunk.double() if chunk.is_floating_point() else chunk)
        margins.append(mode.smallest)
    return torch.nonzero(torch.cat(margins) > MARGIN).squeeze(1)
