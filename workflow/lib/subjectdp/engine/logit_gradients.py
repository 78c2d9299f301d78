"""Softmax, minus one at the label, and the norms of the items' gradients, in one compiled function.

torch takes a dozen calls for it. In a light step, that of a linear head, these take longer than what they compute. The
polynomial is that of Cephes (Moshier), single precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float32, float64, int32
from numpy.typing import NDArray

from subjectdp.compiled import compiled, inner

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

    Written so that the compiler finds vector instructions: loops along rows, taken by number, and few divisions.
    """
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
    """Gradients of the items' cross-entropies and the norms of the layer's gradients that follow.

    Squares are added up in float64, so that a norm's relative error is that of ``lengths`` and of one rounding.

    Args:
        logits: (classes, B), in C order; become softmax minus one at the label.
        labels: (B,).
        lengths: (B,) norms of the layer's inputs.
        bias: the layer has a bias, whose input is 1.
        norms: (B,), overwritten; not finite for an item whose gradient is not.

    Returns:
        Whether all norms are finite.

    Raises:
        IndexError: a label is not one of the classes.
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
