"""The methods that are compared, and the sum that each one's step computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, Protocol

from torch import Tensor

from benchmarks.problem import Problem
from subjectdp.errors import unknown


class Target(StrEnum):
    """The sum that a step computes."""

    PLAIN = "plain"  # Σ_i g_i
    ITEM = "item"  # Σ_i min(1, C/|g_i|) g_i
    WEIGHTED = "weighted"  # Σ_i w_i min(1, C/|g_i|) g_i with w_i = 1 / items of i's subject
    SUBJECT = "subject"  # Σ_a min(1, C/|m_a|) m_a with m_a the mean gradient of subject a


class Stepper(Protocol):
    """A method built for one problem."""

    def step(self) -> None:
        """One whole training step: forward, backward, clipping, noise, update."""

    def parameters(self) -> dict[str, Tensor]:
        """The parameters with the names and shapes of the original model."""

    def norms(self) -> Tensor | None:
        """Unclipped norms of the last step, by item or by subject; None for a plain step."""


@dataclass(frozen=True)
class Method:
    """One way to take a step.

    Attributes:
        module: module of this package with ``build(method, problem) -> Stepper``.
        workloads: those that include the method by default.
        copies: per-item gradients of the whole model that it holds at once, as a multiple of the batch.
    """

    name: str
    target: Target
    module: str
    workloads: tuple[str, ...]
    copies: float = 0.0

    @property
    def ours(self) -> bool:
        """Whether this project's engine takes the step."""
        return self.name.startswith("subjectdp_")

    def load(self) -> Any:
        """Imports the method's module and libraries."""
        return import_module(f"benchmarks.{self.module}")

    def build(self, problem: Problem) -> Stepper:
        """The method, ready to step."""
        stepper: Stepper = self.load().build(self, problem)
        return stepper


BASE = "sgd"
_STEPS, _SUBJECTS = ("cnn", "lstm", "small_lstm"), ("subjects",)
_HELD = 2.1  # copies of all per-item gradients at the peak of Opacus and vmap, measured at B = 64

METHODS = {
    method.name: method
    for method in (
        Method(BASE, Target.PLAIN, "torch_steps", _STEPS + _SUBJECTS),
        Method("subjectdp_plain", Target.PLAIN, "engine_steps", _STEPS),
        Method("subjectdp_item", Target.ITEM, "engine_steps", _STEPS + _SUBJECTS),
        Method("subjectdp_higrad", Target.WEIGHTED, "engine_steps", _STEPS + _SUBJECTS),
        Method("subjectdp_subject", Target.SUBJECT, "engine_steps", _SUBJECTS),
        Method("subject_vmap", Target.SUBJECT, "torch_steps", _SUBJECTS, 0.5),
        Method("opacus_hooks", Target.ITEM, "opacus_steps", _STEPS, _HELD),
        Method("opacus_ghost", Target.ITEM, "opacus_steps", _STEPS),
        Method("vmap", Target.ITEM, "torch_steps", ("cnn",), _HELD),
    )
}

CALIBRATION_METHODS = (
    "subjectdp_pld",
    "opacus_rdp",
    "opacus_prv",
    "dp_accounting_rdp",
    "dp_accounting_pld",
)
"""Methods of the workload ``calibration``; the first is the base."""


def select(workload: str, wanted: Iterable[str] | None) -> list[Method]:
    """The base with the wanted methods, or the workload's default methods, in the order of ``METHODS``."""
    if wanted is None:
        return [method for method in METHODS.values() if workload in method.workloads]
    names = {BASE, *wanted}
    return [method for method in METHODS.values() if method.name in names]


def check_names(wanted: Iterable[str]) -> None:
    """ConfigError for an unknown method."""
    for name in wanted:
        if name not in METHODS and name not in CALIBRATION_METHODS:
            raise unknown("--methods", name, (*METHODS, *CALIBRATION_METHODS))
