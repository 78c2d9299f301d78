"""Made-up partition folders, spread by the project's own law."""

from pathlib import Path

import numpy as np

from subjectdp.data import partition as partition_files
from subjectdp.data.partition import partition_subjects, subject_table
from subjectdp.data.splits import Splits
from subjectdp.data.spread import POWER, UNIFORM, SpreadSettings


def write_partition(
    folder: Path, dataset: str = "femnist", alpha: float = 1.0, seed: int = 0, subjects: int = 60
) -> Path:
    """Writes a partition of ``subjects`` subjects with uneven numbers of items over 16 silos."""
    generator = np.random.default_rng([seed, subjects])
    items = generator.poisson(90, subjects) if dataset == "femnist" else generator.geometric(0.01, subjects) + 50
    owners = np.repeat(np.arange(subjects, dtype=np.int32), items)
    none = np.zeros(0, dtype=np.int32)
    splits = Splits(np.arange(len(owners), dtype=np.int32), owners, none, none, none, none)
    ids = [f"subject-{index}" for index in range(subjects)]
    settings = SpreadSettings(16, UNIFORM if alpha == 1 else POWER, alpha)
    partition = partition_subjects(splits, ids, settings, seed)
    partition.facts["data"] = {"dataset": dataset, "synthetic": True}
    partition_files.write_partition(folder, partition, subject_table(partition, splits, ids))
    return folder
