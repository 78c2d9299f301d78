"""Steps of this project's clipping engine, by the functions that the training loop calls."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.methods import Method, Target
from benchmarks.problem import Problem
from subjectdp.config.sections import OptimizerConfig
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.noise.gaussian import add_gaussian
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.training.steps.optimisers import descend, make_optimiser


class EngineStep:
    """Clipped sum, keyed noise, division and descent on the flat parameters."""

    def __init__(self, problem: Problem, target: Target) -> None:
        self.problem, self.target = problem, target
        noise_multiplier = 0.0 if target is Target.PLAIN else problem.noise_multiplier
        self.std = noise_multiplier * problem.clip_norm
        self.engine = ClippingEngine(FlatParameters(problem.model()))
        settings = OptimizerConfig(learning_rate=problem.learning_rate)
        self.optimiser = make_optimiser(self.engine.flat.vector, settings)
        # a subject's mean gradient is the sum of its items', each divided by their number
        self.weights = 1.0 / problem.group_sizes if target in (Target.WEIGHTED, Target.SUBJECT) else None
        self.steps = 0
        self.last_norms: Tensor | None = None
        add_gaussian(torch.zeros(1), 1.0, bytes(32))  # compiles the noise before anything is timed

    def step(self) -> None:
        self.steps += 1
        total = add_gaussian(self._sum(), self.std, key_bytes(0, Purpose.NOISE, "bench", self.steps))
        descend(self.optimiser, self.engine.flat.vector, total.div_(self.problem.case.batch))

    def _sum(self) -> Tensor:
        problem = self.problem
        if self.target is Target.PLAIN:
            return self.engine.gradient_sum(problem.inputs, problem.labels)
        groups = {"groups": problem.owners} if self.target is Target.SUBJECT else {}
        total, self.last_norms = self.engine.clipped_sum(
            problem.inputs, problem.labels, problem.clip_norm, self.weights, **groups
        )
        return total

    def parameters(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.engine.flat.model.named_parameters()}

    def norms(self) -> Tensor | None:
        return self.last_norms


def build(method: Method, problem: Problem) -> EngineStep:
    """``subjectdp_*``: plain, clipped by item, by item with subjects' weights, or by subject."""
    return EngineStep(problem, method.target)
