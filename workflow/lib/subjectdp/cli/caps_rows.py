"""The rows of ``subjectdp caps``, from a partition."""

from __future__ import annotations

import argparse
from pathlib import Path

from subjectdp.accounting.group_size_caps import CapRow, cap_table
from subjectdp.data.partition import load_partition
from subjectdp.errors import expected
from subjectdp.plan.plan import AccountingMode, Horizontal, PlanSettings, SamplingMethod


def cap_rows(options: argparse.Namespace) -> list[CapRow]:
    """A row for each cap; DataError for a folder that is no partition."""
    partition = load_partition(Path(options.partition))
    facts = partition.federation_facts()
    if facts.cap_enforced:
        allowed = (
            "a partition without partition.max_items_per_subject: the items that its cap dropped are unknown"
        )
        raise expected("--partition", options.partition, allowed)
    return cap_table(partition.counts(), options.caps, _settings(options), facts.silos_per_subject)


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
