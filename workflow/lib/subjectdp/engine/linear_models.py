"""Models that are one linear layer: no backward pass is needed.

The gradient of an item's cross-entropy with respect to its logits is softmax minus one at the label, and the layer's
gradients follow. A forward pass shows such a model: its output is the output of the layer, which has run once.

Logits have an item in each column: both matrix products are faster, and items lie side by side in the compiled function
for softmax, errors and norms. torch takes a dozen calls for it, longer than what they compute in a light step. The
polynomial is that of Cephes (Moshier), single precision.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numba import float32, float64, int32
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.compiled import compiled, inner
from subjectdp.engine.flat import Factor, clip_factors, row_norms
from subjectdp.engine.rules import LinearCaptured, zeroed

_ROUNDER = 1.5 * 2.0**23  # added to a float32 it leaves the nearest whole number in the last bits
_LOWEST = -87.0  # e to the power of less is no normal float32


@inner
def _power(x: Any, whole: Any) -> Any:
    rest = x - whole * float32(0.693359375) + whole * float32(2.12194440e-4)
    p = float32(1.9875691500e-4) * rest + float32(1.3981999507e-3)
    p = p * rest + float32(8.3334519073e-3)
    p = p * rest + float32(4.1665795894e-2)
    p = p * rest + float32(1.6666665459e-1)
    p = p * rest + float32(5.0000001201e-1)
    return p * (rest * rest) + rest + float32(1)


@compiled
def softmax_columns(logits: NDArray[np.float32]) -> None:
    """``logits`` (classes, n) become the softmax of each column; NaN for one with NaN or +∞.
    Written so that the compiler finds vector instructions: loops along rows, taken by number, and few divisions."""
    top, total = logits[0].copy(), np.zeros(logits.shape[1], np.float32)
    rounded = np.empty(logits.shape[1], np.float32)
    bits = rounded.view(np.int32)
    for c in range(len(logits)):
        row = logits[c]
        for i in range(len(row)):
            top[i] = row[i] if row[i] > top[i] else top[i]
    for c in range(len(logits)):
        row = logits[c]
        for i in range(len(row)):
            x = row[i] - top[i]
            x = float32(_LOWEST) if x < float32(_LOWEST) else x  # NaN stays
            shifted = x * float32(1.44269504088896341) + float32(_ROUNDER)
            row[i], rounded[i] = _power(x, shifted - float32(_ROUNDER)), shifted
        for i in range(len(row)):
            bits[i] = int32(int32(bits[i] << int32(23)) + int32(0x3F800000))  # the bits of 2^whole
        for i in range(len(row)):
            row[i] *= rounded[i]
            total[i] += row[i]
    for i in range(len(total)):
        total[i] = float32(1) / total[i]
    for c in range(len(logits)):
        row = logits[c]
        for i in range(len(row)):
            row[i] *= total[i]


@compiled
def errors_and_norms(
    logits: NDArray[np.float32],
    labels: NDArray[np.int64],
    lengths: NDArray[np.float32],
    bias: bool,
    norms: NDArray[np.float32],
) -> bool:
    """Gradients of the items' cross-entropies and the norms of the layer's gradients; whether all norms are finite.

    ``logits`` (classes, B), in C order, become softmax minus one at the label; ``norms`` (B,) are overwritten, from the
    ``lengths`` (B,) of the layer's inputs and the input 1 of a bias. Squares are added up in float64: a norm's relative
    error is that of ``lengths`` and of one rounding. Raises IndexError for a label that is none of the classes.
    """
    for i in range(len(labels)):
        if not 0 <= labels[i] < len(logits):
            raise IndexError("Expected labels from 0 to the number of classes minus 1.")
    softmax_columns(logits)
    for i in range(len(labels)):
        logits[labels[i], i] -= float32(1)
    squares = np.zeros(len(labels))
    for c in range(len(logits)):
        row = logits[c]
        for i in range(len(row)):
            squares[i] += float64(row[i]) * float64(row[i])
    finite = True
    for i in range(len(labels)):
        inputs = float64(lengths[i]) * float64(lengths[i]) + (1.0 if bias else 0.0)
        norms[i] = float32(math.sqrt(squares[i] * inputs))
        finite &= math.isfinite(norms[i])
    return finite


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
        return gradients.scatter_add_(0, self.labels.unsqueeze(0), gradients.new_full((1, len(self.labels)), -1.0))

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
    """A pass of ``inputs`` (B, ...) with ``labels`` (B,) int64 by the only layer, nn.Linear; None if there is more."""
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
    return (torch.mm(weight, items) if bias is None else torch.addmm(bias.unsqueeze(1), weight, items)).t()
