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

from subjectdp.training.federation import Federation
from subjectdp.training.items.device_data import ResidentData
from subjectdp.training.record.steplog import StepLog

if TYPE_CHECKING:
    from subjectdp.training.workers.processes import Team


@dataclass(frozen=True)
class Score:
    """Accuracy in [0, 1] and mean cross-entropy in nats; NaN where there are no items."""

    accuracy: float
    loss: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scoring of a model on the items at ``addresses``: a part for each batch (``workers.messages.Work``)."""

    addresses: NDArray[np.int32]
    batch_size: int

    @property
    def parts(self) -> int:
        """Number of batches."""
        return -(-len(self.addresses) // self.batch_size)

    def order(self, federation: Federation) -> list[int]:
        """All batches, in order."""
        return list(range(self.parts))

    def run(self, federation: Federation, theta: Tensor, part: int, log: StepLog) -> Tensor:
        """(2,) float64: right answers and summed cross-entropy of one batch; the engine holds the model."""
        return self.batch(federation.engine.flat.model, federation.data, part)

    @torch.no_grad()
    def batch(self, model: nn.Module, data: ResidentData, part: int) -> Tensor:
        """The same for any model and data."""
        start = part * self.batch_size
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
    return work.score(work.batch(model, data, part) for part in range(work.parts))


def evaluate_federation(
    federation: Federation,
    theta: Tensor,
    addresses: NDArray[np.int32],
    batch_size: int,
    team: Team | None = None,
) -> Score:
    """Scores the model ``theta`` (P,), which is in the engine afterwards; a team shares the batches."""
    federation.engine.flat.load(theta)
    if team is None:
        return evaluate(federation.engine.flat.model, federation.data, addresses, batch_size)
    work = Evaluation(addresses, batch_size)
    return work.score(team.results(federation, work, theta, StepLog()))
