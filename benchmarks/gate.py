"""The correctness gate: the parameters' change in one step of a method, against a float64 loop over the items.

The step runs without noise and with a learning rate of 1024·B, a power of two above any sum, so that the parameters'
change is 1024 times the method's sum and no part of it is rounded away. C is the median norm of a few items, so that
some items are clipped and some are not.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.methods import Method, Target
from benchmarks.nondifferentiable_points import differentiable_items
from benchmarks.problem import Problem

TOLERANCE = 1e-5
PEER_TOLERANCE = 1e-4
"""Other libraries take the norm of millions of numbers in one float32 sum, which is 3e-5 off for LEAF's CNN."""
_SCALE = 1024.0
_FEW = 8


@dataclass(frozen=True)
class Reference:
    """A target's sum by parameter name and the unclipped norms (None for the plain sum), float64."""

    sums: dict[str, Tensor]
    norms: Tensor | None


@dataclass(frozen=True)
class Errors:
    """Largest relative errors of a step.

    Attributes:
        of_sum: over the parameters.
        of_norms: over the items or subjects; None without norms.
    """

    of_sum: float
    of_norms: float | None

    def within(self, tolerance: float) -> bool:
        """Whether both errors are at most ``tolerance`` (a NaN is not)."""
        return self.of_sum <= tolerance and (self.of_norms is None or self.of_norms <= tolerance)


class Float64Loop:
    """Gradients of a few items at a time, on a float64 copy of the model."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model = problem, copy.deepcopy(problem.initial).double()
        self.parameters = list(self.model.parameters())

    def gradient(self, items: Tensor) -> tuple[Tensor, ...]:
        """The gradient of these items' mean loss."""
        inputs, labels = self.problem.inputs[items], self.problem.labels[items]
        inputs = inputs.double() if inputs.is_floating_point() else inputs
        return torch.autograd.grad(F.cross_entropy(self.model(inputs), labels), self.parameters)

    def sums(
        self, parts: Sequence[Tensor], weights: Mapping[Target, Tensor], clip_norms: Mapping[Target, float]
    ) -> dict[Target, Reference]:
        """For each target Σ_p w_p min(1, C/|g_p|) g_p with g_p the mean gradient of part p, and all |g_p|."""
        totals = {target: [torch.zeros_like(p) for p in self.parameters] for target in weights}
        norms = torch.zeros(len(parts), dtype=torch.float64)
        for number, items in enumerate(parts):
            gradient = self.gradient(items)
            norms[number] = _norm(gradient)
            for target, total in totals.items():
                scale = min(1.0, clip_norms[target] / float(norms[number]))
                torch._foreach_add_(total, gradient, alpha=scale * float(weights[target][number]))
        names = [name for name, _ in self.model.named_parameters()]
        return {
            target: Reference(dict(zip(names, total, strict=True)), norms) for target, total in totals.items()
        }


def gate_problem(problem: Problem) -> Problem:
    """The problem without noise, with the gate's clip norm and learning rate.

    Items at a non-differentiable point of the model are replaced by copies of other items.
    """
    smooth = differentiable_items(Float64Loop(problem).model, problem.inputs)
    kept = smooth[torch.arange(problem.case.batch) % len(smooth)]
    problem = replace(problem, inputs=problem.inputs[kept], labels=problem.labels[kept])
    loop = Float64Loop(problem)
    few = range(min(_FEW, problem.case.batch))
    norms = torch.tensor([_norm(loop.gradient(torch.tensor([i]))) for i in few])
    rate = _SCALE * problem.case.batch
    return replace(problem, noise_multiplier=0.0, clip_norm=float(norms.median()), learning_rate=rate)


def references(problem: Problem, targets: Collection[Target]) -> dict[Target, Reference]:
    """The correct sums and norms of a problem, by a loop over items and one over subjects."""
    loop, ones = Float64Loop(problem), torch.ones(problem.case.batch)
    clip_norms = dict.fromkeys(Target, problem.clip_norm) | {Target.PLAIN: float("inf")}
    by_item = {Target.PLAIN: ones, Target.ITEM: ones, Target.WEIGHTED: 1.0 / problem.group_sizes.double()}
    wanted = {target: weights for target, weights in by_item.items() if target in targets}
    items = [torch.tensor([item]) for item in range(problem.case.batch)]
    found = loop.sums(items, wanted, clip_norms) if wanted else {}
    if Target.PLAIN in found:
        found[Target.PLAIN] = replace(found[Target.PLAIN], norms=None)
    if Target.SUBJECT in targets:
        found |= loop.sums(problem.members, {Target.SUBJECT: ones}, clip_norms)
    return found


def check(method: Method, problem: Problem, reference: Reference) -> Errors:
    """Runs one step of the method on a problem of :func:`gate_problem` and compares."""
    stepper = method.build(problem)
    before = {name: value.double().clone() for name, value in stepper.parameters().items()}
    stepper.step()
    after = stepper.parameters()
    if after.keys() != reference.sums.keys():
        return Errors(float("inf"), None)
    errors = [
        _relative((before[name] - after[name].double()) / _SCALE, correct)
        for name, correct in reference.sums.items()
    ]
    norms = stepper.norms()
    if reference.norms is None:
        return Errors(max(errors), None)
    if norms is None or norms.shape != reference.norms.shape:
        return Errors(max(errors), float("inf"))
    return Errors(max(errors), float(((norms.double() - reference.norms) / reference.norms).abs().max()))


def _norm(gradient: Sequence[Tensor]) -> float:
    return float(torch.stack([part.square().sum() for part in gradient]).sum().sqrt())


def _relative(found: Tensor, correct: Tensor) -> float:
    return float((found - correct).norm() / correct.norm())
