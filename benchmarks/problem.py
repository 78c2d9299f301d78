"""What a step trains on: a model and one random mini-batch. A step's cost does not depend on the items' values."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from subjectdp.models.build import build_model
from subjectdp.models.catalogue import MODELS
from subjectdp.models.fixed import FixedFeatureModel

CLASSES = {"image": 62, "text": 80}
WINDOW = 80  # characters of a text item


@dataclass(frozen=True)
class Case:
    """A model (a key of ``MODELS``), B items of some subjects, and model arguments other than the defaults."""

    workload: str
    model: str
    batch: int
    subjects: int
    parameters: tuple[tuple[str, int], ...] = ()

    @property
    def kind(self) -> str:
        """``image`` or ``text``."""
        return MODELS[self.model].kind


@dataclass(frozen=True)
class Problem:
    """A case with its tensors. Every method's step is θ ← θ - (learning_rate / B) (its sum + noise).

    Attributes:
        inputs: (B, 1, 28, 28) float32, (B, width) float32 of fixed features, or (B, 80) int64.
        labels: (B,) int64.
        owners: (B,) int64, the subject of each item; subjects have equally many items, or one more.
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


def make_problem(case: Case, seed: int = 0) -> Problem:
    """Draws the tensors of a case; the same seed gives the same tensors."""
    generator = torch.Generator().manual_seed(seed)
    classes = CLASSES[case.kind]
    labels = torch.randint(0, classes, (case.batch,), generator=generator)
    model = build_model(case.model, classes, case.kind, seed, dict(case.parameters))
    if isinstance(model, FixedFeatureModel):  # a run computes the features once, before any step
        inputs = torch.randn(case.batch, model.width, generator=generator) / model.width**0.5
    elif case.kind == "image":
        inputs = torch.rand(case.batch, 1, 28, 28, generator=generator)
    else:
        inputs = torch.randint(0, classes, (case.batch, WINDOW), generator=generator)
    owners = (torch.arange(case.batch) % case.subjects)[torch.randperm(case.batch, generator=generator)]
    return Problem(case, model, inputs, labels, owners)
