"""Random curves: public images that stand in for strokes of a pen, drawn from a fixed seed and from no data."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.noise.keys import Purpose, numpy_generator

_MOST = 3  # curves in an image
_POINTS = 48  # of a curve, which are at most about a pixel apart
_MARGIN = 3  # pixels of paper around the corners that a curve is drawn by


def random_curves(count: int, side: int = 28) -> Tensor:
    """``count`` images float32 (count, 1, side, side) from 0 (paper) to 1 (ink), the same at every call.

    An image has one to three cubic Bézier curves, with corners drawn uniformly, of a pen of 1 to 3 pixels. The first
    images of a larger ``count`` are others.
    """
    draws = numpy_generator(0, Purpose.MODEL_INIT, "curves")
    corners = draws.uniform(_MARGIN, side - 1 - _MARGIN, (count, _MOST, 4, 2))
    numbers, pens = draws.integers(1, _MOST + 1, count), draws.uniform(1.0, 3.0, count)
    time = np.linspace(0.0, 1.0, _POINTS)[:, None]
    weights = np.hstack([(1 - time) ** 3, 3 * time * (1 - time) ** 2, 3 * time**2 * (1 - time), time**3])
    images = [
        _drawn((weights @ some[:number]).reshape(-1, 2), pen, side)
        for some, number, pen in zip(corners, numbers, pens, strict=True)
    ]
    return torch.from_numpy(np.stack(images).astype(np.float32)).unsqueeze(1)


def _drawn(points: NDArray[np.float64], pen: float, side: int) -> NDArray[np.float64]:
    """Ink (side, side) of a round pen of this width at ``points`` (n, 2), fading out over one pixel."""
    squares = (np.arange(side)[:, None] - points.T[:, None, :]) ** 2  # (2, side, n)
    nearest = (squares[0][:, None] + squares[1][None, :]).min(axis=2)
    return np.asarray(np.clip(pen / 2 + 0.5 - np.sqrt(nearest), 0.0, 1.0))
