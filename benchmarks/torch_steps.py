"""Steps in plain PyTorch: SGD, and ``torch.func``'s vmap over grad."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap

from benchmarks.methods import Method, Target
from benchmarks.opacus_steps import opacus_lstm, original_name
from benchmarks.problem import Problem
from subjectdp.errors import expected


class PlainStep:
    """torch.optim.SGD on the mean loss; images in channels-last memory, the faster layout."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model, self.inputs = problem, problem.model(), problem.inputs
        if problem.case.kind == "image":
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.inputs = self.inputs.contiguous(memory_format=torch.channels_last)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=problem.learning_rate)

    def step(self) -> None:
        self.optimiser.zero_grad()
        F.cross_entropy(self.model(self.inputs), self.problem.labels).backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()

    def parameters(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters()}

    def norms(self) -> Tensor | None:
        return None


class VmapStep:
    """vmap(grad(loss)) over chunks of items: the items themselves, or equally many items of each subject.

    nn.LSTM has no vmap rule; Opacus' LSTM, written out in Python, replaces it.
    """

    def __init__(self, problem: Problem, chunk: int) -> None:
        self.problem, self.model = problem, opacus_lstm(problem.model())
        self.values = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        order = torch.argsort(problem.owners, stable=True) if chunk > 1 else torch.arange(problem.case.batch)
        shape = (-1, chunk, *problem.inputs.shape[1:])
        self.inputs, self.labels = problem.inputs[order].view(shape), problem.labels[order].view(-1, chunk)
        self.gradients = vmap(grad(self._loss), (None, 0, 0))
        self.last_norms = torch.empty(0)

    def _loss(self, values: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(self.model, values, (inputs,)), labels)

    def step(self) -> None:
        problem = self.problem
        with torch.no_grad():
            gradients = self.gradients(self.values, self.inputs, self.labels)
            squares = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()])
            self.last_norms = squares.sum(0).sqrt()
            scale = (problem.clip_norm / self.last_norms).clamp(max=1.0)
            for name, value in self.values.items():
                total = torch.tensordot(scale, gradients[name], dims=1)
                if problem.noise_multiplier:
                    total.add_(torch.randn_like(total), alpha=problem.noise_multiplier * problem.clip_norm)
                value.sub_(total, alpha=problem.learning_rate / problem.case.batch)

    def parameters(self) -> dict[str, Tensor]:
        return {original_name(name): value for name, value in self.values.items()}

    def norms(self) -> Tensor:
        return self.last_norms


def build(method: Method, problem: Problem) -> PlainStep | VmapStep:
    """``sgd``, ``vmap`` or ``subject_vmap``.

    Raises:
        ConfigError: subjects of unequal sizes, which vmap cannot stack.
    """
    if method.target is Target.PLAIN:
        return PlainStep(problem)
    case = problem.case
    if method.target is Target.ITEM:
        return VmapStep(problem, 1)
    if case.batch % case.subjects:
        raise expected("subjects of subject_vmap", case.subjects, "a divisor of the batch size")
    return VmapStep(problem, case.batch // case.subjects)
