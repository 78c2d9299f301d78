"""Models that are one linear layer: no backward pass is needed.

The gradient of an item's cross-entropy with respect to its logits is softmax minus one at the label, and the layer's
gradients follow from it. Whether a model is one linear layer is seen from a forward pass: its output is the layer's
output itself, and the layer has run once.

Logits have an item in each column, not row: both matrix products are faster this way, and items lie side by side in
what is computed for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from subjectdp.engine.flat import Factor, clip_factors, row_norms
from subjectdp.engine.layers.base import zeroed
from subjectdp.engine.layers.dense import LinearCaptured


@dataclass
class OneLinear:
    """What a pass of such a model has: an item's gradient is ``errors`` ⊗ ``inputs``, and ``errors`` for a bias."""

    inputs: Tensor  # (B, d_in) of the layer
    logits: Tensor  # (classes, B), overwritten by ``clip``
    labels: Tensor  # (B,)
    bias: bool

    @cached_property
    def errors(self) -> Tensor:
        """(classes, B) gradients of the items' cross-entropies with respect to the logits."""
        gradients = torch.softmax(self.logits, 0)
        minus_one = gradients.new_full((1, len(self.labels)), -1.0)
        return gradients.scatter_add_(0, self.labels.unsqueeze(0), minus_one)

    def captured(self) -> LinearCaptured:
        """The same for the general path."""
        return LinearCaptured(self.inputs.unsqueeze(1), self.errors.t().contiguous().unsqueeze(1), self.bias)

    def sum(self) -> Tensor:
        """(P,) the sum of the items' gradients: the layer's weight, then its bias."""
        weight = torch.mm(self.errors, self.inputs).view(-1)
        return torch.cat([weight, self.errors.sum(1)]) if self.bias else weight

    def weight(self, weights: Tensor | None) -> None:
        """Makes the sum Σ_i w_i g_i."""
        if weights is not None:
            self.errors.mul_(weights)

    def clip(self, clip_norm: float | Tensor, weights: Tensor | None, factor: Factor | None = None) -> Tensor:
        """Makes the sum Σ_i w_i Clip(g_i, C), without items whose gradient is not finite; returns the norms (B,)."""
        from subjectdp.engine.logit_gradients import errors_and_norms  # plain sums need not load the compiler

        lengths = row_norms(self.inputs)
        norms, logits, labels = torch.empty_like(lengths), self.logits.numpy(), self.labels.numpy()
        finite = errors_and_norms(logits, labels, lengths.numpy(), self.bias, norms.numpy())
        self.errors = self.logits
        scales = clip_factors(norms, clip_norm, factor)
        if not finite:
            bad = ~torch.isfinite(norms)
            scales.masked_fill_(bad, 0.0)
            self.inputs, self.errors = zeroed(self.inputs, bad), self.errors.masked_fill(bad, 0.0)
        self.weight(scales if weights is None else scales.mul_(weights))
        return norms


def without_backward(model: Callable[[Tensor], Tensor], layer: Any, inputs: Tensor, labels: Tensor) -> OneLinear | None:
    """A pass of ``inputs`` (B, ...) with ``labels`` (B,) int64; None if the model is more than one linear layer.

    ``layer``: the only nn.Linear of the model that has parameters.
    """
    seen: list[tuple[Tensor, Tensor, int]] = []

    def run(features: Tensor) -> Tensor:
        linear = _by_columns if features.dim() == 2 else F.linear
        output = linear(features, layer.weight, layer.bias)
        seen.append((features, output, features._version))
        return output

    layer.forward = run
    try:
        logits = model(inputs)
    except RuntimeError:  # a view that columns do not have; another error comes again in the general path
        return None
    finally:
        del layer.forward
    if len(seen) != 1:
        return None
    features, output, version = seen[0]
    untouched = logits is output and output._version == 0 and features._version == version
    if not untouched or features.dim() != 2:
        return None
    return OneLinear(features, logits.t(), labels, layer.bias is not None)


def _by_columns(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    items = inputs.t()
    logits = torch.mm(weight, items) if bias is None else torch.addmm(bias.unsqueeze(1), weight, items)
    return logits.t()
