"""The messages between the processes of a run (``training.workers.processes``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from subjectdp.errors import SubjectDPError
from subjectdp.training.record.steplog import LoggedStep, StepLog

if TYPE_CHECKING:
    from pathlib import Path

    from subjectdp.plan.plan import PrivacyPlan
    from subjectdp.training.federation import Federation


class Work(Protocol):
    """Work in numbered parts, each of which any process with the run's federation can do."""

    @property
    def parts(self) -> int:
        """Number of parts."""
        ...

    def order(self, federation: Federation) -> list[int]:
        """All parts, in the order in which they are handed out."""
        ...

    def run(self, federation: Federation, theta: Tensor, part: int, log: StepLog) -> Tensor:
        """The result of one part at the global model ``theta`` (P,), which the engine holds; rows go to ``log``."""
        ...


@dataclass(frozen=True)
class Recipe:
    """From which a process builds the run's federation."""

    run: dict[str, Any]
    plan: PrivacyPlan
    prepared_folder: str
    partition_folder: str
    secret: int | None = field(default=None, repr=False)
    cache_folder: Path | None = None  # where rank 0 has left the fixed features


@dataclass(frozen=True)
class Seat:
    """A process among the ranks; ``meeting`` is a file that all of them can reach."""

    rank: int
    ranks: int
    device: str
    meeting: str


@dataclass(frozen=True)
class Ready:
    """Worker: the federation is built."""


@dataclass(frozen=True)
class Begin:
    """Rank 0: the global model follows, then parts of the work may be taken."""

    number: int
    work: Work


@dataclass(frozen=True)
class Done:
    """Worker: one part is done and its result kept."""

    part: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    rows: list[LoggedStep]


@dataclass(frozen=True)
class Idle:
    """Worker: no part is left."""


@dataclass(frozen=True)
class Give:
    """Rank 0: send the result of one part."""

    part: int


@dataclass(frozen=True)
class Failed:
    """Worker: what went wrong."""

    error: SubjectDPError
