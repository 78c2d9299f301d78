"""The correctness gate: what one step of a method did to the parameters, against a float64 loop over the items.

The step runs without noise and with a learning rate of 1024·B, a power of two above any sum, so that the parameters'
change is 1024 times the method's sum and nothing of it is lost in rounding. C is the median norm of a few items:
some are clipped and some are not.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from subjectdp.benchmarks.cases import Problem
from subjectdp.benchmarks.kinks import clear_items
from subjectdp.benchmarks.methods import Method, Target

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
class Verdict:
    """Largest relative error over the parameters' sums and over the norms.

    Attributes:
        norm_error: None where there are no norms.
    """

    sum_error: float
    norm_error: float | None

    def within(self, tolerance: float) -> bool:
        """Whether both errors are at most ``tolerance`` (a NaN is not)."""
        return self.sum_error <= tolerance and (self.norm_error is None or self.norm_error <= tolerance)


class Float64Loop:
    """A float64 copy of the problem's model whose gradients are taken for a few items at a time."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model = problem, copy.deepcopy(problem.initial).double()
        self.names = [name for name, _ in self.model.named_parameters()]
        self.parameters = list(self.model.parameters())

    def gradient(self, items: Tensor, reduction: str = "mean") -> tuple[Tensor, ...]:
        """The gradient of these items' mean (or summed) loss."""
        inputs, labels = self.problem.inputs[items], self.problem.labels[items]
        inputs = inputs.double() if inputs.is_floating_point() else inputs
        loss = F.cross_entropy(self.model(inputs), labels, reduction=reduction)
        return torch.autograd.grad(loss, self.parameters)

    def clipped(
        self, parts: Sequence[Tensor], weights: dict[Target, Tensor], clip_norm: float
    ) -> tuple[dict[Target, list[Tensor]], Tensor]:
        """Σ_p w_p min(1, C/|g_p|) g_p for each of the weightings, g_p the mean gradient of part p; and all |g_p|."""
        totals = {target: [torch.zeros_like(p) for p in self.parameters] for target in weights}
        norms = torch.zeros(len(parts), dtype=torch.float64)
        for number, items in enumerate(parts):
            gradient = self.gradient(items)
            norms[number] = _norm(gradient)
            scale = min(1.0, clip_norm / float(norms[number]))
            for target, total in totals.items():
                torch._foreach_add_(total, gradient, alpha=scale * float(weights[target][number]))
        return totals, norms


def gate_problem(problem: Problem) -> Problem:
    """The problem without noise, with the clip norm and the learning rate of the gate.

    Items at a kink of the model give way to copies of items that are clear of it, see ``kinks``.
    """
    clear = clear_items(Float64Loop(problem).model, problem.inputs)
    kept = clear[torch.arange(problem.case.batch) % len(clear)]
    problem = replace(problem, inputs=problem.inputs[kept], labels=problem.labels[kept])
    loop = Float64Loop(problem)
    few = range(min(_FEW, problem.case.batch))
    norms = torch.tensor([_norm(loop.gradient(torch.tensor([i]))) for i in few])
    rate = _SCALE * problem.case.batch
    return replace(problem, noise_multiplier=0.0, clip_norm=float(norms.median()), learning_rate=rate)


def references(problem: Problem, targets: Collection[Target]) -> dict[Target, Reference]:
    """The wanted sums and norms of a problem, by loops over items and over subjects."""
    loop, found = Float64Loop(problem), {}
    items = torch.arange(problem.case.batch)
    if Target.PLAIN in targets:
        total = [torch.zeros_like(p) for p in loop.parameters]
        for chunk in torch.split(items, 32):
            torch._foreach_add_(total, loop.gradient(chunk, "sum"))
        found[Target.PLAIN] = Reference(dict(zip(loop.names, total, strict=True)), None)
    weights = {Target.ITEM: torch.ones(len(items)), Target.WEIGHTED: 1.0 / problem.group_sizes.double()}
    subjects = [torch.nonzero(problem.owners == owner).squeeze(1) for owner in torch.unique(problem.owners)]
    for parts, weightings in (
        (list(torch.split(items, 1)), {t: w for t, w in weights.items() if t in targets}),
        (subjects, {Target.SUBJECT: torch.ones(len(subjects))} if Target.SUBJECT in targets else {}),
    ):
        if weightings:
            totals, norms = loop.clipped(parts, weightings, problem.clip_norm)
            for target, total in totals.items():
                found[target] = Reference(dict(zip(loop.names, total, strict=True)), norms)
    return found


def check(method: Method, problem: Problem, reference: Reference) -> Verdict:
    """Runs one step of the method on a problem of :func:`gate_problem` and compares."""
    stepper = method.build(problem)
    before = {name: value.double().clone() for name, value in stepper.parameters().items()}
    stepper.step()
    after = stepper.parameters()
    if after.keys() != reference.sums.keys():
        return Verdict(float("inf"), None)
    errors = [
        _relative((before[name] - after[name].double()) / _SCALE, wanted)
        for name, wanted in reference.sums.items()
    ]
    norms = stepper.norms()
    if reference.norms is None:
        return Verdict(max(errors), None)
    if norms is None or norms.shape != reference.norms.shape:
        return Verdict(max(errors), float("inf"))
    return Verdict(max(errors), float(((norms.double() - reference.norms) / reference.norms).abs().max()))


def _norm(gradient: Sequence[Tensor]) -> float:
    return float(torch.stack([part.square().sum() for part in gradient]).sum().sqrt())


def _relative(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())
