"""A loop of anyone's around private steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import subjectdp

ITEMS, C = 24, 50.0  # nothing is clipped
INPUTS = torch.randn(ITEMS, 6, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(ITEMS) % 3
DATA = TensorDataset(INPUTS, TARGETS)
NOISE = 0.01 * C


class Loop:
    """A private training on all items at each step, with noise that is known."""

    def __init__(self, module: nn.Module | None = None, seed: int | None = 3, **options: Any) -> None:
        torch.manual_seed(0)
        self.module = nn.Linear(6, 3) if module is None else module
        self.optimizer: Any = torch.optim.SGD([p for p in self.module.parameters() if p.requires_grad], lr=1.0)
        self.engine = subjectdp.SubjectPrivacyEngine(seed)
        settings = {"clip": "item", "noise_multiplier": 0.01, "clip_norm": C} | options.pop("settings", {})
        given = {
            "criterion": nn.CrossEntropyLoss(),
            "data_loader": DataLoader(DATA, ITEMS),
            "subjects": range(ITEMS),
        } | options
        self.private, _, self.loss, self.loader = self.engine.make_private(
            self.module, self.optimizer, settings=subjectdp.PrivacySettings(**settings), **given
        )

    def step(self, change: Callable[[Any, Loop], Any] = lambda loss, _: loss) -> None:
        for inputs, targets in self.loader.take(1):
            self.optimizer.zero_grad()
            change(self.loss(self.private(inputs), targets), self).backward()
            self.optimizer.step()

    def train(self, steps: int) -> None:
        """Until so many steps are made."""
        while self.engine.steps < steps:
            self.step()

    def vector(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.module.parameters()])
