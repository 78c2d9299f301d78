"""Steps of Opacus: per-sample gradients by hooks, and ghost clipping."""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.layers import DPLSTM
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from benchmarks.methods import Method
from benchmarks.problem import Problem

_DP_NAME = re.compile(r"\bl(\d+)\.(ih|hh)\.(weight|bias)$")


def opacus_lstm(model: nn.Module) -> nn.Module:
    """The model with each nn.LSTM replaced by Opacus' own, the only one that it can clip."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.LSTM):
            twin = DPLSTM(
                module.input_size,
                module.hidden_size,
                num_layers=module.num_layers,
                batch_first=module.batch_first,
            )
            twin.load_state_dict(module.state_dict())
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, twin)
    return model


def original_name(name: str) -> str:
    """nn.LSTM's name for a parameter of Opacus' LSTM; other names unchanged."""
    return _DP_NAME.sub(lambda m: f"{m[3]}_{m[2]}_l{m[1]}", name)


class HooksStep:
    """Holds a gradient for each item."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.inner = problem, opacus_lstm(problem.model()).train()
        self.model: Any = GradSampleModule(self.inner)
        self.criterion: Any = nn.CrossEntropyLoss()
        self.optimiser = _optimiser(DPOptimizer, self.inner, problem)

    def step(self) -> None:
        self.optimiser.zero_grad()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning)  # Opacus' own use of full backward hooks
            self.criterion(self.model(self.problem.inputs), self.problem.labels).backward()
        self.optimiser.step()

    def parameters(self) -> dict[str, Tensor]:
        return {original_name(name): p.detach() for name, p in self.inner.named_parameters()}

    def norms(self) -> Tensor:
        # computed as its optimiser does
        parts = [p.grad_sample.flatten(1).norm(2, dim=1) for p in self.inner.parameters()]  # type: ignore[attr-defined]
        norms: Tensor = torch.stack(parts, dim=1).norm(2, dim=1)
        return norms


class GhostStep(HooksStep):
    """Ghost clipping: norms first, then a second backward pass of the weighted loss."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.inner = problem, opacus_lstm(problem.model()).train()
        self.model = GradSampleModuleFastGradientClipping(self.inner, max_grad_norm=problem.clip_norm)
        self.optimiser = _optimiser(DPOptimizerFastGradientClipping, self.inner, problem)
        self.criterion = DPLossFastGradientClipping(self.model, self.optimiser, nn.CrossEntropyLoss())

    def norms(self) -> Tensor:
        norms: Tensor = self.model.per_sample_gradient_norms
        return norms


def _optimiser(kind: Any, model: nn.Module, problem: Problem) -> Any:
    return kind(
        torch.optim.SGD(model.parameters(), lr=problem.learning_rate),
        noise_multiplier=problem.noise_multiplier,
        max_grad_norm=problem.clip_norm,
        expected_batch_size=problem.case.batch,
    )


def build(method: Method, problem: Problem) -> HooksStep:
    """``opacus_hooks`` or ``opacus_ghost``."""
    return GhostStep(problem) if method.name == "opacus_ghost" else HooksStep(problem)
