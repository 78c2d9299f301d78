"""Each item's own gradient, for mechanisms that change every gradient before the sum (rounding to integers).

Everything else uses :class:`~subjectdp.engine.clipping.ClippingEngine`, which stores none of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from subjectdp.engine.clipping import ClippingEngine

_NUMBERS_AT_ONCE = 1 << 24  # of all gradients that are kept at a time: 64 MiB


def item_gradients(engine: ClippingEngine, inputs: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """The gradients of the items, float32 (items at once, P) in the order of the engine's vector, some at a time.

    Args:
        engine: model, parameters and loss.
        inputs: (items, ...).
        labels: (items,).
    """
    at_once = max(1, min(64, _NUMBERS_AT_ONCE // engine.flat.size))
    for start in range(0, len(labels), at_once):
        rows = slice(start, start + at_once)
        yield _gradients(engine, inputs[rows], labels[rows])


def _gradients(engine: ClippingEngine, inputs: Tensor, labels: Tensor) -> Tensor:
    model = engine.flat.model
    if any(isinstance(module, nn.RNNBase) for module in model.modules()):  # vmap does not support them
        items = range(len(labels))
        return torch.stack(
            [engine.clipped_sum(inputs[i : i + 1], labels[i : i + 1], math.inf)[0] for i in items]
        )

    def loss(parameters: dict[str, Tensor], item: Tensor, label: Tensor) -> Tensor:
        output = functional_call(model, parameters, (item.unsqueeze(0),))
        return engine.item_loss(output, label.unsqueeze(0)).sum()

    parameters = {name: value.detach() for name, value in model.named_parameters()}
    found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, inputs, labels)
    return torch.cat([_in_memory_order(found[name]).flatten(1) for name in engine.flat.shapes], dim=1)


def _in_memory_order(gradients: Tensor) -> Tensor:
    return gradients.permute(0, 1, 3, 4, 2) if gradients.dim() == 5 else gradients
