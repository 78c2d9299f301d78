"""Models of single subjects: local steps on a subject's items, then the whole update is clipped (SubjectRelease).

Subjects with few items train at once, each with its own row of parameters: optimisers work element by element, so that
one optimiser serves all rows. Subjects with more items than go through the model at once train one after another, and
so do all subjects if the model cannot be batched over its parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from subjectdp.engine.batches import of_items
from subjectdp.engine.flat import clip_factors, row_norms
from subjectdp.training.federation import descend, make_optimiser

if TYPE_CHECKING:
    from subjectdp.algorithms.protocols import Batch
    from subjectdp.engine.clipping import ClippingEngine
    from subjectdp.training.federation import Federation

_MOST_VALUES = 1 << 22  # of parameters held at once


def subject_update_sum(
    federation: Federation, batch: Batch, groups: Tensor, weights: Tensor, clip_norms: Tensor
) -> tuple[Tensor, Tensor]:
    """Σ_a Clip(θ_a - θ, C_a) (P,) and the unclipped norms (subjects,).

    θ_a starts from the global model θ and takes the plan's local steps, each along the mean gradient of the subject's
    items, with an optimiser of its own. An update that is not finite contributes nothing. The engine holds θ before and
    after. ``groups`` (items,) is the place of each item's subject, from 0, on the CPU, and every place has an item;
    ``weights`` (items,) are 1 over the items of the item's subject, ``clip_norms`` (subjects,) C_a.
    """
    engine, device = federation.engine, clip_norms.device
    theta = engine.flat.vector.clone()
    total, norms = torch.zeros_like(theta), torch.zeros_like(clip_norms)
    for subjects, items, counted in _chunks(engine, groups):
        subjects, items = subjects.to(device), items.to(device)
        models = theta.repeat(len(subjects), 1)
        _train(federation, models, batch, items, weights[items] * counted.to(device))
        updates = models.sub_(theta)
        norms[subjects] = row_norms(updates)
        total.add_(_clipped(updates, norms[subjects], clip_norms[subjects]).sum(0))
    engine.flat.load(theta)
    return total, norms


def _chunks(engine: ClippingEngine, groups: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    if len(groups) == 0:
        return
    sizes = torch.bincount(groups)
    order, by_size = torch.argsort(groups, stable=True), torch.argsort(sizes, stable=True)
    starts = torch.cumsum(sizes, 0) - sizes
    for chosen in _cuts(engine, sizes[by_size].tolist()):
        subjects = by_size[chosen]
        places = torch.arange(int(sizes[subjects].max()))
        counted = places < sizes[subjects, None]
        yield subjects, order[starts[subjects, None] + places.where(counted, 0)], counted


def _cuts(engine: ClippingEngine, sizes: list[int]) -> Iterator[slice]:
    # the model is this project's own, and has no layer that torch cannot batch
    batchable = engine.layout is None and not any(
        isinstance(layer, nn.RNNBase) for layer in engine.flat.model.modules()
    )
    rows = max(1, _MOST_VALUES // engine.flat.size) if batchable else 1
    start = 0
    for end in range(1, len(sizes) + 1):
        more = end < len(sizes) and end - start < rows
        if not (more and (end - start + 1) * sizes[end] <= engine.physical_batch_size):
            yield slice(start, end)
            start = end


def _train(federation: Federation, models: Tensor, batch: Batch, items: Tensor, shares: Tensor) -> None:
    engine = federation.engine
    inputs, labels = (of_items(values, lambda tensor: tensor[items]) for values in (batch.inputs, batch.labels))
    optimiser = make_optimiser(models, federation.optimiser)

    def loss(vector: Tensor, inputs: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
        outputs = functional_call(engine.flat.model, engine.flat.views(vector), (inputs,))
        return engine.item_loss(outputs, labels) @ shares

    gradients = vmap(grad(loss), randomness="error")
    for _ in range(federation.plan.settings.subject.local_steps):
        if len(items) == 1:
            engine.flat.load(models[0])
            one, wanted = (of_items(values, lambda tensor: tensor[0]) for values in (inputs, labels))
            gradient = engine.gradient_sum(one, wanted, shares[0]).unsqueeze(0)
        else:
            gradient = gradients(models, inputs, labels, shares).detach()
        descend(optimiser, models, gradient)


def _clipped(updates: Tensor, norms: Tensor, clip_norms: Tensor) -> Tensor:
    finite = torch.isfinite(norms)
    kept = torch.where(finite[:, None], updates, 0.0)
    return kept * torch.where(finite, clip_factors(norms, clip_norms), 0.0)[:, None]
