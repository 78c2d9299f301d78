"""The federation that a run will train on: its partition if it has been made, else a predicted one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from subjectdp.config import paths
from subjectdp.data.catalogue import DATASETS
from subjectdp.data.embedded.plays import role_sizes
from subjectdp.data.partition import Partition, load_partition, partition_subjects
from subjectdp.data.splits import TEXT, Integers, Splits, part_sizes, sizes_after_split, split_items
from subjectdp.data.spread import INHERENT
from subjectdp.data.statistics import FEMNIST_VARIATION, SHAKESPEARE_VARIATION, shakespeare_counts
from subjectdp.data.store import load_prepared
from subjectdp.forecast.cost_model import expected_subjects, sizes_at_hand, test_fraction

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.config.sections import DataConfig

PARTITION, PREPARED, COUNTS = "partition", "prepared data", "expected counts"
"""The sources of a federation, the most reliable first."""

_MOST_KEPT = 8
_kept: dict[tuple[str | bytes, ...], Partition] = {}


def federation_of(run: RunConfig, results: str = paths.RESULTS) -> tuple[Partition, str]:
    """The run's federation and where it comes from: :data:`PARTITION`, :data:`PREPARED` or :data:`COUNTS`.

    From prepared data it is the partition that the workflow will make. From expected counts it has the subjects and
    items of the configuration (embedded data) or of LEAF's statistics, spread over the silos as the partition will be;
    the subjects' sizes are quantiles of a distribution, not the real ones.

    Raises:
        DataError: corrupt files.
        ConfigError: an impossible partition, for instance with an empty silo.
    """
    if Path(paths.partition_file(run.partition_id, "partition.json", results)).is_file():
        return load_partition(paths.partition_dir(run.partition_id, results)), PARTITION
    if Path(paths.prepared_file(run.data_key, "meta.json", results)).is_file():
        return _from_prepared(run, paths.prepared_dir(run.data_key, results)), PREPARED
    return _predicted(run), COUNTS


def _predicted(run: RunConfig) -> Partition:
    sizes = _expected_sizes(run.data)
    key: tuple[str | bytes, ...] = (run.partition_id, *(part.tobytes() for part in sizes))
    if key not in _kept:
        if len(_kept) >= _MOST_KEPT:
            _kept.pop(next(iter(_kept)))
        ids = [f"subject-{index}" for index in range(len(sizes[0]))]
        _kept[key] = partition_subjects(_numbered(run, sizes), ids, run.partition, run.seed)
    return _kept[key]


def _from_prepared(run: RunConfig, folder: str) -> Partition:
    prepared = load_prepared(folder)
    if run.data.subjects is not None:
        prepared = prepared.first_subjects(run.data.subjects)
    splits = split_items(prepared, run.seed, test_fraction(run.data), run.data.validation_fraction)
    return partition_subjects(splits, list(prepared.subject_ids), run.partition, run.seed)


def _numbered(run: RunConfig, sizes: tuple[Integers, Integers, Integers]) -> Splits:
    columns = []
    for part in sizes:
        owners = np.repeat(np.arange(len(part), dtype=np.int32), part)
        columns += [np.arange(len(owners), dtype=np.int32), owners]
    silos = np.empty(0, np.int16)
    if run.partition.distribution == INHERENT:  # of equal sizes, as nothing better is known
        silos = (np.arange(len(columns[0])) % run.partition.silos).astype(np.int16)
    return Splits(*columns, train_silos=silos, own_subjects=run.data.own_subjects)


def _expected_sizes(data: DataConfig) -> tuple[Integers, Integers, Integers]:
    items = _expected_items(data)
    kind = DATASETS[data.dataset].kind
    if data.own_subjects:
        return _single_sizes(data, len(items))
    train, test, kept = sizes_after_split(items, test_fraction(data), kind)
    fit, validation = part_sizes(train[kept], data.validation_fraction)
    return fit, validation, test[kept]


def _single_sizes(data: DataConfig, items: int) -> tuple[Integers, Integers, Integers]:
    train, _ = part_sizes(np.array([items]), test_fraction(data))
    fit, _ = part_sizes(train, data.validation_fraction)
    number = np.arange(items)
    part = np.where(number < fit[0], 0, np.where(number < train[0], 1, 2))
    fits, validates, tests = ((part == index).astype(np.int64) for index in range(3))
    return fits, validates, tests


def _expected_items(data: DataConfig) -> Integers:
    embedded = data.embedded
    if data.own_subjects:
        return np.ones(expected_subjects(data), dtype=np.int64)
    if at_hand := sizes_at_hand(data):
        return np.array(at_hand[: data.subjects], dtype=np.int64)
    if data.source != "embedded":
        subjects, mean = expected_subjects(data), DATASETS[data.dataset].items_per_subject
        variation = FEMNIST_VARIATION if DATASETS[data.dataset].kind != TEXT else SHAKESPEARE_VARIATION
        return shakespeare_counts(subjects, mean, variation)
    if data.dataset == "shakespeare":
        sizes = role_sizes(embedded.subjects, embedded.items_per_subject, embedded.seed)
    else:
        share = (np.arange(embedded.subjects) + 0.5) / embedded.subjects
        sizes = np.rint(embedded.items_per_subject * (0.7 + 0.6 * share)).tolist()
    kept = len(sizes) if data.subjects is None else data.subjects
    return np.array(sizes[:kept], dtype=np.int64)
