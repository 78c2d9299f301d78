"""What an algorithm's pseudo-code talks to, and nothing else: no device, file or configuration is in sight.

``subjectdp.training`` implements these protocols for the models that train, ``subjectdp.auditing`` for many runs of one
coordinate at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Vector: TypeAlias = "Tensor"
"""A model, a gradient or an update, flat: (P,) for P parameters."""


class Batch(Protocol):
    """A mini-batch of one silo; it may be empty."""

    @property
    def inputs(self) -> Tensor:
        """(items, ...) the items themselves."""

    @property
    def labels(self) -> Tensor:
        """(items,) int64."""

    @property
    def items(self) -> int:
        """Number of items."""

    @property
    def subjects(self) -> int:
        """Number of distinct subjects."""

    @property
    def largest_group(self) -> int:
        """Z: most items of any one subject."""

    @property
    def group_sizes(self) -> Tensor:
        """(items,) for each item, how many items its subject has in the mini-batch."""


class LocalStep(Protocol):
    """One local step t of one silo in one round."""

    def sample_batch(self) -> Batch:
        """Draws the step's mini-batch as the plan says: items one by one, or whole subjects."""

    def gradient_sum(self, batch: Batch) -> Vector:
        """Σ_j g(s_j), nothing clipped."""

    def clipped_sum(self, batch: Batch, weights: Tensor | None = None) -> Vector:
        """Σ_j w_j Clip(g(s_j), C), weights (items,) in [0, 1]."""

    def subject_sum(self, batch: Batch) -> Vector:
        """Σ_a Clip(mean_{j∈S_a} g(s_j), C_a), C_a the subject's clip norm at this silo: C, or its part of a budget."""

    def subject_update_sum(self, batch: Batch) -> Vector:
        """Σ_a Clip(θ_a - θ, C_a), θ_a the model after local steps on subject a's items of the mini-batch alone."""

    def clip(self, vector: Vector) -> Vector:
        """A vector scaled to L2 norm at most C."""

    @property
    def noise_before_average(self) -> bool:
        """CentralSubDP: True puts the noise inside the 1/B."""

    def noise_multiplier(self, batch: Batch) -> float:
        """σ of the step; data dependent only where the plan's noise rule says so."""

    def add_noise(self, total: Vector, noise_multiplier: float) -> Vector:
        """total + N(0, σ²C² I), with randomness keyed by (seed, algorithm, round, silo, step)."""

    def divisor(self, batch: Batch) -> float:
        """What the plan divides the noisy sum by: a public constant, unless its divisor rule says otherwise."""


class GridStep(LocalStep, Protocol):
    """A local step whose sums are integers (P,) int64, multiples of the plan's grid."""

    def rounded_sum(self, batch: Batch) -> Vector:
        """Σ_j Round(γ_i/γ Clip(g(s_j), C_i)), every item rounded on its own at random."""

    def add_integer_noise(self, total: Vector, noise_multiplier: float) -> Vector:
        """total + Skellam noise of the noise multiplier, with randomness keyed as in ``add_noise``."""


class ServerRound(Protocol):
    """One round as the server sees it."""

    @property
    def silos(self) -> Iterable[int]:
        """The silos that take part."""

    @property
    def silo_count(self) -> int:
        """s, the number of silos that take part."""

    def train_locally(self, silo: int, local_step: Callable[[LocalStep], Vector]) -> Vector:
        """Runs the silo's T local steps θ ← θ − η·gradient from the global model; returns θ_silo (P,)."""

    def one_step(self, silo: int, local_step: Callable[[LocalStep], Vector]) -> Vector:
        """What the silo's single step gives in FedSGD-style rounds (the model is the global one)."""

    @property
    def model(self) -> Vector:
        """θ, the global model (P,); not to be written to."""

    @property
    def adds_noise_once(self) -> bool:
        """True where the plan trusts the server with one noise of constant σ on the sum over the silos."""

    @property
    def divisor(self) -> float:
        """Σ of the round's silos' divisors: the public divisor of a sum over silos."""

    def add_noise(self, total: Vector) -> Vector:
        """total + N(0, σ²C² I), the server's noise of the round."""

    def set_model(self, model: Vector) -> None:
        """θ becomes ``model`` (through the server optimiser, if one is configured)."""

    def descend(self, gradient: Vector) -> None:
        """θ ← θ − η·gradient with the configured optimiser, at the server."""


class UpdateRound(ServerRound, Protocol):
    """A round in which a silo's whole update is clipped and noised once."""

    def noisy_update(self, silo: int, update: Vector) -> Vector:
        """Clip(update, C_i) + N(0, σ_i²C_i² I), with noise of its own key: the silo's one release of the round."""


class GridRound(ServerRound, Protocol):
    """A round whose updates are integers (P,) int64 that secure aggregation sums."""

    def train_on_grid(self, silo: int, local_step: Callable[[GridStep], Vector]) -> Vector:
        """Runs the silo's S local steps θ ← θ - unit·K_s from the global model; returns Σ_s K_s."""

    def secure_sum(self, updates: Iterable[Vector]) -> Vector:
        """Σ of the updates modulo the ring's size, which holds it; all that the server sees of them."""

    @property
    def unit(self) -> float:
        """How far one integer moves a parameter: γ · grid step / B."""
