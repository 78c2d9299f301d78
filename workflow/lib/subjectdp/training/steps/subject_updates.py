"""Models of single subjects: local steps on a subject's items alone, the update clipped as one (SubjectRelease).

Many subjects of few items train at once, each with its own row of parameters: the optimisers work element by element,
so that one of them serves all rows. A subject of more items than go through the model at once, and a model that cannot
be batched over its parameters, train one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from subjectdp.engine.norms import clip_factors, row_norms
from subjectdp.training.steps.gradients import rows_of_groups
from subjectdp.training.steps.optimisers import descend, make_optimiser

if TYPE_CHECKING:
    from subjectdp.algorithms.protocols import Batch
    from subjectdp.engine.flat import FlatParameters
    from subjectdp.training.federation import Federation

_MOST_VALUES = 1 << 22  # of parameters held at once


def subject_update_sum(
    federation: Federation, batch: Batch, groups: Tensor, weights: Tensor, clip_norms: Tensor
) -> tuple[Tensor, Tensor]:
    """Σ_a Clip(θ_a - θ, C_a) (P,) and the unclipped norms (subjects,).

    θ_a starts from the global model θ and takes the plan's local steps, each along the mean gradient of the subject's
    items, with an optimiser of its own. An update that is not finite contributes nothing. The engine's parameters are
    the global model's again afterwards. Several views of an item stand for it with equal parts of its weight.

    Args:
        federation: plan, engine, optimiser and global model.
        batch: items of the subjects, in as many rows as the plan has views of them.
        groups: (items,) the place of each item's subject, 0 to subjects - 1, on the CPU; every place has an item.
        weights: (items,) 1 over the items of the item's subject.
        clip_norms: (subjects,) C_a.
    """
    theta = federation.theta
    groups, weights = rows_of_groups(groups, weights, federation.plan.settings.views)
    total, norms = torch.zeros_like(theta), torch.zeros_like(clip_norms)
    for subjects, items, counted in _chunks(federation, groups):
        where = subjects.to(clip_norms.device)
        models = _trained(federation, batch, items, weights, counted)
        updates = models.sub_(theta)
        norms[where] = row_norms(updates)
        total.add_(_clipped(updates, norms[where], clip_norms[where]).sum(0))
    federation.engine.flat.load(theta)
    return total, norms


def _chunks(federation: Federation, groups: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Subjects (S,) with items (S, n), short ones padded by their first item, and which places count (S, n)."""
    if len(groups) == 0:
        return
    sizes = torch.bincount(groups)
    order, by_size = torch.argsort(groups, stable=True), torch.argsort(sizes, stable=True)
    starts = torch.cumsum(sizes, 0) - sizes
    for chosen in _cuts(federation, sizes[by_size].tolist()):
        subjects = by_size[chosen]
        places = torch.arange(int(sizes[subjects].max()))
        counted = places < sizes[subjects, None]
        yield subjects, order[starts[subjects, None] + places.where(counted, 0)], counted


def _cuts(federation: Federation, sizes: list[int]) -> Iterator[slice]:
    """Runs of ``sizes`` (ascending) that train at once, within the physical batch size."""
    engine = federation.engine
    rows = max(1, _MOST_VALUES // engine.flat.size) if _batchable(engine.flat.model) else 1
    start = 0
    for end in range(1, len(sizes) + 1):
        more = end < len(sizes) and end - start < rows
        if not (more and (end - start + 1) * sizes[end] <= engine.physical_batch_size):
            yield slice(start, end)
            start = end


def _batchable(model: nn.Module) -> bool:
    return not any(isinstance(layer, nn.RNNBase) for layer in model.modules())


def _trained(federation: Federation, batch: Batch, items: Tensor, weights: Tensor, counted: Tensor) -> Tensor:
    """(S, P) the subjects' models after their local steps."""
    device, engine = weights.device, federation.engine
    inputs, labels = batch.inputs[items.to(device)], batch.labels[items.to(device)]
    shares = weights[items.to(device)] * counted.to(device)
    models = federation.theta.repeat(len(items), 1)
    optimiser = make_optimiser(models, federation.optimiser)
    alone = len(items) == 1
    gradients = vmap(grad(_loss_of(engine.flat)), randomness="error")
    for _ in range(federation.plan.settings.subject.local_steps):
        if alone:
            engine.flat.load(models[0])
            gradient = engine.gradient_sum(inputs[0], labels[0], shares[0]).unsqueeze(0)
        else:
            gradient = gradients(models, inputs, labels, shares).detach()
        descend(optimiser, models, gradient)
    return models


def _loss_of(flat: FlatParameters) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    def loss(vector: Tensor, inputs: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
        logits = functional_call(flat.model, flat.views(vector), (inputs,))
        return F.cross_entropy(logits, labels, reduction="none") @ shares

    return loss


def _clipped(updates: Tensor, norms: Tensor, clip_norms: Tensor) -> Tensor:
    """Rows (S, P) of at most their clip norm; rows that are not finite are 0."""
    finite = torch.isfinite(norms)
    kept = torch.where(finite[:, None], updates, 0.0)
    return kept * torch.where(finite, clip_factors(norms, clip_norms), 0.0)[:, None]
