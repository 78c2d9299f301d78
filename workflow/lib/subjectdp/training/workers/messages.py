"""What the processes of a run say to each other (``training.workers.processes``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from subjectdp.errors import SubjectDPError
from subjectdp.training.record.steplog import LoggedStep

if TYPE_CHECKING:
    from subjectdp.plan.plan import PrivacyPlan
    from subjectdp.training.federation import Federation


class Work(Protocol):
    """Something that falls into numbered parts, which any process can do that holds the federation."""

    def order(self, federation: Federation) -> list[int]:
        """All parts, in the order in which they are handed out."""
        ...

    def run(self, federation: Federation, place: int) -> Tensor:
        """The result of one part, which depends on the federation, its global model and the part only."""
        ...


@dataclass(frozen=True)
class Recipe:
    """What a process builds the run's federation from."""

    run: dict[str, Any]
    plan: PrivacyPlan
    prepared_folder: str
    partition_folder: str


@dataclass(frozen=True)
class Seat:
    """A process' place among the ranks; ``meeting`` is a file that all of them can reach."""

    rank: int
    ranks: int
    device: str
    meeting: str


@dataclass(frozen=True)
class Ready:
    """Worker: the federation is built."""


@dataclass(frozen=True)
class Begin:
    """Rank 0: the global model follows, then the work's parts are to be taken."""

    number: int
    work: Work


@dataclass(frozen=True)
class Done:
    """Worker: one part is done and its result kept."""

    place: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    rows: list[LoggedStep]


@dataclass(frozen=True)
class Idle:
    """Worker: no part is left."""


@dataclass(frozen=True)
class Give:
    """Rank 0: the result of one part, please."""

    place: int


@dataclass(frozen=True)
class Failed:
    """Worker: what went wrong."""

    error: SubjectDPError
