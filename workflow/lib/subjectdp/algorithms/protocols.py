"""The interface of the algorithms' pseudo-code; it knows no device, file or configuration.

``subjectdp.training`` implements these protocols for training, ``subjectdp.auditing`` for many one-coordinate runs at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Vector: TypeAlias = "Tensor"
"""A model, a gradient or an update, flat: (P,) for P parameters."""

Factor: TypeAlias = "Callable[[Tensor], Tensor]"
"""From ‖g‖/C of one item, a number, to what its gradient is multiplied by."""


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

    def clipped_sum(self, batch: Batch, weights: Tensor | None = None, factor: Factor | None = None) -> Vector:
        """Σ_j w_j Clip(g(s_j), C), weights (items,) in [0, 1]; C/k where the silo fuses k local steps.

        With ``factor`` Σ_j w_j g(s_j) min(factor(‖g(s_j)‖/C), C/‖g(s_j)‖).
        """

    def subject_sum(self, batch: Batch) -> Vector:
        """Σ_a Clip(mean_{j∈S_a} g(s_j), C_a), C_a the subject's clip norm at this silo: C, or its part of a budget."""

    def subject_update_sum(self, batch: Batch) -> Vector:
        """Σ_a Clip(θ_a - θ, C_a), θ_a the model after local steps on subject a's items of the mini-batch alone."""

    def clip(self, vector: Vector) -> Vector:
        """A vector scaled to L2 norm at most C."""

    def noise_multiplier(self, batch: Batch) -> float:
        """σ of the step; data dependent only where the plan's noise rule says so. Of k fused steps the last has it."""

    def add_noise(self, total: Vector, noise_multiplier: float) -> Vector:
        """total + N(0, σ²C² I), with randomness keyed by (seed, algorithm, round, silo, step)."""

    def divisor(self, batch: Batch) -> float:
        """What the plan divides the noisy sum by: a public constant, unless its divisor rule says otherwise."""


class IntegerStep(LocalStep, Protocol):
    """A local step whose sums are integers (P,) int64, multiples of the plan's grid step."""

    def rounded_sum(self, batch: Batch) -> Vector:
        """Σ_j Round(γ_i/γ Clip(g(s_j), C_i)), with random rounding of each item's gradient."""

    def add_integer_noise(self, total: Vector, noise_multiplier: float) -> Vector:
        """total + Skellam noise of the noise multiplier, with randomness keyed as in ``add_noise``."""


class Server(Protocol):
    """What the server can do in one round, once it has the silos' results."""

    @property
    def silo_count(self) -> int:
        """s, the number of silos that take part."""

    @property
    def model(self) -> Vector:
        """θ, the global model (P,); read only."""

    @property
    def divisor(self) -> float:
        """Σ of the participating silos' divisors: the public divisor of a sum over silos."""

    def add_noise(self, total: Vector) -> Vector:
        """total + N(0, σ²C² I), the server's own noise of the round."""

    def set_model(self, model: Vector) -> None:
        """θ becomes ``model`` (through the server optimiser, if one is configured)."""

    def descend(self, gradient: Vector) -> None:
        """θ ← θ − η·gradient with the configured optimiser, at the server."""


class IntegerServer(Server, Protocol):
    """A server that sees only the secure sum of integer updates (P,) int64."""

    def secure_sum(self, updates: Iterable[Vector]) -> Vector:
        """Σ of the updates modulo the ring's size, which the sum does not exceed."""

    @property
    def unit(self) -> float:
        """How far one integer moves a parameter: γ · grid step / B."""
