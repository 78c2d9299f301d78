"""How many rounds a run has, from its settings alone."""

from __future__ import annotations

import math

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
