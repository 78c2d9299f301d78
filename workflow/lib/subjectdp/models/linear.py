"""A convex model for images: multinomial logistic regression on features of norm at most 1.

Inputs are float (B, channels, height, width), outputs are logits (B, classes). The cross-entropy of the logits is a
convex function of the weights, and its gradient for one item, (p - y) ⊗ φ with ‖p - y‖ ≤ √2 and ‖φ‖ ≤ 1, never
exceeds √2: clipping to √2 changes nothing, and the loss is √2-Lipschitz everywhere.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subjectdp.errors import ModelError, expected

LIPSCHITZ = math.sqrt(2.0)
"""Lipschitz constant of the model's cross-entropy in the weights' Euclidean norm."""


class Logistic(nn.Module):
    """Logits = W φ(x), φ(x) = (x̃/‖x̃‖, 1)/√2 for the image x̃ averaged over squares of ``pool`` pixels; W starts at 0.

    The model has classes · (channels · height · width / pool² + 1) parameters. Raises ModelError if ``pool`` does not
    divide height and width.
    """

    def __init__(self, classes: int, shape: tuple[int, ...], pool: int) -> None:
        super().__init__()
        channels, height, width = shape
        if pool < 1 or height % pool > 0 or width % pool > 0:
            sides = f"{height}" if height == width else f"{height} and {width}"
            raise expected("model.parameters.pool", pool, f"a divisor of {sides}", ModelError)
        self.pool = pool
        self.output = nn.Linear(channels * (height // pool) * (width // pool) + 1, classes, bias=False)
        nn.init.zeros_(self.output.weight)

    def features(self, images: Tensor) -> Tensor:
        """φ(x): (B, weights of a class), each row of norm at most 1 (for an image of zeros the direction is 0)."""
        directions = F.normalize(F.avg_pool2d(images, self.pool).flatten(1), dim=1)
        return torch.cat([directions, torch.ones_like(directions[:, :1])], dim=1) / LIPSCHITZ

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(self.features(images))
        return logits


class Linear(nn.Module):
    """One linear layer with bias, starting at zero: multinomial logistic regression ("logistic network")."""

    def __init__(self, classes: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.output = nn.Linear(shape[0], classes)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, items: Tensor) -> Tensor:
        logits: Tensor = self.output(items)
        return logits


class Perceptron(nn.Module):
    """One hidden layer with tanh."""

    def __init__(self, classes: int, shape: tuple[int, ...], hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(shape[0], hidden), nn.Tanh(), nn.Linear(hidden, classes))

    def forward(self, items: Tensor) -> Tensor:
        logits: Tensor = self.layers(items)
        return logits
