"""The state of a run that its rounds change: the global model, its optimiser at the server, the mean over rounds."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from subjectdp.training.federation import Federation
from subjectdp.training.steps.optimisers import descend, make_optimiser


class IterateAverage:
    """The mean of the models (P,) of the last ``part`` of the rounds, at least one; before it begins, the newest model.

    Attributes:
        vector: float32 (P,), the average after the last round given to ``update``; before the first the initial model.
    """

    def __init__(self, part: float, rounds: int, initial: Tensor) -> None:
        self._first = rounds - max(1, math.floor(part * rounds)) + 1
        self.vector = initial.clone()

    @torch.no_grad()
    def update(self, model: Tensor, round_: int) -> None:
        """Takes in the model after ``round_`` (from 1)."""
        self.vector.lerp_(model, 1.0 / max(1, round_ - self._first + 1))


MODEL, AVERAGE = "model", "average"
_OPTIMISER = "central_optimiser."  # before the names of its state


class GlobalModel:
    """The global model, starting from the model that is in the federation's engine.

    Attributes:
        vector: float32 (P,), the parameters θ.
    """

    def __init__(self, federation: Federation) -> None:
        self.vector = federation.engine.flat.vector.clone()
        self._optimiser = make_optimiser(self.vector, federation.optimiser)
        self._average: IterateAverage | None = None
        if federation.averaged_rounds is not None:
            self._average = IterateAverage(federation.averaged_rounds, federation.plan.rounds, self.vector)

    @property
    def reported(self) -> Tensor:
        """The model that is evaluated and saved, (P,): the average over rounds if there is one, else ``vector``."""
        return self.vector if self._average is None else self._average.vector

    def set(self, model: Tensor) -> None:
        """θ becomes ``model``."""
        self.vector.copy_(model)

    def descend(self, gradient: Tensor) -> None:
        """θ ← θ − η·gradient, by the rule of the optimiser."""
        descend(self._optimiser, self.vector, gradient)

    def end_round(self, round_: int) -> None:
        """Takes the model after ``round_`` into the average."""
        if self._average is not None:
            self._average.update(self.vector, round_)

    @torch.no_grad()
    def state(self) -> dict[str, Tensor]:
        """Copies of all state by name, on its devices."""
        found = {MODEL: self.vector.detach().clone()}
        if self._average is not None:
            found[AVERAGE] = self._average.vector.detach().clone()
        if isinstance(self._optimiser, torch.optim.Optimizer):
            for key, value in self._optimiser.state_dict()["state"].get(0, {}).items():
                if value is not None:  # SGD's momentum before the first step
                    found[f"{_OPTIMISER}{key}"] = torch.as_tensor(value).detach().clone()
        return found

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        """Puts back what ``state`` gave, each tensor on its device."""
        self.vector.copy_(state[MODEL])
        if self._average is not None:
            self._average.vector.copy_(state[AVERAGE])
        own = {key.removeprefix(_OPTIMISER): t for key, t in state.items() if key.startswith(_OPTIMISER)}
        if own and isinstance(self._optimiser, torch.optim.Optimizer):
            groups = self._optimiser.state_dict()["param_groups"]
            self._optimiser.load_state_dict({"state": {0: own}, "param_groups": groups})
