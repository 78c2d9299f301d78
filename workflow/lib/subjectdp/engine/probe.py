"""Tries a model on a few items as training will run it: what an item adds to the sum must be its own, and right.

Two comparisons, on copies, under generators whose states are put back:

* without dropout, each item's norm and the clipped sum with a loop over single items by plain autograd: finds models
  that mix items, whatever the batch size, losses that do, and layers whose gradient the engine gets wrong;
* in training mode, under one state of the generators, an item among the others with the same item among copies of
  itself: finds what mixes items in training alone, or keeps something of them between passes.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from subjectdp.engine.clipping import ClippingEngine, ItemLoss, check_output
from subjectdp.engine.flat import FlatParameters
from subjectdp.errors import ModelError

TRIED = 5
"""Items that a model is tried on, from all over the data."""

_ALIKE = 0.02  # relative tolerance of norms and of each parameter's gradient: kernels may differ between batch sizes
_OF_ALL = 1e-3  # and of the whole gradient, for parameters whose part is next to nothing


def tried_positions(items: int) -> list[int]:
    """Positions of the items to try, evenly from the first to the last."""
    return [int(place) for place in np.unique(np.linspace(0, items - 1, TRIED).round())]


def check_model(model: nn.Module, item_loss: ItemLoss, inputs: Tensor, targets: Tensor) -> list[str]:
    """Tries a model in training mode on some items that differ; it and all generators are left as they are.

    Returns the parameters that the loss does not depend on: they are trained by noise alone.

    Raises:
        ModelError: an item's gradient depends on other items, so that clipping bounds nothing, or is not what a loop
            over items finds; a pass changes parameters or buffers; a model that cannot be copied.
    """
    with _generators_kept(), torch.enable_grad():
        _check_left_alone(model, inputs)
        unused = _check_with_loop(model, item_loss, inputs, targets)
        _check_among_copies(model, item_loss, inputs, targets)
    return unused


@contextmanager
def _generators_kept() -> Iterator[None]:
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - what a model of anyone's may use
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _seed(seed: int = 1) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


def copied(model: nn.Module) -> nn.Module:
    """A copy in training mode. Raises ModelError where there can be none."""
    held: dict[int, Any] = {id(p): nn.Parameter(p.detach().clone()) for p in model.parameters()}
    held |= {id(buffer): buffer.detach().clone() for buffer in model.buffers()}
    try:
        return copy.deepcopy(model, held).train()
    except Exception as problem:  # whatever a module of anyone's raises
        raise ModelError(
            f"Expected a model that copy.deepcopy can copy, to try it on a few items: {problem}"
        ) from problem


def _check_left_alone(model: nn.Module, inputs: Tensor) -> None:
    trial = copied(model)
    with torch.no_grad():
        check_output(trial(inputs), len(inputs))
    before = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, value in (dict(trial.named_parameters()) | dict(trial.named_buffers())).items():
        if not torch.equal(value, before[name]):
            raise ModelError(
                f"Expected a model that a forward pass in training mode leaves as it is, {name!r} keeps values of the "
                "items."
            )


def _check_with_loop(model: nn.Module, item_loss: ItemLoss, inputs: Tensor, targets: Tensor) -> list[str]:
    quiet = _without_dropout(copied(model), inputs)
    each, unused = _loop(quiet, item_loss, inputs, targets)
    alone = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in each]).norm(dim=0)
    finite = torch.isfinite(alone) & (alone > 0)
    clip_norm = float(alone[finite].median()) / 2 if finite.any() else 1.0
    engine = _engine(_without_dropout(copied(model), inputs), item_loss, len(targets), quiet.training)
    _seed()
    total, together = engine.clipped_sum(inputs, targets, clip_norm)
    _compare_norms(alone, together)
    factors = torch.where(finite, (clip_norm / alone).clamp_max(1.0), 0.0)
    sums = [torch.tensordot(factors, gradient.nan_to_num(0.0, 0.0, 0.0), dims=1) for gradient in each]
    _compare(engine, total, sums)
    return unused


def _loop(model: nn.Module, item_loss: ItemLoss, inputs: Tensor, targets: Tensor) -> tuple[list[Tensor], list[str]]:
    """Each parameter's gradients (B, ...) by item, and the parameters without any.

    Each item goes through the model by itself, unless the model draws numbers in evaluation mode too: then an item
    alone would see others than in the batch.
    """
    parameters, batch = dict(model.named_parameters()), None
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    if _draws(model, inputs):
        _seed()
        batch = item_loss(model(inputs), targets)
    rows, used = [], set()
    for i in range(len(targets)):
        own = slice(i, i + 1)
        loss = item_loss(model(inputs[own]), targets[own]).sum() if batch is None else batch[i]
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, retain_graph=True)
        used |= {name for name, gradient in zip(parameters, gradients, strict=True) if gradient is not None}
        rows.append(
            [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, parameters.values(), strict=True)]
        )
    each = [torch.stack(gradients).detach() for gradients in zip(*rows, strict=True)]
    return each, [name for name in parameters if name not in used]


def _check_among_copies(model: nn.Module, item_loss: ItemLoss, inputs: Tensor, targets: Tensor) -> None:
    engine = _engine(copied(model), item_loss, len(targets), training=True)

    def one(rows: Tensor, wanted: Tensor, item: int) -> tuple[Tensor, Tensor]:
        _seed()
        weights = torch.zeros(len(wanted), device=inputs.device)
        weights[item] = 1.0
        total, norms = engine.clipped_sum(rows, wanted, float("inf"), weights)
        return total, norms[item]

    for item in range(len(targets)):
        same = torch.full((len(targets),), item, device=inputs.device)
        total, norm = one(inputs, targets, item)
        copies, alone = one(inputs[same], targets[same], item)
        _compare_norms(alone.unsqueeze(0), norm.unsqueeze(0))
        _compare(engine, total, list(engine.flat.views(copies).values()))


def _engine(model: nn.Module, item_loss: ItemLoss, items: int, training: bool) -> ClippingEngine:
    return ClippingEngine(FlatParameters(model.train(training)), items, item_loss)


def _without_dropout(model: nn.Module, inputs: Tensor) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.dropout = 0.0
    return model.eval() if _draws(model, inputs) else model


def _draws(model: nn.Module, inputs: Tensor) -> bool:
    outputs = []
    with torch.no_grad():
        for seed in (1, 2):
            _seed(seed)
            outputs.append(model(inputs))
    return not torch.equal(*(output.nan_to_num() for output in outputs))


def _compare_norms(alone: Tensor, together: Tensor) -> None:
    longest = float(alone.nan_to_num(0.0, 0.0, 0.0).amax()) if len(alone) else 0.0
    if not torch.allclose(together, alone, rtol=_ALIKE, atol=_OF_ALL * longest, equal_nan=True):
        raise ModelError(
            "Expected a model and a loss that treat items one by one: the gradients of some items are as long as "
            f"{[round(value, 4) for value in alone.tolist()]} alone and "
            f"{[round(value, 4) for value in together.tolist()]} among others."
        )


def _compare(engine: ClippingEngine, total: Tensor, wanted: list[Tensor]) -> None:
    whole = float(torch.stack([each.norm() for each in wanted]).norm())
    for (name, view), right in zip(engine.flat.views(total).items(), wanted, strict=True):
        if not float((view - right).norm()) <= _ALIKE * float(right.norm()) + _OF_ALL * whole:
            raise ModelError(
                f"Expected a model and a loss that treat items one by one, and parameters used by their own layer "
                f"alone: the clipped gradient of {name!r} is not that of a loop over items."
            )


_FEWEST = {"cpu": 192, "cuda": 1024}
"""On a CPU more items of LEAF's networks are hardly faster, and would take more memory than plain SGD."""

_SAVED_VALUES = 1 << 23  # that a pass of a lighter model holds


def items_in_a_pass(saved_values: int, device_type: str) -> int:
    """Items in one forward and backward pass of a model that saves so many numbers for each item."""
    return max(_FEWEST.get(device_type, _FEWEST["cuda"]), _SAVED_VALUES // max(1, saved_values))


def saved_values(model: nn.Module, item: Tensor) -> int:
    """Numbers that autograd saves of a batch of one item for the backward pass, parameters left out."""
    parameters = {p.untyped_storage()._cdata for p in model.parameters()}
    saved = {}

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()  # views share it
        saved[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        model(item.clone())  # a slice would count the storage of all items
    return sum(storage.nbytes() // 4 for key, storage in saved.items() if key not in parameters)
