"""How many rounds a run has, from its settings alone."""

import math
from typing import Protocol

from subjectdp.plan.plan import AccountingMode, Horizontal, Mechanism, PlanSettings


def silos_in_round(silos: int, settings: PlanSettings) -> int:
    """s, the silos that take part in one round, of ``silos``."""
    return silos if settings.silos_per_round is None else settings.silos_per_round


def executed_rounds(mechanism: Mechanism, settings: PlanSettings, silos: int) -> int:
    """Rounds that are run: floor(R/√s), at least 1, under the papers' Theorem 3.10/3.13; else R.

    The rule concerns only as_published runs of algorithms that the papers compose over silos.
    """
    reduced = (
        settings.mode is AccountingMode.AS_PUBLISHED
        and mechanism.horizontal_composition
        and settings.horizontal is Horizontal.ROUNDS_OVER_SQRT_S
    )
    if not reduced:
        return settings.rounds
    return max(1, math.isqrt(settings.rounds * settings.rounds // silos_in_round(silos, settings)))


class MinibatchSettings(Protocol):
    """``training`` of a configuration, or the settings of a plan."""

    @property
    def batch_size(self) -> int: ...
    @property
    def sampling_fraction(self) -> float | None: ...
    @property
    def local_steps(self) -> int | None: ...
    @property
    def local_epochs(self) -> int: ...


def expected_batch(settings: MinibatchSettings, items: float) -> float:
    """Expected items of a mini-batch of a silo with ``items``: B, or q times its items."""
    q = settings.sampling_fraction
    return float(settings.batch_size) if q is None else q * items


def round_steps(settings: MinibatchSettings, items: int) -> int:
    """Local steps of a round at a silo with ``items``; epochs of ceil(items / B) or ceil(1 / q), if none are given."""
    if settings.local_steps is not None:
        return settings.local_steps
    q = settings.sampling_fraction
    return settings.local_epochs * (math.ceil(items / settings.batch_size) if q is None else math.ceil(1 / q))
