"""Models that are one linear layer: no backward pass is needed.

The gradient of an item's cross-entropy with respect to its logits is softmax minus one at the label, and the layer's
gradients follow from it. Whether a model is one linear layer is seen from a forward pass: its output is the layer's
output itself, and the layer has run once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from subjectdp.engine.layers.dense import LinearCaptured
from subjectdp.engine.layers.products import product


def without_backward(
    model: Callable[[Tensor], Tensor],
    layer: Any,
    inputs: Tensor,
    labels: Tensor,
    weights: Tensor | None,
) -> LinearCaptured | None:
    """The layer's inputs and the gradients of its outputs; None if the model is more than this layer.

    Args:
        model: with ``layer`` as the only layer that has parameters.
        layer: nn.Linear, on inputs (B, d).
        inputs: (B, ...) items.
        labels: (B,) int64.
        weights: (B,) of the items' losses, None for all ones.
    """
    seen: list[tuple[Tensor, Tensor, int]] = []

    def run(features: Tensor) -> Tensor:
        output = product(features, layer.weight, layer.bias)
        seen.append((features, output, features._version))
        return output

    layer.forward = run
    try:
        with torch.no_grad():
            logits = model(inputs)
    finally:
        del layer.forward
    if len(seen) != 1:
        return None
    features, output, version = seen[0]
    untouched = logits is output and output._version == 0 and features._version == version
    if not untouched or features.dim() != 2:
        return None
    return LinearCaptured(
        features.unsqueeze(1), logit_gradients(logits, labels, weights).unsqueeze(1), layer.bias is not None
    )


def logit_gradients(logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """(B, classes) gradients of the items' cross-entropies, each times its weight."""
    gradients = torch.softmax(logits, 1)
    gradients.scatter_add_(1, labels.unsqueeze(1), gradients.new_full((len(labels), 1), -1.0))
    return gradients if weights is None else gradients.mul_(weights.unsqueeze(1))
