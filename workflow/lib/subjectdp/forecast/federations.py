"""The federation that a run will train on: its partition if it has been made, else a predicted one."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from subjectdp.config import paths
from subjectdp.config.run import RunConfig
from subjectdp.data.catalogue import DATASETS
from subjectdp.data.partition import INHERENT, Partition, load_partition, partition_subjects
from subjectdp.data.splits import VECTOR, Splits, part_sizes, sizes_after_split, split_items
from subjectdp.data.store import load_prepared
from subjectdp.forecast.cost_model import expected_sizes, sizes_at_hand

PARTITION, PREPARED, COUNTS = "partition", "prepared data", "expected counts"
"""The sources of a federation, the most reliable first."""


def federation_of(run: RunConfig, results: str = paths.RESULTS) -> tuple[Partition, str]:
    """The run's federation and where it comes from: :data:`PARTITION`, :data:`PREPARED` or :data:`COUNTS`.

    From prepared data it is the partition that the workflow will make. From expected counts it has the configuration's
    number of subjects, each with the mean number of items, spread over the silos as the partition will be.

    Raises:
        DataError: corrupt files.
        ConfigError: an impossible partition, for instance with an empty silo.
    """
    if Path(paths.partition_file(run.partition_id, "partition.json", results)).is_file():
        return load_partition(paths.partition_dir(run.partition_id, results)), PARTITION
    if not Path(paths.prepared_file(run.data_key, "meta.json", results)).is_file():
        return _predicted(run.model_dump_json(include={"seed", "data", "partition"})), COUNTS
    prepared = load_prepared(paths.prepared_dir(run.data_key, results))
    if run.data.subjects is not None:
        prepared = prepared.first_subjects(run.data.subjects)
    splits = split_items(prepared, run.seed, float(run.data.test_fraction or 0.0), run.data.validation_fraction)
    return partition_subjects(splits, prepared.subject_ids, run.partition, run.seed), PREPARED


@lru_cache(maxsize=8)  # most runs of a scenario share one
def _predicted(sections: str) -> Partition:
    run = RunConfig.model_validate_json(sections)
    splits = _expected_splits(run)
    ids = [f"subject-{index}" for index in range(1 + int(splits.train_subjects.max(initial=0)))]
    return partition_subjects(splits, ids, run.partition, run.seed)


def _expected_splits(run: RunConfig) -> Splits:
    # numbered items, by the rules of the real split
    data, test = run.data, float(run.data.test_fraction or 0.0)
    subjects, mean = expected_sizes(data)
    if data.own_subjects:  # 1 item each, in the one part that it is of
        train, held_out = part_sizes(np.array([subjects]), test)
        fit, validated = part_sizes(train, data.validation_fraction)
        part = np.repeat(np.arange(3), [fit[0], validated[0], held_out[0]])
        sizes = [(part == index).astype(np.int64) for index in range(3)]
    else:
        at_hand = sizes_at_hand(data)
        items = np.full(subjects, round(mean)) if at_hand is None else np.array(at_hand[: data.subjects])
        train, tested, kept = sizes_after_split(items, test, DATASETS[data.dataset].kind)
        sizes = [*part_sizes(train[kept], data.validation_fraction), tested[kept]]
        if DATASETS[data.dataset].kind == VECTOR:  # a person with one row is in one part
            singles = (np.arange(int((items == 1).sum())) * (1 - test)).astype(np.int64)
            alone = np.diff(singles, prepend=-1)
            sizes = [np.append(part, more) for part, more in zip(sizes, (alone, 0 * alone, 1 - alone), strict=True)]
    columns = []
    for part in sizes:
        owners = np.repeat(np.arange(len(part), dtype=np.int32), part)
        columns += [np.arange(len(owners), dtype=np.int32), owners]
    silos = np.empty(0, np.int16)
    if run.partition.distribution == INHERENT:  # of equal sizes, as nothing better is known
        silos = (np.arange(len(columns[0])) % run.partition.silos).astype(np.int16)
    return Splits(*columns, train_silos=silos, own_subjects=data.own_subjects)
