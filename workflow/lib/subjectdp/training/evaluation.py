"""Accuracy and loss on pooled items, in large batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from subjectdp.training.resident import ResidentData


@dataclass(frozen=True)
class Score:
    """Accuracy in [0, 1] and mean cross-entropy in nats; NaN where there are no items."""

    accuracy: float
    loss: float


@torch.no_grad()
def evaluate(model: nn.Module, data: ResidentData, addresses: NDArray[np.int32], batch_size: int) -> Score:
    """Scores a model on the items at ``addresses``."""
    if len(addresses) == 0:
        return Score(float("nan"), float("nan"))
    correct = torch.zeros((), dtype=torch.int64, device=data.device)
    loss = torch.zeros((), dtype=torch.float64, device=data.device)
    for inputs, labels in data.batches(addresses, batch_size):
        logits = model(inputs)
        correct += (logits.argmax(1) == labels).sum()
        loss += F.cross_entropy(logits, labels, reduction="sum").double()
    return Score(int(correct) / len(addresses), float(loss) / len(addresses))
