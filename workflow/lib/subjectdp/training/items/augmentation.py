"""Fixed small warps of images: an item's augmented copies beside the plain one (``training.augmentation``).

A warp is one affine map for all items, made from public constants. A copy is a function of its item alone, so that the
gradients of an item's copies may be averaged before anything is clipped, without privacy cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.errors import ConfigError, expected

SHIFT, TURN, GROWTH, SLANT = 1.0, math.radians(8), 0.08, 0.08
"""At magnitude 1: most pixels of shift, radians of turn, logarithm of the scale, and columns of slant a row."""

_DIMENSIONS = 5  # numbers of a warp


@dataclass(frozen=True)
class Warp:
    """Ink at the offset u (rows, columns) from the image's centre goes to e^growth Turn(turn) Slant(slant) u + shift.

    Attributes:
        down: rows that ink is shifted by.
        right: columns that ink is shifted by.
        turn: radians, counter-clockwise as seen.
        growth: logarithm of the scale.
        slant: columns to the right for each row up.
    """

    down: float
    right: float
    turn: float
    growth: float
    slant: float

    def matrix(self) -> NDArray[np.float64]:
        """(2, 2) the linear part, on offsets (rows, columns)."""
        cosine, sine = math.cos(self.turn), math.sin(self.turn)
        turn = np.array(
            [[cosine, -sine], [sine, cosine]]
        )  # rows point down: ink to the right of the centre goes up
        return np.asarray(math.exp(self.growth) * turn @ np.array([[1.0, 0.0], [-self.slant, 1.0]]))


def warps(copies: int, magnitude: float) -> tuple[Warp, ...]:
    """The ``copies`` - 1 warps beside the plain image, each at most ``magnitude`` away from the identity.

    They come in opposite pairs, whose sizes spread evenly over all five numbers (a Kronecker sequence on powers of the
    root of x^6 = x + 1; Roberts 2018); the warps of fewer copies are the first ones of more.

    Raises:
        ConfigError: ``copies`` below 1 or a magnitude that is not above 0.
    """
    if copies < 1:
        raise expected("views of an item", copies, "at least 1", ConfigError)
    if not 0 < magnitude < math.inf:
        raise expected("size of warps", magnitude, "a number above 0", ConfigError)
    return tuple(_warp(number, magnitude) for number in range(1, copies))


def _warp(number: int, magnitude: float) -> Warp:
    """The ``number``-th warp, counted from 1."""
    pair, sign = (number + 1) // 2, 1 if number % 2 == 1 else -1
    steps = _root(_DIMENSIONS + 1) ** -np.arange(1.0, _DIMENSIONS + 1)
    place = sign * (2 * ((0.5 + pair * steps) % 1.0) - 1)
    sizes = magnitude * place * np.array([SHIFT, SHIFT, TURN, GROWTH, SLANT])
    return Warp(*sizes.tolist())


def _root(degree: int) -> float:
    """The root above 1 of x^degree = x + 1."""
    value = 2.0
    for _ in range(64):
        value = (1.0 + value) ** (1.0 / degree)
    return value


def warped(images: Tensor, warp: Warp, paper: float) -> Tensor:
    """The warped images (n, 1, h, w), by bilinear interpolation; ``paper`` is the value outside an image.

    An image's pixels have the same bits whatever other images are in the batch.
    """
    count, _, height, width = images.shape
    rows, columns = np.indices((height, width), dtype=np.float64)
    centre = np.array([(height - 1) / 2 + warp.down, (width - 1) / 2 + warp.right])
    offsets = np.stack([rows - centre[0], columns - centre[1]], axis=-1) @ np.linalg.inv(warp.matrix()).T
    # grid_sample has columns first, and the image's edges (half a pixel beyond its outer pixels) at -1 and 1
    places = np.stack([2 * offsets[..., 1] / width, 2 * offsets[..., 0] / height], axis=-1)
    grid = torch.from_numpy(places.astype(np.float32)).to(images.device).expand(count, -1, -1, -1)
    sampled: Tensor = F.grid_sample(images - paper, grid, padding_mode="zeros", align_corners=False)
    return sampled + paper
