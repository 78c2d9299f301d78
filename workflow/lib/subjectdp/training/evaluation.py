"""Accuracy and loss on pooled items, in large batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from subjectdp.training.device_data import ResidentData
from subjectdp.training.federation import Federation


@dataclass(frozen=True)
class Score:
    """Accuracy in [0, 1] and mean cross-entropy in nats; NaN where there are no items."""

    accuracy: float
    loss: float


@torch.no_grad()
def evaluate(
    model: nn.Module, data: ResidentData, addresses: NDArray[np.int32], batch_size: int = 1024
) -> Score:
    """Scores a model on the items at ``addresses``, batch by batch, added up in their order."""
    if len(addresses) == 0:
        return Score(float("nan"), float("nan"))
    batches = []
    for start in range(0, len(addresses), batch_size):
        inputs, labels = data.batch(addresses[start : start + batch_size])
        logits = model(inputs)
        loss = F.cross_entropy(logits, labels, reduction="sum")
        batches.append(torch.stack(((logits.argmax(1) == labels).sum().double(), loss.double())))
    correct, loss_sum = torch.stack(batches).sum(0).tolist()
    return Score(correct / len(addresses), loss_sum / len(addresses))


def evaluate_federation(federation: Federation, theta: Tensor, addresses: NDArray[np.int32]) -> Score:
    """Scores the model ``theta`` (P,), which is in the engine afterwards."""
    federation.engine.flat.load(theta)
    return evaluate(federation.engine.flat.model, federation.data, addresses)
