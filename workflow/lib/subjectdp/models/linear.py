"""A convex model for images: multinomial logistic regression on features of norm at most 1.

Inputs are float (B, 1, 28, 28), outputs are logits (B, classes). The cross-entropy of the logits is a convex function
of the weights, and its gradient for one item, (p - y) ⊗ φ with ‖p - y‖ ≤ √2 and ‖φ‖ ≤ 1, never exceeds √2: clipping
to √2 changes nothing, and the loss is √2-Lipschitz everywhere.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subjectdp.errors import ModelError, expected

LIPSCHITZ = math.sqrt(2.0)
"""Lipschitz constant of the model's cross-entropy in the weights' Euclidean norm."""

_SIDE = 28


class Logistic(nn.Module):
    """Logits = W φ(x), φ(x) = (x̃/‖x̃‖, 1)/√2 for the image x̃ averaged over squares of ``pool`` pixels; W starts at 0.

    The model has classes · ((28/pool)² + 1) parameters. Raises ModelError if ``pool`` does not divide 28.
    """

    def __init__(self, classes: int, pool: int) -> None:
        super().__init__()
        if pool < 1 or _SIDE % pool > 0:
            raise expected("model.parameters.pool", pool, f"a divisor of {_SIDE}", ModelError)
        self.pool = pool
        self.output = nn.Linear((_SIDE // pool) ** 2 + 1, classes, bias=False)
        nn.init.zeros_(self.output.weight)

    def features(self, images: Tensor) -> Tensor:
        """φ(x): (B, (28/pool)² + 1), each row of norm at most 1 (for an image of zeros the direction is 0)."""
        pixels = F.avg_pool2d(images, self.pool).flatten(1)
        directions = F.normalize(pixels, dim=1)
        return torch.cat([directions, torch.ones_like(directions[:, :1])], dim=1) / LIPSCHITZ

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(self.features(images))
        return logits
