"""A model whose parameters are views of one flat vector: averaging, noise and updates are vector operations."""

import math
from collections.abc import Callable, Collection
from typing import TypeAlias

import torch
from torch import Tensor, nn


class FlatParameters:
    """Moves a model's parameters into one contiguous vector, in the order of ``named_parameters``.

    Convolution weights are laid out channels-last (O, kh, kw, I), as the fast convolution kernels read them.
    ``trained`` names the parameters that move (None: all); others stay as they are, whatever their type.

    Attributes:
        vector: float32 (P,), the parameters' memory: writing to it changes the model.
        parameters, shapes: of those that moved, by name; they need no gradient.
    """

    def __init__(self, model: nn.Module, trained: Collection[str] | None = None) -> None:
        self.model = model
        every = dict(model.named_parameters())
        parameters = {name: p for name, p in every.items() if trained is None or name in trained}
        self.parameters = parameters
        self.shapes = {name: tuple(p.shape) for name, p in parameters.items()}
        self.size = sum(p.numel() for p in parameters.values())
        self.vector = torch.empty(self.size, dtype=torch.float32, device=next(iter(parameters.values())).device)
        for parameter, view in zip(parameters.values(), self.views(self.vector).values(), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view
            parameter.requires_grad_(False)

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """Each parameter's part of any (P,) vector, in the parameter's own shape."""
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        parts = dict(zip(self.shapes, torch.split(vector, sizes), strict=True))
        for name, shape in self.shapes.items():
            if len(shape) == 4:
                out, inner, height, width = shape
                parts[name] = parts[name].view(out, height, width, inner).permute(0, 3, 1, 2)
            else:
                parts[name] = parts[name].view(shape)
        return parts

    def load(self, vector: Tensor) -> None:
        """Copies ``vector`` (P,) into the model."""
        self.vector.copy_(vector)

    def require_gradients(self, wanted: bool) -> None:
        for parameter in self.parameters.values():
            parameter.requires_grad_(wanted)


_MARGIN = 1.0 + 2.0**-18  # clipping to C over this keeps the true norm at or below C

_IN_A_LINE = 32  # vectors that are added one to another

_PIECE = 256  # 32 additions in each of eight lanes; three such levels serve six million numbers


def row_norms(rows: Tensor) -> Tensor:
    """(n,) the L2 norm of each row of a (n, d) float32 tensor, relative error below 2^-18 whatever the entries.
    A row with an infinity or NaN has a norm that is not finite. As fast as torch's norm."""
    if rows.device.type == "cpu":  # a GPU adds up in a tree anyway
        while rows.shape[1] > _PIECE:
            count = rows.shape[1] // _PIECE
            pieces = rows[:, : count * _PIECE].view(len(rows), count, _PIECE)
            rows = torch.cat([torch.linalg.vector_norm(pieces, dim=2), rows[:, count * _PIECE :]], dim=1)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms


class LongSum:
    """A sum of many float32 vectors (P,): a few are added one to another, in float64 what they add up to.
    In float32 alone one of a million people, all alike, moved their sum by 1.4 clip norms: each addition is rounded."""

    def __init__(self, vectors: Tensor) -> None:
        self._zeros_like, self._count = vectors, 0
        self.part: Tensor | None = None  # to be added to
        self._whole: Tensor | None = None

    def take(self, part: Tensor) -> None:
        """``part`` is :attr:`part` and one vector more."""
        self.part, self._count = part, self._count + 1
        if self._count % _IN_A_LINE == 0:
            self._whole = part.double() if self._whole is None else self._whole.add_(part)
            self.part = None

    def sum(self) -> Tensor:
        """(P,) float32; the last call."""
        if self._whole is None:
            return torch.zeros_like(self._zeros_like) if self.part is None else self.part
        return (self._whole if self.part is None else self._whole.add_(self.part)).float()


Factor: TypeAlias = Callable[[Tensor], Tensor]
"""From ‖g‖/C of one gradient, a number, to what the gradient is multiplied by."""


def clip_factors(norms: Tensor, clip_norm: float | Tensor, factor: Factor | None = None) -> Tensor:
    """min(1, C/‖g‖) of norms (n,), slightly less where it is below 1; C > 0, infinity, or one for each norm.

    With ``factor``, which sees each norm alone, min(factor(‖g‖/C), C/‖g‖), at least 0: the bound holds whatever it
    says.
    """
    most = norms.clamp_min(1e-30).reciprocal_().mul_(clip_norm / _MARGIN)
    if factor is None:
        return most.clamp_(max=1.0)
    own = torch.func.vmap(factor)(norms / clip_norm).nan_to_num(0.0, posinf=torch.inf)
    return torch.minimum(own.clamp_min(0.0), most)
