"""Convolutional networks for grey or colour images of one size.

Inputs are float (B, channels, height, width), levels above the background's shifted and scaled by public constants;
outputs are logits (B, classes).
"""

from torch import Tensor, nn


class LeafCNN(nn.Module):
    """LEAF's FEMNIST network (models/femnist/cnn.py): 6,603,710 parameters for 62 classes.

    Two 5x5 convolutions (32 and 64 channels, same padding), each with ReLU and 2x2 max pooling, a hidden layer of
    2048 and the output layer.
    """

    def __init__(self, classes: int, shape: tuple[int, ...], hidden: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.fc1 = nn.Linear(64 * (height // 4) * (width // 4), hidden)
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

    def __init__(self, classes: int, shape: tuple[int, ...], width: int) -> None:
        super().__init__()
        channels, height, breadth = shape
        first = [nn.Conv2d(channels, width, 5, padding=2), nn.GroupNorm(4, width), nn.ReLU(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(width, 2 * width, 5, padding=2), nn.GroupNorm(4, 2 * width), nn.ReLU(), nn.MaxPool2d(2)]
        third = [nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        last = nn.Linear(2 * width * (height // 8) * (breadth // 8), classes)
        self.layers = nn.Sequential(*first, *second, *third, last)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


class TanhCNN(nn.Module):
    """The network of Papernot et al. (arXiv 2007.14191) for 28x28 grey images: 26,010 parameters for 10 classes.

    Convolutions 8x8 (16 channels, stride 2, padding 2) and 4x4 (32 channels, stride 2), each with tanh and 2x2 max
    pooling of stride 1, a hidden layer of 32 with tanh, and the output layer. Padding and pooling are those of Tramèr
    and Boneh (arXiv 2011.11660).
    """

    def __init__(self, classes: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        channels, height, width = shape
        first = [nn.Conv2d(channels, 16, 8, stride=2, padding=2), nn.Tanh(), nn.MaxPool2d(2, stride=1)]
        second = [nn.Conv2d(16, 32, 4, stride=2), nn.Tanh(), nn.MaxPool2d(2, stride=1), nn.Flatten()]
        hidden = [nn.Linear(32 * _reduced(height) * _reduced(width), 32), nn.Tanh()]
        self.layers = nn.Sequential(*first, *second, *hidden, nn.Linear(32, classes))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


def _reduced(side: int) -> int:
    """Side of an image after both convolutions and poolings of :class:`TanhCNN`."""
    for kernel, padding in ((8, 2), (4, 0)):
        side = (side + 2 * padding - kernel) // 2 + 1 - 1
    return side
