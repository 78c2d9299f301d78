"""Convolutional networks for 28x28 grey images.

Inputs are float (B, 1, 28, 28), 0 for paper and up to 1 for ink (training inverts LEAF's grey levels and scales them by
public constants); outputs are logits (B, classes).
"""

from __future__ import annotations

from torch import Tensor, nn


class LeafCNN(nn.Module):
    """LEAF's FEMNIST network (models/femnist/cnn.py): 6,603,710 parameters for 62 classes.

    Two 5x5 convolutions (32 and 64 channels, same padding), each with ReLU and 2x2 max pooling, a hidden layer of
    2048 and the output layer.
    """

    def __init__(self, classes: int, hidden: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.fc1 = nn.Linear(64 * 7 * 7, hidden)
        self.fc2 = nn.Linear(hidden, classes)
        self.pool = nn.MaxPool2d(2)
        self.activation = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        features = self.pool(self.activation(self.conv1(images)))
        features = self.pool(self.activation(self.conv2(features)))
        # channels-last memory: flatten in (H, W, C) order, so that no copy is needed
        hidden = self.activation(self.fc1(features.permute(0, 2, 3, 1).flatten(1)))
        logits: Tensor = self.fc2(hidden)
        return logits


class SmallCNN(nn.Module):
    """A network of about 40,000 parameters with group normalisation, for quick runs and strong noise."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 5, padding=2),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2 * width * 9, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits
