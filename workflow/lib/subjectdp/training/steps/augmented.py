"""Items with several augmented copies: an item's gradient is the mean over its copies, before anything is clipped.

A mini-batch has ``copies`` rows for each item, item by item. Only here do rows and items differ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from subjectdp.engine.clipping import ClippingEngine


def equal_shares(labels: Tensor, copies: int) -> Tensor | None:
    """(rows,) the weight 1/copies of each row of a mini-batch; None for one copy, whose weight is 1."""
    return None if copies == 1 else torch.full(labels.shape, 1.0 / copies, device=labels.device)


def rows_of_groups(groups: Tensor, weights: Tensor, copies: int) -> tuple[Tensor, Tensor]:
    """Group and weight of each row, from those of each item (items,): an item's weight is shared by its copies."""
    if copies == 1:
        return groups, weights
    return groups.repeat_interleave(copies), weights.repeat_interleave(copies) / copies


def clipped_items(
    engine: ClippingEngine,
    inputs: Tensor,
    labels: Tensor,
    copies: int,
    clip_norm: float,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Σ_i w_i Clip(g_i, C) (P,) and the norms ‖g_i‖ (items,), g_i the mean gradient of the item's copies.

    Args:
        engine: the clipping engine.
        inputs: (items · copies, ...) the rows, item by item.
        labels: (items · copies,) int64.
        copies: of each item.
        clip_norm: C > 0, or infinity.
        weights: (items,) in [0, 1], None for all ones.
    """
    if copies == 1:
        return engine.clipped_sum(inputs, labels, clip_norm, weights)
    groups = torch.arange(len(labels) // copies).repeat_interleave(copies)
    if weights is None:
        return engine.clipped_sum(inputs, labels, clip_norm, equal_shares(labels, copies), groups)
    # w Clip(g, C) = Clip(w g, w C): the engine applies a group's weights before its norm
    shares = weights.repeat_interleave(copies) / copies
    bounds = torch.where(weights > 0, weights * clip_norm, 0.0)
    total, norms = engine.clipped_sum(inputs, labels, bounds, shares, groups)
    return total, torch.where(weights > 0, norms / weights, 0.0)
