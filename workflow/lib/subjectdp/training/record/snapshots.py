"""The state of a run after a round: everything that later rounds read.

It holds no generator and no counter: each random draw has its own key (decision 0004), so that a repeated round draws
the same mini-batches and the same noise, and releases the same model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from subjectdp.training.record.records import StepRow


@dataclass(frozen=True)
class Snapshot:
    """A run after ``round`` (0: before the first); later rounds do not change it.

    Attributes:
        round: the last finished round.
        tensors: state of the global model (``training.global_model.GlobalModel.state``).
        steps: rows of the local steps so far.
        rounds: rows of the evaluated rounds so far.
        train_seconds: time spent in rounds.
        wall_seconds: time in all.
        resumed_after: rounds after which the run was resumed.
    """

    round: int
    tensors: dict[str, Tensor]
    steps: list[StepRow] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    train_seconds: float = 0.0
    wall_seconds: float = 0.0
    resumed_after: tuple[int, ...] = ()
