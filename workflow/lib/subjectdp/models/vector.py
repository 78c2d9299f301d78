"""Models of vectors: float32 (B, numbers), a row of a table or fixed features, to logits (B, classes)."""

from __future__ import annotations

from torch import Tensor, nn


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
