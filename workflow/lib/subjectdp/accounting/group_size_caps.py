"""Choosing a cap on a subject's items: the noise on the average gradient for each cap, and the items that it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subjectdp.accounting.averaged_noise import averaged_noise
from subjectdp.accounting.make_plan import make_plan
from subjectdp.algorithms.registry import mechanism
from subjectdp.errors import expected
from subjectdp.plan.plan import AccountingMode, FederationFacts, PlanSettings


@dataclass(frozen=True)
class CapRow:
    """What one cap gives and takes.

    Attributes:
        cap: k, most items of a subject at a silo.
        kept: part of the items that are kept.
        noise_multiplier: σ, the largest over the silos.
        noise: std of the noise on the gradient averaged over all silos, in clip norms.
    """

    cap: int
    kept: float
    noise_multiplier: float
    noise: float


def cap_table(
    counts: NDArray[np.int64], caps: Sequence[int], settings: PlanSettings, silos_per_subject: int
) -> list[CapRow]:
    """A row for each cap, with CappedItemDP's plan for the federation that the cap leaves.

    A smaller cap needs less noise, until what it throws away costs more. Choosing by this table is a choice by the
    data, unless the counts are public or of other data alike.

    Args:
        counts: (silos, subjects) items of each subject at each silo, before any cap.
        caps: k, each at least 1.
        settings: schedule and privacy target, in sound mode.
        silos_per_subject: the public bound on the silos that hold one subject.

    Raises:
        ConfigError: a cap below 1, or a batch size that a capped silo does not hold.
        PrivacyError: settings that cannot be accounted for.
    """
    rows = []
    for cap in caps:
        if cap < 1:
            raise expected("cap on a subject's items", cap, "at least 1")
        kept = np.minimum(counts, cap)
        facts = FederationFacts(
            items=tuple(int(n) for n in kept.sum(axis=1)),
            subjects=tuple(int(n) for n in (kept > 0).sum(axis=1)),
            largest_subject=(cap,) * len(kept),
            cap_enforced=True,
            max_items_per_subject=cap,
            silos_per_subject=silos_per_subject,
        )
        plan = make_plan(mechanism("capped_item_dp", None, AccountingMode.SOUND), facts, settings)
        largest = max(silo.noise_multiplier for silo in plan.silos)
        rows.append(CapRow(cap, float(kept.sum() / counts.sum()), largest, averaged_noise(plan)))
    return rows
