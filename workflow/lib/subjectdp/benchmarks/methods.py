"""The methods that are compared: what each one's step computes, and where it can run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from subjectdp.errors import unknown

if TYPE_CHECKING:
    from torch import Tensor

    from subjectdp.benchmarks.cases import Problem


class Target(StrEnum):
    """What a method's sum is."""

    PLAIN = "plain"  # Σ_i g_i
    ITEM = "item"  # Σ_i min(1, C/|g_i|) g_i
    WEIGHTED = "weighted"  # Σ_i w_i min(1, C/|g_i|) g_i with w_i = 1 / items of i's subject
    SUBJECT = "subject"  # Σ_a min(1, C/|m_a|) m_a with m_a the mean gradient of subject a


class Stepper(Protocol):
    """A method that is ready to step."""

    def step(self) -> None:
        """One whole training step: forward, backward, clipping, noise, update."""
        ...

    def parameters(self) -> dict[str, Tensor]:
        """The model's parameters by the names and in the shapes of the original model."""
        ...

    def norms(self) -> Tensor | None:
        """Unclipped norms of the last step, by item or by subject; None for a plain step."""
        ...


@dataclass(frozen=True)
class Method:
    """One way to take a step.

    Attributes:
        name: in the results.
        target: what its sum has to be.
        module: module of this package with ``build(name, problem) -> Stepper``.
        workloads: where it belongs to the default selection.
        copies: per-item gradients of the whole model that it holds at once, times this (0: none).
        needs: None, or a check that says why it cannot run here.
        compiled: whether its first step compiles.
    """

    name: str
    target: Target
    module: str
    workloads: tuple[str, ...]
    copies: float = 0.0
    needs: Callable[[], str | None] | None = None
    compiled: bool = False

    @property
    def ours(self) -> bool:
        """Whether this project's engine takes the step."""
        return self.name.startswith("subjectdp_")

    def unavailable(self) -> str | None:
        """Why the method cannot run here, None if it can."""
        return None if self.needs is None else self.needs()

    def build(self, problem: Problem) -> Stepper:
        """The method ready to step on a problem."""
        stepper: Stepper = import_module(f"subjectdp.benchmarks.{self.module}").build(self.name, problem)
        return stepper


def _groups() -> str | None:
    import inspect

    from subjectdp.engine.clipping import ClippingEngine

    offered = "groups" in inspect.signature(ClippingEngine.clipped_sum).parameters
    return None if offered else "the engine does not clip by subject"


def _compiler() -> str | None:
    found = any(shutil.which(name) for name in ("g++", "clang++", "c++"))
    return None if found else "torch.compile needs a C++ compiler"


def _jax() -> str | None:
    return None if find_spec("jax") else "jax is not installed (extra `bench`)"


_CNN, _TEXT, _SUBJECTS = ("cnn",), ("lstm", "small_lstm"), ("subjects",)
_STEPS = (*_CNN, *_TEXT)
_HELD = 2.1  # copies of all per-item gradients at the peak of Opacus and vmap, as measured at B = 64

METHODS = {
    method.name: method
    for method in (
        Method("sgd", Target.PLAIN, "plain", (*_STEPS, *_SUBJECTS)),
        Method("sgd_nchw", Target.PLAIN, "plain", _CNN),
        Method("subjectdp_plain", Target.PLAIN, "ours", _STEPS),
        Method("subjectdp_item", Target.ITEM, "ours", (*_STEPS, *_SUBJECTS)),
        Method("subjectdp_item_noiseless", Target.ITEM, "ours", _STEPS),
        Method("subjectdp_higrad", Target.WEIGHTED, "ours", (*_STEPS, *_SUBJECTS)),
        Method("subjectdp_subject", Target.SUBJECT, "ours", _SUBJECTS, needs=_groups),
        Method("subject_loop", Target.SUBJECT, "plain", _SUBJECTS),
        Method("subject_vmap", Target.SUBJECT, "functional", _SUBJECTS, 0.5),
        Method("opacus_hooks", Target.ITEM, "opacus_steps", _STEPS, _HELD),
        Method("opacus_ghost", Target.ITEM, "opacus_steps", _STEPS),
        Method("opacus_functorch", Target.ITEM, "opacus_steps", _CNN, _HELD),
        Method("opacus_ew", Target.ITEM, "opacus_steps", _CNN, _HELD),
        Method("vmap", Target.ITEM, "functional", _CNN, _HELD),
        Method("vmap_compiled", Target.ITEM, "functional", _CNN, 1.25, _compiler, True),
        Method("jax", Target.ITEM, "jax_steps", (*_CNN, "lstm"), 1.25, _jax, True),
    )
}
BASE = "sgd"

CALIBRATION_METHODS = (
    "subjectdp_pld",
    "opacus_rdp",
    "opacus_prv",
    "dp_accounting_rdp",
    "dp_accounting_pld",
)
"""Methods of the workload ``calibration``; the first is the base."""


def select(workload: str, wanted: Iterable[str] | None) -> list[Method]:
    """The base and the wanted methods, or the workload's default ones, in the order of ``METHODS``."""
    if wanted is None:
        return [method for method in METHODS.values() if workload in method.workloads]
    names = {BASE, *wanted}
    return [method for method in METHODS.values() if method.name in names]


def check_names(wanted: Iterable[str]) -> None:
    """ConfigError for a name that no workload knows."""
    for name in wanted:
        if name not in METHODS and name not in CALIBRATION_METHODS:
            raise unknown("--methods", name, (*METHODS, *CALIBRATION_METHODS))
