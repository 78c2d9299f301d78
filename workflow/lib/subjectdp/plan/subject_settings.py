"""How subjects are sampled and how a subject's budget is split over its silos (algorithms that sample subjects)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from subjectdp.plan.ranges import Count, Probability


class BudgetWeights(StrEnum):
    """How a subject's clip norm is split over the silos that hold it (see ``noise.subject_weights``)."""

    UNIFORM = "uniform"  # equal parts at the silos that hold the subject
    PROPORTIONAL = "proportional"  # in proportion to its items there
    FIXED = "fixed"  # one part for each silo that may hold a subject, whether it does or not


@dataclass(frozen=True)
class SubjectSettings:
    """Settings of subject sampling and of the budget; all public. The configuration takes its defaults from here.

    A subject takes part in a round when its coin says so (``sampling_probability``). Then all of its items at a silo
    are used, or ``items`` of them.
    """

    sampling_probability: Probability = 1.0  # q_s
    items: Count | None = None  # G, most items of a sampled subject at a silo and step; None: all
    weights: BudgetWeights = BudgetWeights.UNIFORM
    local_steps: Count = 1  # of each subject's own model, where updates are clipped


@dataclass(frozen=True)
class Prediction:
    """A run with the noise on the average that more subjects would need: an experiment, not a guarantee."""

    subjects: int  # N, that the noise is for
    present: int  # n, that the run has
    noise_multipliers: tuple[float, ...]  # of each silo, with N subjects; the run's own are n/N of them
