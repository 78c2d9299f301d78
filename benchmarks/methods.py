"""The methods that are compared: steps of plain PyTorch, of this project's engine, and of Opacus.

All train on a model and one random mini-batch; a step's cost does not depend on the items' values.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
import torch.nn.functional as F
from opacus import PrivacyEngine
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.layers import DPLSTM
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from subjectdp.config.sections import OptimizerConfig
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.engine.probe import items_in_a_pass, saved_values
from subjectdp.models.build import build_model
from subjectdp.models.catalogue import MODELS
from subjectdp.models.fixed import FixedFeatureModel
from subjectdp.noise.gaussian import add_gaussian
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.training.federation import Optimiser

CLASSES = {"image": 62, "text": 80}
WINDOW = 80  # characters of a text item


@dataclass(frozen=True)
class Case:
    """A model (a key of ``MODELS``), B items of some subjects, and model arguments other than the defaults."""

    workload: str
    model: str
    batch: int
    subjects: int
    parameters: tuple[tuple[str, int], ...] = ()

    @property
    def kind(self) -> str:
        """``image`` or ``text``."""
        return MODELS[self.model].kind


@dataclass(frozen=True)
class Problem:
    """A case with its tensors. Every method's step is θ ← θ - (learning_rate / B) (its sum + noise).

    Attributes:
        inputs: (B, 1, 28, 28) float32, (B, width) float32 of fixed features, or (B, 80) int64.
        labels: (B,) int64.
        owners: (B,) int64, the subject of each item; subjects have equally many items, or one more.
    """

    case: Case
    initial: nn.Module
    inputs: Tensor
    labels: Tensor
    owners: Tensor
    clip_norm: float = 1.0
    noise_multiplier: float = 1.0
    learning_rate: float = 0.01

    def model(self) -> nn.Module:
        """A copy of the model with the initial weights."""
        return copy.deepcopy(self.initial)

    @property
    def group_sizes(self) -> Tensor:
        """(B,) float32: for each item, the number of items of its subject."""
        return torch.bincount(self.owners)[self.owners].float()


def make_problem(case: Case, seed: int = 0) -> Problem:
    """Draws the tensors of a case; the same seed gives the same tensors."""
    generator = torch.Generator().manual_seed(seed)
    classes = CLASSES[case.kind]
    labels = torch.randint(0, classes, (case.batch,), generator=generator)
    model = build_model(case.model, classes, case.kind, seed, dict(case.parameters))
    if isinstance(model, FixedFeatureModel):  # a run computes the features once, before any step
        inputs = torch.randn(case.batch, model.width, generator=generator) / model.width**0.5
    elif case.kind == "image":
        inputs = torch.rand(case.batch, 1, 28, 28, generator=generator)
    else:
        inputs = torch.randint(0, classes, (case.batch, WINDOW), generator=generator)
    owners = (torch.arange(case.batch) % case.subjects)[torch.randperm(case.batch, generator=generator)]
    return Problem(case, model, inputs, labels, owners)


class Target(StrEnum):
    """The sum that a step computes."""

    PLAIN = "plain"  # Σ_i g_i
    ITEM = "item"  # Σ_i min(1, C/|g_i|) g_i
    WEIGHTED = "weighted"  # Σ_i w_i min(1, C/|g_i|) g_i with w_i = 1 / items of i's subject
    SUBJECT = "subject"  # Σ_a min(1, C/|m_a|) m_a with m_a the mean gradient of subject a


class Stepper:
    """A method built for one problem; ``model`` has the parameters that its steps update."""

    problem: Problem
    model: nn.Module

    def step(self) -> None:
        """One whole training step: forward, backward, clipping, noise, update."""
        raise NotImplementedError

    def norms(self) -> Tensor | None:
        """Unclipped norms of the last step, by item or by subject; None for a plain step."""
        return None

    def parameters(self) -> dict[str, Tensor]:
        """The parameters by their names in the original model."""
        return {_original_name(name): p.detach() for name, p in self.model.named_parameters()}


class PlainStep(Stepper):
    """torch.optim.SGD on the mean loss; images in channels-last memory, the faster layout."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model, self.inputs = problem, problem.model(), problem.inputs
        if problem.inputs.dim() == 4:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.inputs = self.inputs.contiguous(memory_format=torch.channels_last)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=problem.learning_rate)

    def step(self) -> None:
        self.optimiser.zero_grad()
        F.cross_entropy(self.model(self.inputs), self.problem.labels).backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()


class EngineStep(Stepper):
    """This project: clipped sum, keyed noise and descent, by the functions that the training loop calls."""

    def __init__(self, problem: Problem, target: Target, add_noise: Callable[..., Tensor] = add_gaussian) -> None:
        self.problem, self.target, self.add_noise = problem, target, add_noise
        self.std = problem.noise_multiplier * problem.clip_norm
        model = problem.model()
        at_once = items_in_a_pass(saved_values(model, problem.inputs[:1]), problem.inputs.device.type)
        self.engine = ClippingEngine(FlatParameters(model), at_once)
        self.model = self.engine.flat.model
        self.optimiser = Optimiser(OptimizerConfig(learning_rate=problem.learning_rate))
        # a subject's mean gradient is the sum of its items', each divided by their number
        self.weights = 1.0 / problem.group_sizes if target in (Target.WEIGHTED, Target.SUBJECT) else None
        self.steps, self.last_norms = 0, torch.empty(0)
        add_gaussian(torch.zeros(1), 1.0, bytes(32))  # compiles the noise before anything is timed

    def step(self) -> None:
        self.steps += 1
        total = self.add_noise(self._sum(), self.std, key_bytes(0, Purpose.NOISE, "bench", self.steps))
        self.optimiser.step(self.engine.flat.vector, total.div_(self.problem.case.batch))

    def _sum(self) -> Tensor:
        problem = self.problem
        groups = problem.owners if self.target is Target.SUBJECT else None
        total, self.last_norms = self.engine.clipped_sum(
            problem.inputs, problem.labels, problem.clip_norm, self.weights, groups
        )
        return total

    def norms(self) -> Tensor | None:
        return self.last_norms


class HooksStep(Stepper):
    """Opacus' per-sample gradients: it holds a gradient for each item."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model = problem, _opacus_lstm(problem.model()).train()
        self.wrapped: Any = GradSampleModule(self.model)
        self.criterion: Any = nn.CrossEntropyLoss()
        self.optimiser = _opacus_optimiser(DPOptimizer, self.model, problem)

    def step(self) -> None:
        self.optimiser.zero_grad()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning)  # Opacus' own use of full backward hooks
            self.criterion(self.wrapped(self.problem.inputs), self.problem.labels).backward()
        self.optimiser.step()

    def norms(self) -> Tensor | None:
        parts = [p.grad_sample.flatten(1).norm(2, dim=1) for p in self.model.parameters()]  # type: ignore[attr-defined]
        norms: Tensor = torch.stack(parts, dim=1).norm(2, dim=1)
        return norms


class GhostStep(HooksStep):
    """Opacus' ghost clipping: norms first, then a second backward pass of the weighted loss."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model = problem, _opacus_lstm(problem.model()).train()
        self.wrapped = GradSampleModuleFastGradientClipping(self.model, max_grad_norm=problem.clip_norm)
        self.optimiser = _opacus_optimiser(DPOptimizerFastGradientClipping, self.model, problem)
        self.criterion = DPLossFastGradientClipping(self.wrapped, self.optimiser, nn.CrossEntropyLoss())

    def norms(self) -> Tensor | None:
        norms: Tensor = self.wrapped.per_sample_gradient_norms
        return norms


def made_private(module: nn.Module, optimiser: Any, loader: Any, mode: str, clip_norm: float = 1.0) -> Any:
    """Module, optimiser, criterion and loader as Opacus' PrivacyEngine makes them in a mode, with σ = 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the noise is not cryptographic
        made: Any = PrivacyEngine().make_private(
            module=module,
            optimizer=optimiser,
            criterion=nn.CrossEntropyLoss(),
            data_loader=loader,
            noise_multiplier=1.0,
            max_grad_norm=clip_norm,
            grad_sample_mode=mode,
        )
    return made if mode == "ghost" else (made[0], made[1], nn.CrossEntropyLoss(), made[2])


def _opacus_lstm(model: nn.Module) -> nn.Module:
    """The model with each nn.LSTM replaced by Opacus' own, the only one that it can clip."""
    for name, lstm in list(model.named_modules()):
        if isinstance(lstm, nn.LSTM):
            twin = DPLSTM(lstm.input_size, lstm.hidden_size, lstm.num_layers, batch_first=lstm.batch_first)
            twin.load_state_dict(lstm.state_dict())
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, twin)
    return model


def _original_name(name: str) -> str:
    """nn.LSTM's name for a parameter of Opacus' LSTM; other names unchanged."""
    return re.sub(r"\bl(\d+)\.(ih|hh)\.(weight|bias)$", r"\3_\2_l\1", name)


def _opacus_optimiser(kind: Any, model: nn.Module, problem: Problem) -> Any:
    return kind(
        torch.optim.SGD(model.parameters(), lr=problem.learning_rate),
        noise_multiplier=problem.noise_multiplier,
        max_grad_norm=problem.clip_norm,
        expected_batch_size=problem.case.batch,
    )


@dataclass(frozen=True)
class Method:
    """One way to take a step.

    Attributes:
        workloads: those that include the method by default.
        copies: per-item gradients of the whole model that it holds at once, as a multiple of the batch.
    """

    target: Target
    build: Callable[[Problem], Stepper]
    workloads: tuple[str, ...]
    copies: float = 0.0


def _engine(target: Target, workloads: tuple[str, ...]) -> Method:
    return Method(target, lambda problem: EngineStep(problem, target), workloads)


BASE = "sgd"
_STEPS, _SUBJECTS = ("cnn", "lstm", "small_lstm", "head"), ("subjects", "head")
_HELD = 2.1  # measured at B = 64
METHODS = {
    BASE: Method(Target.PLAIN, PlainStep, (*_STEPS, *_SUBJECTS)),
    "subjectdp_item": _engine(Target.ITEM, (*_STEPS, *_SUBJECTS)),
    "subjectdp_higrad": _engine(Target.WEIGHTED, (*_STEPS, *_SUBJECTS)),
    "subjectdp_subject": _engine(Target.SUBJECT, _SUBJECTS),
    "opacus_hooks": Method(Target.ITEM, HooksStep, _STEPS, _HELD),
    "opacus_ghost": Method(Target.ITEM, GhostStep, _STEPS),
}


def ours(name: str) -> bool:
    """Whether a method is this project's."""
    return name.startswith("subjectdp_")
