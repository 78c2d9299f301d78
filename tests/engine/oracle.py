"""An independent oracle: one item at a time, float64, plain autograd; and modules in a line."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import subjectdp
from subjectdp.api import engine
from subjectdp.engine.batches import call, of_items

Loss = Callable[[Any, Tensor], Tensor]
"""One number for each item."""


class Code(nn.Module):
    """Layers and parameters by name, and what is done with them."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.run(self, inputs)


def cross_entropy(outputs: Any, targets: Tensor) -> Tensor:
    logits = outputs if isinstance(outputs, Tensor) else outputs.logits
    if targets.dim() == 2:  # the next symbol of each
        return F.cross_entropy(logits[:, :-1].transpose(1, 2), targets[:, 1:], reduction="none").mean(1)
    return F.cross_entropy(logits, targets, reduction="none")


def per_item_gradients(model: nn.Module, inputs: Any, targets: Tensor, loss: Loss = cross_entropy) -> Tensor:
    """(items, P) in the order of the parameters: those that are trained, or all where an engine has frozen them."""
    model = copy.deepcopy(model).double()
    trained = [p for p in model.parameters() if p.requires_grad] or list(model.requires_grad_().parameters())
    rows = torch.zeros(len(targets), sum(p.numel() for p in trained), dtype=torch.float64)
    for i in range(len(targets)):
        one = of_items(inputs, lambda t, i=i: t[i : i + 1].double() if t.is_floating_point() else t[i : i + 1])
        target = targets[i : i + 1].double() if targets.is_floating_point() else targets[i : i + 1]
        value = loss(call(model, one), target).sum()
        found = torch.autograd.grad(value, trained, allow_unused=True, materialize_grads=True)
        rows[i] = torch.cat([each.flatten() for each in found])
    return rows


def clipped_sum(gradients: Tensor, clip_norm: float, weights: Tensor | None = None) -> Tensor:
    """Σ_i w_i min(1, C/‖g_i‖) g_i."""
    factors = (clip_norm / gradients.norm(dim=1)).clamp(max=1.0)
    return (factors if weights is None else factors * weights.double()) @ gradients


def group_gradients(gradients: Tensor, weights: Tensor, groups: Sequence[int]) -> Tensor:
    """Σ_{i∈a} w_i g_i of each number a up to the largest."""
    totals = gradients.new_zeros(max(groups) + 1, gradients.shape[1])
    return totals.index_add(0, torch.tensor(groups), gradients * weights.double().unsqueeze(1))


def group_means(gradients: Tensor, groups: Sequence[int]) -> Tensor:
    sizes = torch.bincount(torch.tensor(groups))
    return group_gradients(gradients, 1 / sizes[torch.tensor(groups)], groups)


def relative(found: Tensor, expected: Tensor) -> float:
    """How far off, in lengths of what is expected."""
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@contextmanager
def tried_already() -> Iterator[None]:
    """Without the trial of the module on a few items, which takes most of a call and knows no clip norm or subjects."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "check_model", lambda *_: [])
        yield


def check_clip_sum(model: nn.Module, inputs: Any, targets: Tensor, loss: Loss = cross_entropy) -> None:
    """Items and subjects, at a clip norm below half of the gradients; and that nothing is left changed."""
    people = [0, 1, 1, 2, 2, 2, 3, 3, 3, 3][: len(targets)]
    each = per_item_gradients(model, inputs, targets, loss)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for subjects, gradients in ((None, each), (people, group_means(each, people))):
        clip_norm = float(gradients.norm(dim=1).median()) * 0.7
        with nullcontext() if subjects is None else tried_already():
            total = subjectdp.clip_sum(model, inputs, targets, clip_norm, subjects, loss)
        assert list(total) == [name for name, p in model.named_parameters() if p.requires_grad]
        found = torch.cat([value.flatten() for value in total.values()])
        assert relative(found, clipped_sum(gradients, clip_norm)) < 1e-4
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
