"""Spreads the subjects' train items over the silos of a federation, caps them, and stores the result.

Validation and test items are pooled, as the papers evaluate one global model. Uniform: power with alpha = 1. Power
(Marathe and Kanani, "Subject Granular Differential Privacy in Federated Learning", first version, section 4.2): each
item draws x in [0, 1] with density alpha x^(alpha-1) and goes to the silo of rank floor(S x), in an order of the silos
drawn for each subject (one for all does not give the paper's group sizes). Equal: all items in a random order, dealt in
shares that differ by at most one, whoever's they are. Inherent: each item lies where the source says.

Every draw is keyed by the run's seed and the subject's id. A subject's silos therefore do not depend on the algorithm,
the other subjects or their number, and a cap of 4 keeps a subset of what a cap of 8 keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectdp.data.catalogue import held_out
from subjectdp.data.content import Addresses, Integers, Silos, Splits, split_items
from subjectdp.data.store import PreparedData, load_prepared, read_arrays, read_index, write_folder
from subjectdp.errors import expected
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.plan.plan import FederationFacts

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.config.sections import PartitionConfig

FORMAT_VERSION = 2
INDEX = "partition.json"
EQUAL, INHERENT = "equal", "inherent"
ARRAYS = ("train_items", "train_subjects", "train_offsets", "validation_items", "test_items")


@dataclass(frozen=True, eq=False)
class Partition:
    """A federation: which items (addresses in the prepared data) each silo trains on, and whose they are.

    ``train_items`` and ``train_subjects`` are int32 (n,), ordered by silo, subject and address; silo i owns
    ``train_offsets[i]:train_offsets[i + 1]``. A subject is a row of the partition's ``subjects.parquet``.
    ``validation_items`` and ``test_items`` are int32 addresses of all subjects, in the order of the subjects.
    """

    train_items: Addresses
    train_subjects: Addresses
    train_offsets: Integers
    validation_items: Addresses
    test_items: Addresses
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def silos(self) -> int:
        return len(self.train_offsets) - 1

    @property
    def subjects(self) -> int:
        """Number of subjects with train items before any cap, over all silos."""
        return int(self.facts["counts"]["subjects"])

    @property
    def data_hashes(self) -> dict[str, str]:
        """SHA-256 of each file of the prepared data that the partition was made from; empty for one made by hand."""
        hashes: dict[str, str] = self.facts.get("data", {}).get("sha256", {})
        return hashes

    def silo(self, index: int) -> tuple[Addresses, Addresses]:
        """Item addresses and subject indices of one silo: two views of equal length, ordered by subject."""
        if not 0 <= index < self.silos:
            raise expected("silo", index, f"0 to {self.silos - 1}")
        part = slice(int(self.train_offsets[index]), int(self.train_offsets[index + 1]))
        return self.train_items[part], self.train_subjects[part]

    def groups(self) -> tuple[Integers, Integers, Integers]:
        """Silo, subject and number of items of each pair that has items, by silo and subject; int64 each."""
        silo = np.repeat(np.arange(self.silos, dtype=np.int64), np.diff(self.train_offsets))
        pairs, sizes = np.unique(silo * self.subjects + self.train_subjects, return_counts=True)
        return *np.divmod(pairs, self.subjects), sizes

    def federation_facts(self) -> FederationFacts:
        """The facts that a privacy plan may use.

        ``silos_per_subject`` is the bound that the partition enforces (``partition.silos_per_subject``, else
        all silos), not the observed number: a neighbouring federation may hold a subject at more silos.
        """
        facts = self.facts
        cap = facts["partition"]["max_items_per_subject"]
        return FederationFacts(
            items=tuple(facts["silo_items"]),
            subjects=tuple(facts["silo_subjects"]),
            largest_subject=tuple(facts["silo_largest_subject"]),
            cap_enforced=cap is not None,
            max_items_per_subject=cap,
            silos_per_subject=facts["silos_per_subject_limit"],
            total_subjects=self.subjects,
        )


def partition_subjects(splits: Splits, subject_ids: Sequence[str], settings: PartitionConfig, seed: int) -> Partition:
    """Spreads the train items of ``splits`` over the silos.

    ``subject_ids`` are those of the prepared data that ``splits`` index. The partition's subjects are those
    with train items, renumbered from 0 in the same order. ConfigError for a setting out of range, or an empty silo.
    """
    kept, items = np.unique(splits.train_subjects, return_counts=True)
    ids = [str(subject_ids[subject]) for subject in kept]
    silos = _silos_of_items(splits, ids, items, settings, seed)
    cap = settings.max_items_per_subject
    addresses = splits.train_items
    subjects = np.repeat(np.arange(len(kept), dtype=np.int32), items)
    if cap is not None:
        keep = keep_within_cap(seed, ids, items, silos, cap)
        addresses, subjects, silos = addresses[keep], subjects[keep], silos[keep]
    order = np.argsort(silos, kind="stable")  # keeps subject and address ascending within a silo
    silo_items = np.bincount(silos, minlength=settings.silos)
    _refuse_empty_silos(silo_items, settings, len(kept), int(items.sum()))
    partition = Partition(
        train_items=np.ascontiguousarray(addresses[order], dtype=np.int32),
        train_subjects=np.ascontiguousarray(subjects[order], dtype=np.int32),
        train_offsets=np.concatenate([[0], np.cumsum(silo_items)]).astype(np.int64),
        validation_items=splits.validation_items,
        test_items=splits.test_items,
        facts={"counts": {"subjects": len(kept)}},
    )
    partition.facts.update(_facts(partition, settings, seed, int(items.sum())))
    if splits.own_subjects:  # by definition, whatever the data are
        partition.facts["partition"]["max_items_per_subject"] = 1
        partition.facts["silos_per_subject_limit"] = 1
        partition.facts["own_subjects"] = True
    return partition


def spread_items(
    seed: int,
    subject_ids: Sequence[str],
    items: Integers,
    silos: int,
    alpha: float = 1.0,
    silos_per_subject: int | None = None,
) -> Silos:
    """The silo of every train item by the power law: int16 (sum(items),), ordered by subject.

    ``silos_per_subject`` = m places a subject's items at the first m silos of its own order only (rank floor(m x)).
    The numbers are trusted: the configuration checks them.
    """
    allowed = silos if silos_per_subject is None else silos_per_subject
    found = np.empty(int(items.sum()), dtype=np.int16)
    end = 0
    for subject, count in zip(subject_ids, items.tolist(), strict=True):
        start, end = end, end + count
        generator = numpy_generator(seed, Purpose.PARTITION, "spread", subject)
        order = generator.permutation(silos)[:allowed].astype(np.int16)
        x = generator.random(count) ** (1.0 / alpha)  # inverse of the distribution function x^alpha
        rank = np.minimum((allowed * x).astype(np.int64), allowed - 1)  # a large alpha may round x to 1
        found[start:end] = order[rank]
    return found


def keep_within_cap(
    seed: int, subject_ids: Sequence[str], items: Integers, silos: Silos, cap: int
) -> NDArray[np.bool_]:
    """Which items stay if a silo may hold at most ``cap`` of a subject: a uniform subset of each group."""
    keep = np.zeros(len(silos), dtype=np.bool_)
    end = 0
    for subject, count in zip(subject_ids, items.tolist(), strict=True):
        start, end = end, end + count
        shuffled = numpy_generator(seed, Purpose.PARTITION, "cap", subject).permutation(count)
        by_silo = shuffled[np.argsort(silos[start:end][shuffled], kind="stable")]
        sizes = np.bincount(silos[start:end])
        rank = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        keep[start + by_silo[rank < cap]] = True
    return keep


def _silos_of_items(splits: Splits, ids: list[str], items: Integers, settings: PartitionConfig, seed: int) -> Silos:
    if settings.distribution == EQUAL:
        order = numpy_generator(seed, Purpose.PARTITION, "deal").permutation(len(splits.train_items))
        dealt = np.empty(len(order), dtype=np.int16)
        dealt[order] = np.arange(len(order)) % settings.silos
        return dealt
    if settings.distribution != INHERENT:
        return spread_items(seed, ids, items, settings.silos, settings.alpha, settings.silos_per_subject)
    if len(splits.train_silos) == 0:
        raise expected("partition.distribution", INHERENT, "another where the data name no silos")
    if splits.silos != settings.silos:
        raise expected("partition.silos", settings.silos, f"{splits.silos}, the silos that the data name")
    return splits.train_silos


def _refuse_empty_silos(silo_items: Integers, settings: PartitionConfig, subjects: int, items: int) -> None:
    empty = np.flatnonzero(silo_items == 0)
    if len(empty) > 0 and settings.distribution == INHERENT:
        allowed = "with training items: merge it with another, or lower data.test_fraction and data.validation_fraction"
        raise expected(f"silo {empty[0] + 1} of {settings.silos}, by name or number", "none", allowed)
    if len(empty) > 0:
        allowed = (
            f"small enough for {subjects} subjects with {items} train items that every silo holds an item"
            f" (silo {empty[0]} and {len(empty) - 1} others hold none; partition.alpha is {settings.alpha:g})"
        )
        raise expected("partition.silos", settings.silos, allowed)


def _facts(partition: Partition, settings: PartitionConfig, seed: int, before_cap: int) -> dict[str, Any]:
    """The content of partition.json without its checksums."""
    silo, subject, sizes = partition.groups()
    limit = settings.silos if settings.silos_per_subject is None else settings.silos_per_subject
    return {
        "seed": seed,
        "partition": settings.model_dump(mode="json"),
        "counts": {
            "subjects": partition.subjects,
            "train_items": len(partition.train_items),
            "train_items_dropped_by_cap": before_cap - len(partition.train_items),
            "validation_items": len(partition.validation_items),
            "test_items": len(partition.test_items),
        },
        "silo_items": np.diff(partition.train_offsets).tolist(),
        "silo_subjects": np.bincount(silo, minlength=settings.silos).tolist(),
        "silo_largest_subject": np.maximum.reduceat(sizes, np.searchsorted(silo, range(settings.silos))).tolist(),
        "most_silos_of_a_subject": int(np.bincount(subject).max()),
        "silos_per_subject_limit": limit,
    }


def taken_and_split(prepared: PreparedData, run: RunConfig) -> tuple[PreparedData, Splits]:
    """The data of the people whom a run takes, and its split of their items."""
    if run.data.subjects is not None:
        prepared = prepared.first_subjects(run.data.subjects)
    fraction = held_out(prepared.dataset, run.data.test_fraction)
    return prepared, split_items(prepared, run.seed, fraction, run.data.validation_fraction)


def make_partition(prepared_folder: Path | str, partition_folder: Path | str, run: RunConfig) -> Partition:
    """Takes and splits the subjects, spreads their items, writes the folder; ConfigError, DataError for the data."""
    prepared, splits = taken_and_split(load_prepared(prepared_folder, verify=True), run)
    partition = partition_subjects(splits, prepared.subject_ids, run.partition, run.seed)
    subjects = np.unique(splits.train_subjects)
    partition.facts["data"] = {
        "dataset": prepared.dataset,
        "synthetic": prepared.synthetic,
        "subjects": run.data.subjects,
        "test_fraction": run.data.test_fraction,
        "validation_fraction": run.data.validation_fraction,
        "sha256": dict(prepared.meta["sha256"]),
    }
    write_partition(Path(partition_folder), partition, [prepared.subject_ids[subject] for subject in subjects])
    return partition


def write_partition(folder: Path, partition: Partition, subject_ids: Sequence[str]) -> None:
    """Writes the folder, with the ids of the partition's subjects. Adds format, hashes and sizes to the facts."""
    facts, subjects = partition.facts, pd.DataFrame({"subject_id": list(subject_ids)})
    files = {**{name: getattr(partition, name) for name in ARRAYS}, "subjects": subjects}
    facts.update(write_folder(folder / INDEX, files, {**facts, "format": FORMAT_VERSION}))


def load_partition(folder: Path | str) -> Partition:
    """Opens a partition folder (arrays memory-mapped, read-only); DataError if a file is missing or was changed."""
    facts = read_index(Path(folder) / INDEX, FORMAT_VERSION)
    return Partition(**read_arrays(Path(folder), ARRAYS, facts), facts=facts)
