"""A loop of anyone's around private steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import subjectdp
from engine.oracle import tried_already

ITEMS, C = 24, 50.0  # nothing is clipped
INPUTS = torch.randn(ITEMS, 6, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(ITEMS) % 3
DATA = TensorDataset(INPUTS, TARGETS)
NOISE = 0.01 * C


class Remembers(nn.Module):
    """Keeps something of a pass, in a buffer or where none shows it, from a pass on."""

    def __init__(self, after: int = 0, buffer: bool = False) -> None:
        super().__init__()
        self.layer, self.after, self.passes = nn.Linear(6, 3), after, 0
        if buffer:
            self.register_buffer("seen", torch.zeros(6))
        else:
            self.seen = torch.zeros(6)

    def forward(self, rows: Tensor) -> Tensor:
        self.passes += 1
        first = rows.flatten(1)[:, :6]
        result: Tensor = self.layer(first + self.seen)
        if self.passes > self.after:
            self.seen = first.detach().mean(0)
        return result


class Loop:
    """A private training on all items at each step, with noise that is known; the usual module is tried once."""

    tried = False

    def __init__(self, module: Any = None, seed: int | None = 3, optimizer: Any = None, **options: Any) -> None:
        torch.manual_seed(0)
        self.module: Any = nn.Linear(6, 3) if module is None else module
        trained = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer: Any = torch.optim.SGD(trained, lr=1.0) if optimizer is None else optimizer
        self.engine = subjectdp.SubjectPrivacyEngine(seed)
        settings = {"clip": "item", "noise_multiplier": 0.01, "clip_norm": C} | options.pop("settings", {})
        given = {"data_loader": DataLoader(DATA, ITEMS), "subjects": range(ITEMS)} | options
        usual = module is None and not {"criterion", "data_loader"} & options.keys()
        given.setdefault("criterion", nn.CrossEntropyLoss())
        with tried_already() if usual and Loop.tried else nullcontext():
            self.private, self.optimizer, self.loss, self.loader = self.engine.make_private(
                self.module, self.optimizer, settings=subjectdp.PrivacySettings(**settings), **given
            )
        Loop.tried |= usual

    def step(self, change: Callable[[Any, Loop], Any] = lambda loss, _: loss, **flags: Any) -> None:
        self.steps(lambda inputs, targets: change(self.loss(self.private(inputs, **flags), targets), self))

    def steps(self, body: Callable[..., Tensor], count: int = 1) -> None:
        """So many steps of a loop whose body makes the loss of a batch, given by its tensors or as a mapping."""
        for batch in self.loader.take(count):
            self.optimizer.zero_grad()
            body(*(batch if isinstance(batch, tuple | list) else [batch])).backward()
            self.optimizer.step()

    def train(self, steps: int) -> None:
        """Until so many steps are made."""
        while self.engine.steps < steps:
            self.step()

    def vector(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.module.parameters()])
