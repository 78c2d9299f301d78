"""Accuracy and loss on pooled items, in large batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from subjectdp.training.items.device_data import ResidentData

if TYPE_CHECKING:
    from subjectdp.training.federation import Federation


@dataclass(frozen=True)
class Score:
    """Accuracy in [0, 1] and mean cross-entropy in nats; NaN where there are no items."""

    accuracy: float
    loss: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scoring of a model on the items at ``addresses``; batch by batch, so that several processes can share it."""

    addresses: NDArray[np.int32]
    batch_size: int

    @property
    def batches(self) -> int:
        """Number of batches."""
        return -(-len(self.addresses) // self.batch_size)

    def order(self, federation: Federation) -> list[int]:
        """All batches, as they come."""
        return list(range(self.batches))

    def run(self, federation: Federation, place: int) -> Tensor:
        """(2,) float64: right answers and summed cross-entropy of one batch of the engine's model."""
        return self.batch(federation.engine.flat.model, federation.data, place)

    @torch.no_grad()
    def batch(self, model: nn.Module, data: ResidentData, place: int) -> Tensor:
        """The same for any model and data."""
        start = place * self.batch_size
        inputs, labels = data.batch(self.addresses[start : start + self.batch_size])
        logits = model(inputs)
        correct = (logits.argmax(1) == labels).sum()
        loss = F.cross_entropy(logits, labels, reduction="sum")
        return torch.stack((correct.double(), loss.double()))

    def score(self, batches: Iterable[Tensor]) -> Score:
        """The score from all batches, added up in their order."""
        if len(self.addresses) == 0:
            return Score(float("nan"), float("nan"))
        correct, loss = torch.stack(list(batches)).sum(0).tolist()
        return Score(correct / len(self.addresses), loss / len(self.addresses))


def evaluate(model: nn.Module, data: ResidentData, addresses: NDArray[np.int32], batch_size: int) -> Score:
    """Scores a model on the items at ``addresses``."""
    work = Evaluation(addresses, batch_size)
    return work.score(work.batch(model, data, place) for place in range(work.batches))
