"""How subjects are sampled and how a subject's budget is split over its silos (algorithms that sample subjects)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BudgetWeights(StrEnum):
    """How a subject's clip norm is split over the silos that hold it (see ``noise.subject_weights``)."""

    UNIFORM = "uniform"  # equal parts at the silos that hold the subject
    PROPORTIONAL = "proportional"  # in proportion to its items there
    OPTIMAL = "optimal"  # largest expected signal under the budget
    FIXED = "fixed"  # one part for each silo that may hold a subject, whether it does or not


@dataclass(frozen=True)
class SubjectSettings:
    """Settings of subject sampling and of the budget; all public.

    A subject takes part in a round when it is its turn (every ``every``-th round, from a secret start of its own) and
    its coin says so (``sampling_probability``); then all of its items at a silo are used, or ``items`` of them.
    """

    sampling_probability: float = 1.0  # q_s, in (0, 1]
    items: int | None = None  # G, most items of a sampled subject at a silo and step; None: all
    every: int = 1  # b: rounds from one turn of a subject to the next
    weights: BudgetWeights = BudgetWeights.UNIFORM
    item_noise: float = (
        4.0  # κ: variance of an item's gradient over the squared gradient of its subject (OPTIMAL)
    )
    local_steps: int = 1  # of each subject's own model, where updates are clipped
    noise_band: int = 1  # rounds that one draw of noise reaches over; 1: independent noise


@dataclass(frozen=True)
class Prediction:
    """A run whose noise on the average is what more subjects would need: an experiment, no guarantee for its own."""

    subjects: int  # N, that the noise is for
    present: int  # n, that the run has
    noise_multipliers: tuple[float, ...]  # of each silo, with N subjects; the run's own are n/N of them
