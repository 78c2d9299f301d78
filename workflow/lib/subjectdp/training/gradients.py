"""How the gradient sums of one mini-batch are computed; the local steps do not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from subjectdp.mechanisms.clipping import ClippingEngine

if TYPE_CHECKING:
    from subjectdp.algorithms.protocols import Batch


class Gradients(Protocol):
    """Gradient sums at the engine's current parameters; a returned sum (P,) belongs to the caller."""

    def gradient_sum(self, batch: Batch) -> Tensor:
        """Σ_i g_i (P,), nothing clipped."""
        ...

    def clipped_sum(
        self, batch: Batch, clip_norm: float, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Σ_i w_i Clip(g_i, C) (P,) and the unclipped norms (items,)."""
        ...

    def clipped_group_sum(
        self, batch: Batch, groups: Tensor, weights: Tensor, clip_norms: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Σ_a Clip(Σ_{i∈a} w_i g_i, C_a) (P,) and the unclipped norms (groups,); ``groups`` (items,) on the CPU."""
        ...

    def trustworthy(self) -> bool:
        """False where an item since the last call had a gradient that is not finite: its step has to be done again.

        May wait for the device.
        """
        ...


class ExactGradients:
    """A mini-batch goes through the engine as it was drawn: the default on the CPU."""

    def __init__(self, engine: ClippingEngine) -> None:
        self._engine = engine

    def gradient_sum(self, batch: Batch) -> Tensor:
        return self._engine.gradient_sum(batch.inputs, batch.labels)

    def clipped_sum(
        self, batch: Batch, clip_norm: float, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._engine.clipped_sum(batch.inputs, batch.labels, clip_norm, weights)

    def clipped_group_sum(
        self, batch: Batch, groups: Tensor, weights: Tensor, clip_norms: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._engine.clipped_sum(batch.inputs, batch.labels, clip_norms, weights, groups)

    def trustworthy(self) -> bool:
        return True  # the engine itself leaves such items out
