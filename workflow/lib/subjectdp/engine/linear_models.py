"""Models that are one linear layer: no backward pass is needed.

The gradient of an item's cross-entropy with respect to its logits is softmax minus one at the label, and the layer's
gradients follow from it. Whether a model is one linear layer is seen from a forward pass: its output is the layer's
output itself, and the layer has run once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subjectdp.engine.layers.base import zeroed
from subjectdp.engine.layers.dense import LinearCaptured
from subjectdp.engine.layers.products import product
from subjectdp.engine.norms import clip_factors, row_norms


@dataclass
class OneLinear:
    """What a pass of such a model has: an item's gradient is ``errors`` ⊗ ``inputs``, and ``errors`` for a bias."""

    inputs: Tensor  # (B, d_in) of the layer
    errors: Tensor  # (B, classes) gradients of the logits
    bias: bool

    def captured(self) -> LinearCaptured:
        """The same for the general path."""
        return LinearCaptured(self.inputs.unsqueeze(1), self.errors.unsqueeze(1), self.bias)

    def add_sum(self, views: Sequence[Tensor]) -> None:
        """Writes the sum of the items' gradients over the layer's weight and bias."""
        torch.mm(self.errors.t(), self.inputs, out=views[0])
        if self.bias:
            torch.sum(self.errors, 0, out=views[1])

    def weight(self, weights: Tensor | None) -> None:
        """Makes the sum Σ_i w_i g_i."""
        if weights is not None:
            self.errors.mul_(weights.unsqueeze(1))

    def clip(self, clip_norm: float | Tensor, weights: Tensor | None) -> Tensor:
        """Makes the sum Σ_i w_i Clip(g_i, C), without items whose gradient is not finite; returns the norms (B,)."""
        lengths = row_norms(self.inputs)
        if self.bias:
            lengths = lengths.square_().add_(1.0).sqrt_()
        norms = row_norms(self.errors).mul_(lengths)
        scales = clip_factors(norms, clip_norm)
        if not math.isfinite(float(norms.sum())):
            bad = ~torch.isfinite(norms)
            scales.masked_fill_(bad, 0.0)
            self.inputs, self.errors = zeroed(self.inputs, bad), zeroed(self.errors, bad)
        self.weight(scales if weights is None else scales.mul_(weights))
        return norms


def without_backward(
    model: Callable[[Tensor], Tensor], layer: Any, inputs: Tensor, labels: Tensor
) -> OneLinear | None:
    """A pass of ``inputs`` (B, ...) with ``labels`` (B,) int64; None if the model is more than one linear layer.

    ``layer``: the only nn.Linear of the model that has parameters.
    """
    seen: list[tuple[Tensor, Tensor, int]] = []

    def run(features: Tensor) -> Tensor:
        output = product(features, layer.weight, layer.bias)
        seen.append((features, output, features._version))
        return output

    layer.forward = run
    try:
        logits = model(inputs)
    finally:
        del layer.forward
    if len(seen) != 1:
        return None
    features, output, version = seen[0]
    untouched = logits is output and output._version == 0 and features._version == version
    if not untouched or features.dim() != 2:
        return None
    return OneLinear(features, logit_gradients(logits, labels), layer.bias is not None)


def logit_gradients(logits: Tensor, labels: Tensor) -> Tensor:
    """(B, classes) gradients of the items' cross-entropies."""
    gradients = torch.softmax(logits, 1)
    return gradients.scatter_add_(1, labels.unsqueeze(1), gradients.new_full((len(labels), 1), -1.0))
