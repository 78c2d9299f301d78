"""What a step trains on: a model, one random mini-batch with its subjects, and the constants of the update.

The cost of a step does not depend on the values of the items, so they are random tensors of the right shape.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from subjectdp.models.build import build_model
from subjectdp.models.catalogue import MODELS

CLASSES = {"image": 62, "text": 80}
WINDOW = 80  # characters of a text item


@dataclass(frozen=True)
class Case:
    """One table of steps.

    Attributes:
        workload: name in the results.
        model: a key of ``models.catalogue.MODELS``.
        batch: items B of the mini-batch.
        subjects: distinct subjects of the mini-batch.
        parameters: constructor arguments of the model other than its defaults.
    """

    workload: str
    model: str
    batch: int
    subjects: int
    parameters: tuple[tuple[str, int], ...] = ()

    @property
    def kind(self) -> str:
        """Kind of the data, ``image`` or ``text``."""
        return MODELS[self.model].kind


@dataclass(frozen=True)
class Problem:
    """A case with its tensors. Every method's step is θ ← θ - (learning_rate / B) (its sum + noise).

    Attributes:
        inputs: (B, 1, 28, 28) float32 or (B, 80) int64.
        labels: (B,) int64.
        owners: (B,) int64, the subject of each item; subjects have equally many items, or one more.
        noise_multiplier: 0 means no noise.
    """

    case: Case
    initial: nn.Module
    inputs: Tensor
    labels: Tensor
    owners: Tensor
    clip_norm: float = 1.0
    noise_multiplier: float = 1.0
    learning_rate: float = 0.01

    def model(self) -> nn.Module:
        """A copy of the model with the initial weights."""
        return copy.deepcopy(self.initial)

    @property
    def group_sizes(self) -> Tensor:
        """(B,) float32: for each item, the number of items of its subject."""
        return torch.bincount(self.owners)[self.owners].float()

    @property
    def members(self) -> list[Tensor]:
        """The positions of each subject's items."""
        return [torch.nonzero(self.owners == owner).squeeze(1) for owner in torch.unique(self.owners)]


def make_problem(case: Case, seed: int = 0) -> Problem:
    """Draws the tensors of a case; the same seed gives the same tensors."""
    generator = torch.Generator().manual_seed(seed)
    classes = CLASSES[case.kind]
    labels = torch.randint(0, classes, (case.batch,), generator=generator)
    if case.kind == "image":
        inputs = torch.rand(case.batch, 1, 28, 28, generator=generator)
    else:
        inputs = torch.randint(0, classes, (case.batch, WINDOW), generator=generator)
    owners = (torch.arange(case.batch) % case.subjects)[torch.randperm(case.batch, generator=generator)]
    model = build_model(case.model, classes, case.kind, seed, dict(case.parameters))
    return Problem(case, model, inputs, labels, owners)
