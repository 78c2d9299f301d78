"""The clipping engine for the models of several silos at once (batched matrix products; see ``layers.stacked``)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from subjectdp.engine.clipping import ClippingEngine, within
from subjectdp.engine.flat import FlatParameters
from subjectdp.engine.layers import recurrent
from subjectdp.engine.layers.stacked import RULES, stacked_rule
from subjectdp.errors import ModelError


def stackable(model: nn.Module) -> bool:
    """Whether every layer of a model has a stacked form."""
    layers = [m for m in model.modules() if next(m.parameters(recurse=False), None) is not None]
    return all(type(layer) in RULES and _covered(layer) for layer in layers)


def _covered(layer: nn.Module) -> bool:
    return not isinstance(layer, nn.LSTM) or (layer.batch_first and recurrent.supports(layer))


class StackedParameters(FlatParameters):
    """The parameters of ``silos`` models of one kind as the rows of a matrix.

    Attributes:
        vector: float32 (silos, P).
    """

    def __init__(self, flat: FlatParameters, silos: int) -> None:
        self.model, self.shapes, self.size = flat.model, flat.shapes, flat.size
        self.vector = flat.vector.new_zeros(silos, flat.size)

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """Each parameter's part of any (silos, P) matrix, (silos, ...)."""
        parts: dict[str, Tensor] = {}
        start = 0
        for name, shape in self.shapes.items():
            count = torch.Size(shape).numel()
            parts[name] = vector[:, start : start + count].view(len(vector), *shape)
            start += count
        return parts


class StackedEngine(ClippingEngine):
    """``ClippingEngine`` whose batches are silo-major and whose sums are (silos, P), one for each silo.

    Clip norms may differ between items, so between silos: ``clipped_sum`` takes (silos·B,). Infinite ones clip nothing,
    which takes the place of ``gradient_sum``.

    Raises:
        ModelError: a layer without a stacked form.
    """

    def __init__(self, flat: FlatParameters, silos: int, items: int) -> None:
        """``items``: most items of a batch, over all silos."""
        if not stackable(flat.model):
            raise ModelError(
                f"Expected linear, embedding and LSTM layers for stacked silos, got {flat.model}."
            )
        super().__init__(StackedParameters(flat, silos), items)
        views = self.flat.views(self.flat.vector)
        self.rules = {
            name: (module, stacked_rule(module, within(views, f"{name}." if name else "")))
            for name, (module, _) in self.rules.items()
        }
