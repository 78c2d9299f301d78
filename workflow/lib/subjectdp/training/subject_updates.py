"""Models of single subjects: local steps on a subject's items alone, the update clipped as one (SubjectRelease)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from subjectdp.training.optimisers import descend, make_optimiser

if TYPE_CHECKING:
    from subjectdp.algorithms.protocols import Batch
    from subjectdp.training.federation import Federation

# the norm is a float32 sum of squares: scaling to slightly less keeps the true one at or below the clip norm
_MARGIN = 1.0 - 2.0**-18


def subject_update_sum(
    federation: Federation, batch: Batch, groups: Tensor, weights: Tensor, clip_norms: Tensor
) -> tuple[Tensor, Tensor]:
    """Σ_a Clip(θ_a - θ, C_a) (P,) and the unclipped norms (subjects,).

    θ_a starts from the global model θ and takes the plan's local steps, each along the mean gradient of the subject's
    items, with an optimiser of its own. An update that is not finite contributes nothing. The engine's parameters are
    the global model's again afterwards.

    Args:
        federation: plan, engine, optimiser and global model.
        batch: items of the subjects.
        groups: (items,) the place of each item's subject, 0 to subjects - 1, on the CPU.
        weights: (items,) 1 over the items of the item's subject.
        clip_norms: (subjects,) C_a.
    """
    flat, theta = federation.engine.flat, federation.theta
    total, norms = torch.zeros_like(theta), torch.zeros_like(clip_norms)
    inputs, labels = batch.inputs, batch.labels
    order = torch.argsort(groups, stable=True)
    ends = torch.cumsum(torch.bincount(groups, minlength=len(clip_norms)), 0).tolist()
    for subject, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        items = order[start:end].to(labels.device)
        flat.load(theta)
        optimiser = make_optimiser(flat.vector, federation.optimiser)
        for _ in range(federation.plan.settings.subject.local_steps):
            gradient = federation.engine.gradient_sum(inputs[items], labels[items], weights[items])
            descend(optimiser, flat.vector, gradient)
        update = flat.vector - theta
        norms[subject] = torch.linalg.vector_norm(update)
        total.add_(_clipped(update, norms[subject], clip_norms[subject]))
    flat.load(theta)
    return total, norms


def _clipped(update: Tensor, norm: Tensor, clip_norm: Tensor) -> Tensor:
    finite = torch.isfinite(norm)
    scale = torch.where(norm <= clip_norm * _MARGIN, 1.0, clip_norm * _MARGIN / norm)
    return torch.where(finite, update, 0.0) * torch.where(finite, scale, 0.0)
