"""What a run has reached after a round: everything that the rounds after it read, and nothing else.

There is no generator among it and no counter: each random draw has a key of its own (decision 0004), so that a round
that is done again draws the same mini-batches and the same noise, and releases the same model once more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from subjectdp.training.record.records import Recorder, StepRow
    from subjectdp.training.steps.averaging import IterateAverage

MODEL, AVERAGE = "model", "average"
_OPTIMISERS = ("central_optimiser", "averaging_optimiser")


class Trained(Protocol):
    """What of a federation changes from round to round (``training.federation.Federation``)."""

    theta: Tensor  # float32 (P,), the global model
    central_optimiser: torch.optim.Optimizer
    averaging_optimiser: torch.optim.Optimizer | None
    average: IterateAverage | None


@dataclass(frozen=True)
class Snapshot:
    """A run after ``round`` (0: before the first).

    ``tensors`` are the global model and the server's optimisers by name; ``steps`` and ``rounds`` the recorder's rows;
    ``train_seconds`` the time spent in rounds, ``wall_seconds`` the whole; ``resumed_after`` the rounds after which the
    run was taken up again.
    """

    round: int
    tensors: dict[str, Tensor]
    steps: list[StepRow] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    train_seconds: float = 0.0
    wall_seconds: float = 0.0
    resumed_after: tuple[int, ...] = ()


@torch.no_grad()
def tensors_of(trained: Trained) -> dict[str, Tensor]:
    """Copies of the global model and of all state of the server's optimisers, on their devices."""
    found = {MODEL: trained.theta.detach().clone()}
    if trained.average is not None:
        found[AVERAGE] = trained.average.vector.detach().clone()
    for name in _OPTIMISERS:
        optimiser: torch.optim.Optimizer | None = getattr(trained, name)
        state = {} if optimiser is None else optimiser.state_dict()["state"].get(0, {})
        for key, value in state.items():
            if value is not None:  # SGD's momentum before the first step
                found[f"{name}.{key}"] = torch.as_tensor(value).detach().clone()
    return found


@torch.no_grad()
def restore(trained: Trained, tensors: dict[str, Tensor]) -> None:
    """Puts the copies of ``tensors_of`` back, each on the device that it belongs to."""
    trained.theta.copy_(tensors[MODEL])
    if trained.average is not None:
        trained.average.vector.copy_(tensors[AVERAGE])
    for name in _OPTIMISERS:
        optimiser: torch.optim.Optimizer | None = getattr(trained, name)
        prefix = f"{name}."
        state = {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
        if optimiser is not None and state:
            groups = optimiser.state_dict()["param_groups"]
            optimiser.load_state_dict({"state": {0: state}, "param_groups": groups})


def snapshot(
    trained: Trained,
    recorder: Recorder,
    round_: int,
    train_seconds: float,
    wall_seconds: float,
    resumed_after: tuple[int, ...],
) -> Snapshot:
    """The run as it is now, after ``round_``; later rounds do not change it."""
    steps, rounds = list(recorder.step_rows), list(recorder.round_rows)
    return Snapshot(round_, tensors_of(trained), steps, rounds, train_seconds, wall_seconds, resumed_after)
