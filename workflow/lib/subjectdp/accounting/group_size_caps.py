"""Choosing a cap on a subject's items: the noise on the average gradient for each cap, and the items that it keeps."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subjectdp.accounting.averaged_noise import averaged_noise
from subjectdp.accounting.make_plan import make_plan
from subjectdp.algorithms.registry import mechanism
from subjectdp.errors import expected
from subjectdp.plan.plan import (
    AccountingMode,
    FederationFacts,
    Horizontal,
    PlanSettings,
    SamplingMethod,
)


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


def caps(options: argparse.Namespace) -> None:
    """Runs ``subjectdp caps``: the table for a partition's federation. Raises DataError for a folder that is none."""
    from subjectdp.data.partition import load_partition

    partition = load_partition(Path(options.partition))
    facts = partition.federation_facts()
    if facts.cap_enforced:
        allowed = (
            "a partition without partition.max_items_per_subject: what a cap has dropped cannot be counted"
        )
        raise expected("--partition", options.partition, allowed)
    rows = cap_table(partition.counts(), options.caps, _settings(options), facts.silos_per_subject)
    print(json.dumps([asdict(row) for row in rows], indent=2) if options.json else _text(rows))


def _settings(options: argparse.Namespace) -> PlanSettings:
    return PlanSettings(
        mode=AccountingMode.SOUND,
        horizontal=Horizontal.SOUND,
        sampling=SamplingMethod.POISSON,
        epsilon=options.epsilon,
        delta=options.delta,
        clip_norm=1.0,
        rounds=options.rounds,
        local_steps=options.steps_per_round,
        batch_size=options.batch_size,
    )


def _text(rows: Sequence[CapRow]) -> str:
    best = min(rows, key=lambda row: row.noise)
    lines = ["cap   items kept   noise multiplier   noise on the average gradient / C"]
    lines += [
        f"{row.cap:3d}   {100 * row.kept:8.1f} %   {row.noise_multiplier:16.4g}   {row.noise:.4g}"
        + ("   the least" if row is best else "")
        for row in rows
    ]
    return "\n".join(lines)
