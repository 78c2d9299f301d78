"""The correctness gate: the parameters' change in one step of a method, against a float64 loop over the items.

The step runs without noise and with a learning rate of 1024·B, a power of two above any sum, so that the parameters'
change is 1024 times the method's sum and no part of it is rounded away. C is the median norm of a few items, so that
some items are clipped and some are not. Items on which the model is numerically non-differentiable (a ReLU input near
0, a tie in a max-pooling window) are left out: there float32 and float64 may take different sides, and both are right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from benchmarks.methods import Problem, Stepper, Target

TOLERANCE = 1e-5
PEER_TOLERANCE = 1e-4
"""Other libraries take the norm of millions of numbers in one float32 sum, which is 3e-5 off for LEAF's CNN."""
_SCALE = 1024.0
_FEW = 8
MARGIN = 3e-6  # relative to an activation's root mean square; float32 is off by a tenth of that
_CHUNK = 32


class Reference(NamedTuple):
    """A target's sum by parameter name and the unclipped norms (None for the plain sum), float64."""

    sums: dict[str, Tensor]
    norms: Tensor | None


def gate_problem(problem: Problem) -> Problem:
    """The problem without noise, with the gate's clip norm and learning rate.

    Items at a non-differentiable point of the model are replaced by copies of other items.
    """
    model, batch = problem.model().double(), problem.case.batch
    smooth = differentiable_items(model, problem.inputs)
    kept = smooth[torch.arange(batch) % len(smooth)]
    problem = replace(problem, inputs=problem.inputs[kept], labels=problem.labels[kept])
    few = torch.arange(min(_FEW, batch)).unsqueeze(1)
    norms = torch.tensor([_norm(_gradient(model, problem, item)) for item in few])
    return replace(problem, noise_multiplier=0.0, clip_norm=float(norms.median()), learning_rate=_SCALE * batch)


def references(problem: Problem, targets: Collection[Target]) -> dict[Target, Reference]:
    """The correct sums and norms of a problem, by a loop over items and one over subjects."""
    ones = torch.ones(problem.case.batch, dtype=torch.float64)
    by_item = {Target.PLAIN: ones, Target.ITEM: ones, Target.WEIGHTED: 1.0 / problem.group_sizes.double()}
    items = list(torch.arange(problem.case.batch).unsqueeze(1))
    found = _references(problem, items, {target: by_item[target] for target in by_item if target in targets})
    if Target.SUBJECT in targets:
        subjects = [torch.nonzero(problem.owners == owner).squeeze(1) for owner in torch.unique(problem.owners)]
        found |= _references(problem, subjects, {Target.SUBJECT: ones})
    return found


def _references(problem: Problem, parts: Sequence[Tensor], weights: Mapping[Target, Tensor]) -> dict[Target, Reference]:
    """For each target Σ_p w_p min(1, C/|g_p|) g_p with g_p the mean gradient of part p, and all |g_p|."""
    model = problem.model().double()
    totals = {target: [torch.zeros_like(p) for p in model.parameters()] for target in weights}
    norms = torch.zeros(len(parts), dtype=torch.float64)
    for number, items in enumerate(parts if weights else ()):
        gradient = _gradient(model, problem, items)
        norms[number] = _norm(gradient)
        clipped = min(1.0, problem.clip_norm / float(norms[number]))
        for target, total in totals.items():
            scale = 1.0 if target is Target.PLAIN else clipped
            torch._foreach_add_(total, gradient, alpha=scale * float(weights[target][number]))
    names = [name for name, _ in model.named_parameters()]
    return {
        target: Reference(dict(zip(names, total, strict=True)), None if target is Target.PLAIN else norms)
        for target, total in totals.items()
    }


def check(stepper: Stepper, reference: Reference) -> dict[str, float]:
    """Largest relative errors of the ``sum`` and the ``norms`` in one step on a :func:`gate_problem`."""
    before = {name: value.double().clone() for name, value in stepper.parameters().items()}
    stepper.step()
    after = stepper.parameters()
    if after.keys() != reference.sums.keys():
        return {"sum": float("inf")}
    changes = {name: (before[name] - after[name].double()) / _SCALE for name in after}
    of_sums = [(changes[name] - right).norm() / right.norm() for name, right in reference.sums.items()]
    errors = {"sum": float(torch.stack(of_sums).max())}  # NaN if any is NaN
    if reference.norms is not None:
        norms = stepper.norms()
        if norms is None or norms.shape != reference.norms.shape:
            return errors | {"norms": float("inf")}
        errors["norms"] = float((norms / reference.norms - 1).abs().max())
    return errors


def passes(errors: Mapping[str, float], tolerance: float) -> bool:
    """Whether all errors are at most ``tolerance`` (a NaN is not)."""
    return all(error <= tolerance for error in errors.values())


def _gradient(model: nn.Module, problem: Problem, items: Tensor) -> tuple[Tensor, ...]:
    """The gradient of these items' mean loss on the float64 ``model``."""
    inputs = problem.inputs[items]
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    loss = F.cross_entropy(model(inputs), problem.labels[items])
    return torch.autograd.grad(loss, list(model.parameters()))


def _norm(gradient: Sequence[Tensor]) -> float:
    return float(torch.stack([part.square().sum() for part in gradient]).sum().sqrt())


# --- items near a non-differentiable point -------------------------------------------------------------------


class _Margins(TorchFunctionMode):
    """Records each item's smallest distance from a non-differentiable point, relative to the root mean square."""

    def __init__(self, items: int) -> None:
        super().__init__()
        self.smallest = torch.full((items,), float("inf"), dtype=torch.float64)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("relu", "max_pool2d"):
            values = args[0].detach()
            with torch._C.DisableTorchFunction():
                gaps = values.abs() if name == "relu" else _gaps(values, *args[1:3])
                scale = values.flatten(1).square().mean(1).sqrt()
                self.smallest = torch.minimum(self.smallest, gaps.flatten(1).min(1).values / scale)
        return func(*args, **(kwargs or {}))


def _gaps(values: Tensor, kernel: Any, stride: Any = None) -> Tensor:
    """(B, windows) gap between a window's two largest values; infinite if all are 0, where the gradient is 0."""
    windows = F.unfold(values.flatten(0, 1).unsqueeze(1), kernel, stride=stride or kernel)
    largest = windows.topk(2, dim=1).values
    gaps = torch.where(largest[:, 0] == 0, float("inf"), largest[:, 0] - largest[:, 1])
    return gaps.reshape(len(values), -1)


@torch.no_grad()
def differentiable_items(model: nn.Module, inputs: Tensor) -> Tensor:
    """Positions of the items (B, ...) on which the float64 ``model`` keeps its margin."""
    margins = []
    for chunk in torch.split(inputs, _CHUNK):
        with _Margins(len(chunk)) as mode:
            model(chunk.double() if chunk.is_floating_point() else chunk)
        margins.append(mode.smallest)
    return torch.nonzero(torch.cat(margins) > MARGIN).squeeze(1)
