"""Steps through torch.func: per-item or per-subject gradients by vmap over grad, with and without torch.compile."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap

from subjectdp.benchmarks.cases import Problem
from subjectdp.benchmarks.methods import METHODS, Target
from subjectdp.benchmarks.opacus_steps import opacus_lstm, original_name
from subjectdp.benchmarks.plain import update
from subjectdp.errors import expected


class VmapStep:
    """vmap(grad(loss)) over chunks of items: each chunk's mean gradient is clipped.

    A chunk is one item, or the items of one subject. nn.LSTM has no vmap rule; Opacus' written-out LSTM stands in.
    """

    def __init__(self, problem: Problem, chunk: int, compiled: bool) -> None:
        self.problem = problem
        self.model = opacus_lstm(problem.model())
        self.values = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        order = torch.argsort(problem.owners, stable=True) if chunk > 1 else torch.arange(problem.case.batch)
        shape = (-1, chunk, *problem.inputs.shape[1:])
        self.inputs, self.labels = problem.inputs[order].view(shape), problem.labels[order].view(-1, chunk)
        self.gradients = vmap(grad(self._loss), (None, 0, 0))
        self.clipped: Any = torch.compile(self._clipped_sums) if compiled else self._clipped_sums
        # an argument, not a constant of the compiled code: it is compiled once for the gate and the timing
        self.clip_norm = torch.tensor(problem.clip_norm)
        self.last_norms = torch.empty(0)

    def _loss(self, values: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(self.model, values, (inputs,)), labels)

    def _clipped_sums(
        self, values: dict[str, Tensor], inputs: Tensor, labels: Tensor, clip_norm: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        gradients = self.gradients(values, inputs, labels)
        norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0).sqrt()
        scale = (clip_norm / norms).clamp(max=1.0)
        return {name: torch.tensordot(scale, g, dims=1) for name, g in gradients.items()}, norms

    def step(self) -> None:
        with torch.no_grad():
            sums, self.last_norms = self.clipped(self.values, self.inputs, self.labels, self.clip_norm)
            for name, value in self.values.items():
                update(value, sums[name], self.problem)

    def parameters(self) -> dict[str, Tensor]:
        return {original_name(name): value for name, value in self.values.items()}

    def norms(self) -> Tensor:
        return self.last_norms


def build(name: str, problem: Problem) -> VmapStep:
    """``vmap``, ``vmap_compiled``, or ``subject_vmap`` (subjects with equally many items).

    Raises:
        ConfigError: subjects of different sizes, which one vmap cannot hold.
    """
    chunk = 1
    if METHODS[name].target is Target.SUBJECT:
        if problem.case.batch % problem.case.subjects:
            raise expected("subjects of subject_vmap", problem.case.subjects, "a divisor of the batch size")
        chunk = problem.case.batch // problem.case.subjects
    return VmapStep(problem, chunk, compiled=name == "vmap_compiled")
