"""A plan is told the bounds that a partition enforces, not what happens to be in it."""

from __future__ import annotations

import numpy as np

from subjectdp.config.sections import PartitionConfig
from subjectdp.data.partition import partition_subjects
from subjectdp.data.splits import Splits

SUBJECTS, ITEMS, SILOS = 30, 2, 4


def test_silos_of_a_subject_are_bounded_by_the_settings_not_by_what_is_seen() -> None:
    """Two items are at two silos at most; a neighbour's subject may be at all of them."""
    items = np.arange(SUBJECTS * ITEMS, dtype=np.int32)
    none = np.zeros(0, np.int32)
    splits = Splits(items, np.repeat(np.arange(SUBJECTS, dtype=np.int32), ITEMS), none, none, none, none)
    ids = [f"s{subject}" for subject in range(SUBJECTS)]
    partition = partition_subjects(splits, ids, PartitionConfig(silos=SILOS), seed=0)
    assert partition.facts["most_silos_of_a_subject"] <= ITEMS
    assert partition.federation_facts().silos_per_subject == SILOS
    limited = partition_subjects(splits, ids, PartitionConfig(silos=SILOS, silos_per_subject=3), seed=0)
    assert limited.federation_facts().silos_per_subject == 3
