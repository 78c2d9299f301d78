"""What an algorithm file says: its mechanisms (privacy facts) and its pseudo-code (local step, server round).

The pseudo-code talks to the protocols below and to nothing else: no device, file or configuration is in sight.
``subjectdp.training`` implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from subjectdp.mechanisms.plan import AccountingMode, Mechanism

if TYPE_CHECKING:
    from torch import Tensor


class Batch(Protocol):
    """A mini-batch of one silo; it may be empty."""

    @property
    def inputs(self) -> Tensor:
        """(items, ...) the items themselves."""
        ...

    @property
    def labels(self) -> Tensor:
        """(items,) int64."""
        ...

    @property
    def items(self) -> int:
        """Number of items."""
        ...

    @property
    def subjects(self) -> int:
        """Number of distinct subjects."""
        ...

    @property
    def largest_group(self) -> int:
        """Z: most items of any one subject."""
        ...

    @property
    def group_sizes(self) -> Tensor:
        """(items,) for each item, how many items its subject has in the mini-batch."""
        ...


class LocalStep(Protocol):
    """One local step t of one silo in one round; vectors are flat, (P,) for P parameters."""

    def sample_batch(self) -> Batch:
        """Draws the step's mini-batch as the plan says."""
        ...

    def gradient_sum(self, batch: Batch) -> Tensor:
        """Σ_j g(s_j), nothing clipped."""
        ...

    def clipped_sum(self, batch: Batch, weights: Tensor | None = None) -> Tensor:
        """Σ_j w_j Clip(g(s_j), C), weights (items,) in [0, 1]."""
        ...

    def clip(self, vector: Tensor) -> Tensor:
        """A vector scaled to L2 norm at most C."""
        ...

    @property
    def noise_before_average(self) -> bool:
        """CentralSubDP: True puts the noise inside the 1/B."""
        ...

    def noise_multiplier(self, batch: Batch) -> float:
        """σ of the step; data dependent only where the plan's noise rule says so."""
        ...

    def add_noise(self, total: Tensor, noise_multiplier: float) -> Tensor:
        """total + N(0, σ²C² I), with randomness keyed by (seed, algorithm, round, silo, step)."""
        ...

    def divisor(self, batch: Batch) -> float:
        """What the plan divides the noisy sum by: a public constant, unless its divisor rule says otherwise."""
        ...


class GridStep(LocalStep, Protocol):
    """A local step whose sums are integers (P,) int64, multiples of the plan's grid."""

    def rounded_sum(self, batch: Batch) -> Tensor:
        """Σ_j Round(γ_i/γ Clip(g(s_j), C_i)), every item rounded on its own at random."""
        ...

    def add_integer_noise(self, total: Tensor, noise_multiplier: float) -> Tensor:
        """total + Skellam noise of the noise multiplier, with randomness keyed as in ``add_noise``."""
        ...


class ServerRound(Protocol):
    """One round as the server sees it."""

    @property
    def silos(self) -> Iterable[int]:
        """The silos that take part."""
        ...

    @property
    def silo_count(self) -> int:
        """s, the number of silos that take part."""
        ...

    def train_locally(self, silo: int, local_step: Callable[[LocalStep], Tensor]) -> Tensor:
        """Runs the silo's T local steps θ ← θ − η·gradient from the global model; returns θ_silo (P,)."""
        ...

    def step_of(self, silo: int) -> LocalStep:
        """The single step of a silo in FedSGD-style rounds (the model is the global one)."""
        ...

    @property
    def model(self) -> Tensor:
        """θ, the global model (P,); not to be written to."""
        ...

    @property
    def adds_noise_once(self) -> bool:
        """True where the plan trusts the server with one noise of constant σ on the sum over the silos."""
        ...

    @property
    def divisor(self) -> float:
        """Σ of the round's silos' divisors: the public divisor of a sum over silos."""
        ...

    def add_noise(self, total: Tensor) -> Tensor:
        """total + N(0, σ²C² I), the server's noise of the round."""
        ...

    def set_model(self, model: Tensor) -> None:
        """θ becomes ``model`` (through the server optimiser, if one is configured)."""
        ...

    def descend(self, gradient: Tensor) -> None:
        """θ ← θ − η·gradient with the configured optimiser, at the server."""
        ...


class GridRound(ServerRound, Protocol):
    """A round whose updates are integers (P,) int64 that secure aggregation sums."""

    def train_on_grid(self, silo: int, local_step: Callable[[GridStep], Tensor]) -> Tensor:
        """Runs the silo's S local steps θ ← θ - unit·K_s from the global model; returns Σ_s K_s."""
        ...

    def secure_sum(self, updates: Iterable[Tensor]) -> Tensor:
        """Σ of the updates modulo the ring's size, which holds it; all that the server sees of them."""
        ...

    @property
    def unit(self) -> float:
        """How far one integer moves a parameter: γ · grid step / B."""
        ...


def vector_sum(vectors: Iterable[Tensor]) -> Tensor:
    """Σ of at least one vector, in order, reusing the first one's memory."""
    parts = iter(vectors)
    total = next(parts)
    for vector in parts:
        total.add_(vector)
    return total


def federated_averaging(server: ServerRound, local_step: Callable[[LocalStep], Tensor]) -> None:
    """F_g of the papers: θ = (1/s) Σ_i θ_i over the silos of the round."""
    total = vector_sum(server.train_locally(silo, local_step) for silo in server.silos)
    server.set_model(total / server.silo_count)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: name in configurations, label in figures, privacy facts, pseudo-code."""

    name: str
    label: str
    variants: tuple[str | None, ...]
    mechanisms: tuple[Mechanism, ...]
    local_step: Callable[[LocalStep], Tensor]
    server_round: Callable[[ServerRound, Callable[[LocalStep], Tensor]], None] = federated_averaging
    grid_round: Callable[[GridRound], None] | None = None  # the round with integer noise, if there is one

    def mechanism(self, variant: str | None, mode: AccountingMode) -> Mechanism:
        """The privacy facts of a variant in a mode; the first variant when None is given."""
        wanted = self.variants[0] if variant is None else variant
        return next(m for m in self.mechanisms if m.variant == wanted and m.mode is mode)
