"""How subjects are sampled and how a subject's budget is split over its silos (algorithms that sample subjects)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from subjectdp.plan.ranges import Count, NonNegative, Probability


class BudgetWeights(StrEnum):
    """How a subject's clip norm is split over the silos that hold it (see ``noise.subject_weights``)."""

    UNIFORM = "uniform"  # equal parts at the silos that hold the subject
    PROPORTIONAL = "proportional"  # in proportion to its items there
    OPTIMAL = "optimal"  # largest expected signal under the budget
    FIXED = "fixed"  # one part for each silo that may hold a subject, whether it does or not


@dataclass(frozen=True)
class SubjectSettings:
    """Settings of subject sampling and of the budget; all public. The configuration takes its defaults from here.

    A subject takes part in a round when it is its turn (every ``every``-th round, from a secret start) and its coin
    says so (``sampling_probability``). Then all of its items at a silo are used, or ``items`` of them.
    """

    sampling_probability: Probability = 1.0  # q_s
    items: Count | None = None  # G, most items of a sampled subject at a silo and step; None: all
    every: Count = 1  # b: rounds from one turn of a subject to the next
    weights: BudgetWeights = BudgetWeights.UNIFORM
    item_noise: NonNegative = (
        4.0  # κ (OPTIMAL): variance of an item's gradient over its subject's squared gradient
    )
    local_steps: Count = 1  # of each subject's own model, where updates are clipped
    noise_band: Count = 1  # rounds that one draw of noise affects; 1: independent noise


@dataclass(frozen=True)
class Prediction:
    """A run with the noise on the average that more subjects would need: an experiment, not a guarantee."""

    subjects: int  # N, that the noise is for
    present: int  # n, that the run has
    noise_multipliers: tuple[float, ...]  # of each silo, with N subjects; the run's own are n/N of them
