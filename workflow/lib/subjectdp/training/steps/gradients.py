"""How the gradient sums of one mini-batch are computed; the local steps do not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from subjectdp.engine.clipping import ClippingEngine

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


class ExactGradients:
    """A mini-batch goes through the engine as it was drawn: the default on the CPU.

    With several ``views`` a mini-batch has so many rows for each item, item by item, and g_i is the mean of the
    gradients of its rows: the only place where views and items differ.
    """

    def __init__(self, engine: ClippingEngine, views: int = 1) -> None:
        self._engine, self._views = engine, views

    def gradient_sum(self, batch: Batch) -> Tensor:
        inputs, labels = batch.inputs, batch.labels
        return self._engine.gradient_sum(inputs, labels, equal_shares(labels, self._views))

    def clipped_sum(
        self, batch: Batch, clip_norm: float, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        rows = batch.inputs, batch.labels
        return clipped_items(self._engine, *rows, self._views, clip_norm, weights)

    def clipped_group_sum(
        self, batch: Batch, groups: Tensor, weights: Tensor, clip_norms: Tensor
    ) -> tuple[Tensor, Tensor]:
        groups, weights = rows_of_groups(groups, weights, self._views)
        return self._engine.clipped_sum(batch.inputs, batch.labels, clip_norms, weights, groups)


def equal_shares(labels: Tensor, views: int) -> Tensor | None:
    """(rows,) the weight 1/views of each row of a mini-batch; None for single views, whose weights are 1."""
    return None if views == 1 else torch.full(labels.shape, 1.0 / views, device=labels.device)


def rows_of_groups(groups: Tensor, weights: Tensor, views: int) -> tuple[Tensor, Tensor]:
    """Group and weight of each row, from those of each item (items,): an item's weight goes to its views in parts."""
    if views == 1:
        return groups, weights
    return groups.repeat_interleave(views), weights.repeat_interleave(views) / views


def clipped_items(
    engine: ClippingEngine,
    inputs: Tensor,
    labels: Tensor,
    views: int,
    clip_norm: float,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Σ_i w_i Clip(g_i, C) (P,) and the norms ‖g_i‖ (items,), g_i the mean gradient of the item's views.

    Args:
        engine: the clipping engine.
        inputs: (items · views, ...) the views, item by item.
        labels: (items · views,) int64.
        views: of each item.
        clip_norm: C > 0, or infinity.
        weights: (items,) in [0, 1], None for all ones.
    """
    if views == 1:
        return engine.clipped_sum(inputs, labels, clip_norm, weights)
    groups = torch.arange(len(labels) // views).repeat_interleave(views)
    if weights is None:
        return engine.clipped_sum(inputs, labels, clip_norm, equal_shares(labels, views), groups)
    # w Clip(g, C) = Clip(w g, w C): a group's weights are inside its norm
    shares = weights.repeat_interleave(views) / views
    bounds = torch.where(weights > 0, weights * clip_norm, 0.0)
    total, norms = engine.clipped_sum(inputs, labels, bounds, shares, groups)
    return total, torch.where(weights > 0, norms / weights, 0.0)
