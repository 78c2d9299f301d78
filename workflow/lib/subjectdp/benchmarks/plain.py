"""Steps in plain PyTorch: the SGD that everything is measured against, and the loop over subjects."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from subjectdp.benchmarks.cases import Problem


class PlainStep:
    """torch.optim.SGD on the mean loss, in channels-last memory where the model has images."""

    def __init__(self, problem: Problem, channels_last: bool = True) -> None:
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.problem, self.model = problem, problem.model()
        self.inputs = problem.inputs
        if problem.case.kind == "image":
            self.model = self.model.to(memory_format=layout)  # type: ignore[call-overload]
            self.inputs = self.inputs.contiguous(memory_format=layout)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=problem.learning_rate)

    def step(self) -> None:
        self.optimiser.zero_grad()
        F.cross_entropy(self.model(self.inputs), self.problem.labels).backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()

    def parameters(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters()}

    def norms(self) -> Tensor | None:
        return None


class SubjectLoop(PlainStep):
    """One backward pass a subject, each subject's mean gradient clipped, noise and update at the end."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.members = [
            torch.nonzero(problem.owners == subject).squeeze(1)
            for subject in range(int(problem.owners.max()) + 1)
        ]
        self.last_norms = torch.zeros(len(self.members))

    def step(self) -> None:
        problem, parameters = self.problem, list(self.model.parameters())
        total = [torch.zeros_like(p) for p in parameters]
        for subject, members in enumerate(self.members):
            loss = F.cross_entropy(self.model(self.inputs[members]), problem.labels[members])
            gradients = torch.autograd.grad(loss, parameters)
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
            self.last_norms[subject] = norm
            scale = min(1.0, problem.clip_norm / float(norm))
            for part, gradient in zip(total, gradients, strict=True):
                part.add_(gradient, alpha=scale)
        with torch.no_grad():
            for parameter, part in zip(parameters, total, strict=True):
                update(parameter, part, problem)

    def norms(self) -> Tensor:
        return self.last_norms


def update(parameter: Tensor, total: Tensor, problem: Problem) -> None:
    """θ ← θ - (learning_rate / B) (total + N(0, σ²C²)), in place; spends ``total``."""
    if problem.noise_multiplier:
        total.add_(torch.randn_like(total), alpha=problem.noise_multiplier * problem.clip_norm)
    parameter.sub_(total, alpha=problem.learning_rate / problem.case.batch)


def build(name: str, problem: Problem) -> PlainStep:
    """``sgd``, ``sgd_nchw`` (not channels-last) or ``subject_loop``."""
    if name == "subject_loop":
        return SubjectLoop(problem)
    return PlainStep(problem, channels_last=name != "sgd_nchw")
