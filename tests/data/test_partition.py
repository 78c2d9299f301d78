"""The partition: how subjects are spread and capped, what each silo holds, its files, and what is refused."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from data.made_content import images
from subjectdp.config.run import RunConfig
from subjectdp.config.sections import PartitionConfig
from subjectdp.data.content import Splits, split_items
from subjectdp.data.partition import (
    ARRAYS,
    Partition,
    keep_within_cap,
    load_partition,
    make_partition,
    partition_subjects,
    spread_items,
)
from subjectdp.data.store import load_prepared, write_prepared
from subjectdp.errors import ConfigError, DataError

ALARM = 1e-6
SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=12)
Silos = NDArray[np.int16]


def names(count: int) -> list[str]:
    return [f"f{index:04d}_14" for index in range(count)]


def spread(count: int, items: int, alpha: float, silos: int = 16, limit: int | None = None, seed: int = 0) -> Silos:
    """The silo of each item, (subjects, items)."""
    return spread_items(seed, names(count), np.full(count, items), silos, alpha, limit).reshape(count, items)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("limit", [None, 3])
def test_items_of_a_subject_follow_the_power_law_over_its_own_ranks(alpha: float, limit: int | None) -> None:
    """The rank probabilities ((r+1)/m)^alpha - (r/m)^alpha, read off one large subject."""
    ranks = 5 if limit is None else limit
    silos = spread(1, 40_000, alpha, 5, limit)[0]
    counts = np.bincount(silos, minlength=5)
    law = np.diff((np.arange(ranks + 1) / ranks) ** alpha)
    if alpha == 1:
        assert stats.chisquare(counts[counts > 0]).pvalue > ALARM
    observed, law = np.sort(counts)[5 - ranks :], np.sort(law)  # its own order is not known: compare by size
    assert np.count_nonzero(counts) == ranks
    assert stats.chisquare(observed, law * 40_000).pvalue > ALARM


def test_each_subject_has_an_order_of_its_own() -> None:
    """With alpha 16 most items of a subject are at its last silo: that silo must be uniform over subjects."""
    silos = spread(3000, 50, 16.0)
    favourite = [Counter(row.tolist()).most_common(1)[0][0] for row in silos]
    assert stats.chisquare(np.bincount(favourite, minlength=16)).pvalue > ALARM
    pairs = Counter(tuple(item for item, _ in Counter(row.tolist()).most_common(2)) for row in silos)
    assert len(pairs) > 200  # of 240 ordered pairs


def test_a_very_large_or_small_alpha_stays_inside() -> None:
    for alpha in (1e-320, 1e-9, 1e9, 1e300):
        silos = spread(20, 500, alpha)
        assert silos.min() >= 0 and silos.max() <= 15
        assert all(len(set(row)) == 1 for row in silos.tolist())  # the first or the last rank takes all


def test_a_spread_depends_on_seed_and_subject_alone() -> None:
    first = spread(50, 100, 2.0, seed=0)
    for seed in (1, 2, 2**40):
        assert (first == spread(50, 100, 2.0, seed=seed)).mean() < 0.2
    assert np.array_equal(spread_items(0, ["f0007_14"], np.array([100]), 16, 2.0), first[7])
    # A sweep over alpha is paired: same seed, same order, same uniform draw of each item.
    low, high = spread(1, 5000, 4.0)[0], spread(1, 5000, 8.0)[0]
    assert Counter(low).most_common(1)[0][0] == Counter(high).most_common(1)[0][0]


@pytest.mark.parametrize("limit", [1, 2, 5, 16])
def test_silos_per_subject_bounds_the_silos_of_each_subject(limit: int) -> None:
    silos = spread(300, 60, 1.0, limit=limit)
    held = [len(set(row)) for row in silos.tolist()]
    assert max(held) == limit
    assert np.bincount(silos.ravel(), minlength=16).min() > 0


@given(SIZES, st.integers(1, 9), st.integers(1, 12), st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=60, deadline=None)
def test_cap_keeps_as_much_as_it_may(items: list[int], silos: int, cap: int, alpha: float) -> None:
    counts = np.array(items)
    chosen = spread_items(1, names(len(items)), counts, silos, alpha)
    keep = keep_within_cap(1, names(len(items)), counts, chosen, cap)
    owner = np.repeat(np.arange(len(items)), counts)
    before = Counter(zip(owner.tolist(), chosen.tolist(), strict=True))
    after = Counter(zip(owner[keep].tolist(), chosen[keep].tolist(), strict=True))
    assert after == {group: min(size, cap) for group, size in before.items()}


def test_a_smaller_cap_keeps_a_subset() -> None:
    items = np.full(40, 200)
    silos = spread_items(0, names(40), items, 16, 4.0)
    kept = [keep_within_cap(0, names(40), items, silos, cap) for cap in (1, 4, 8, 1000)]
    for smaller, larger in zip(kept, kept[1:], strict=False):
        assert np.all(larger[smaller])
    assert kept[-1].all()


def test_the_cap_drops_at_random() -> None:
    """Over many subjects the kept items are uniform over a subject's positions (not the first ones)."""
    items = np.full(4000, 20)
    silos = np.zeros(80_000, dtype=np.int16)
    keep = keep_within_cap(0, names(4000), items, silos, 5).reshape(4000, 20)
    assert np.all(keep.sum(axis=1) == 5)
    z = (keep.sum(axis=0) - 1000) / np.sqrt(4000 * 0.25 * 0.75)
    assert stats.chi2.sf((z**2).sum() * 19 / 20, 19) > ALARM
    other = keep_within_cap(1, names(4000), items, silos, 5).reshape(4000, 20)
    assert not np.array_equal(keep, other)


# --- the partition ------------------------------------------------------------------------------------------


SUBJECTS = 30
CAPPED = {"silos": 4, "distribution": "power", "alpha": 3.0, "max_items_per_subject": 5, "silos_per_subject": 3}


def run_of(data: dict[str, Any] | None = None, partition: dict[str, Any] | None = None, **more: Any) -> RunConfig:
    return RunConfig.model_validate({"data": data or {}, "partition": partition or {"silos": 4}, **more})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 writers of 1 to 59 images: the first has one image only and drops out at the split."""
    folder = tmp_path_factory.mktemp("prepared")
    write_prepared(folder, images(list(range(1, 2 * SUBJECTS, 2))), "leaf_json", [], 0.2)
    return folder


def full_silos(partition: Partition) -> list[int]:
    return np.repeat(np.arange(partition.silos), np.diff(partition.train_offsets)).tolist()


def test_every_train_item_is_at_exactly_one_silo_with_its_subject(prepared: Path, tmp_path: Path) -> None:
    data = load_prepared(prepared)
    splits = split_items(data, 0, 0.2, 0.2)
    partition = make_partition(prepared, tmp_path, run_of())
    assert sorted(partition.train_items.tolist()) == sorted(splits.train_items.tolist())
    assert np.array_equal(partition.validation_items, splits.validation_items)
    assert np.array_equal(partition.test_items, splits.test_items)
    ids = pd.read_parquet(tmp_path / "subjects.parquet")["subject_id"].tolist()
    owner = np.repeat(data.subject_ids, data.items)
    for silo in range(partition.silos):
        items, subjects = partition.silo(silo)
        assert len(items) == len(subjects) > 0
        assert owner[items].tolist() == [ids[subject] for subject in subjects]
        keys = list(zip(subjects.tolist(), items.tolist(), strict=True))
        assert keys == sorted(keys)
    for index in (-1, 4):
        with pytest.raises(ConfigError, match=f"silo to be 0 to 3, got {index}"):
            partition.silo(index)


def test_the_same_for_all_algorithms_of_a_seed_and_another_for_another_seed(prepared: Path, tmp_path: Path) -> None:
    first = make_partition(prepared, tmp_path / "a", run_of(algorithm="fed_avg"))
    again = make_partition(prepared, tmp_path / "b", run_of(algorithm="higrad_avg_dp"))
    other = make_partition(prepared, tmp_path / "c", run_of(seed=1))
    for name in ARRAYS:
        assert np.array_equal(getattr(first, name), getattr(again, name))
    for file in ("partition.json", "train_items.npy"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert not np.array_equal(first.test_items, other.test_items)  # the split
    before = dict(zip(first.train_items.tolist(), full_silos(first), strict=True))
    after = dict(zip(other.train_items.tolist(), full_silos(other), strict=True))
    shared = before.keys() & after.keys()
    moved = sum(before[item] != after[item] for item in shared)
    assert moved > 0.5 * len(shared)  # the spread
    assert (first.facts["seed"], other.facts["seed"]) == (0, 1)


def test_facts_and_tables_against_a_plain_count(prepared: Path, tmp_path: Path) -> None:
    partition = make_partition(prepared, tmp_path, run_of(partition=CAPPED))
    groups = Counter(zip(full_silos(partition), partition.train_subjects.tolist(), strict=True))
    facts = partition.facts
    for silo in range(4):
        sizes = [size for (where, _), size in groups.items() if where == silo]
        assert facts["silo_items"][silo] == sum(sizes)
        assert facts["silo_subjects"][silo] == len(sizes)
        assert facts["silo_largest_subject"][silo] == max(sizes)
    held = Counter(subject for _, subject in groups)
    assert facts["most_silos_of_a_subject"] == max(held.values()) <= 3
    assert max(groups.values()) == 5
    data = load_prepared(prepared)
    splits = split_items(data, 0, 0.2, 0.2)
    dropped = len(splits.train_items) - len(partition.train_items)
    assert facts["counts"]["train_items_dropped_by_cap"] == dropped > 0
    assert {(s, j): n for s, j, n in zip(*partition.groups(), strict=True)} == groups
    assert pd.read_parquet(tmp_path / "subjects.parquet")["subject_id"].tolist() == data.subject_ids[1:]


def test_facts_name_the_data_and_the_split(prepared: Path, tmp_path: Path) -> None:
    make_partition(prepared, tmp_path, run_of({"subjects": 20, "test_fraction": 0.5}))
    meta = json.loads((prepared / "meta.json").read_text())
    stated = {"dataset": "femnist", "synthetic": False, "subjects": 20, "sha256": meta["sha256"]}
    stated |= {"test_fraction": 0.5, "validation_fraction": 0.2}
    assert json.loads((tmp_path / "partition.json").read_text())["data"] == stated


def test_federation_facts_carry_the_enforced_bounds(prepared: Path, tmp_path: Path) -> None:
    capped = make_partition(prepared, tmp_path / "capped", run_of(partition=CAPPED)).federation_facts()
    assert (capped.cap_enforced, capped.max_items_per_subject, capped.silos_per_subject) == (True, 5, 3)
    assert len(capped.items) == len(capped.subjects) == len(capped.largest_subject) == 4
    assert max(capped.largest_subject) <= 5
    free = make_partition(prepared, tmp_path / "free", run_of()).federation_facts()
    assert (free.cap_enforced, free.max_items_per_subject, free.silos_per_subject) == (False, None, 4)


def test_silos_of_a_subject_are_bounded_by_the_settings_not_by_what_is_seen() -> None:
    """Two items are at two silos at most; a neighbour's subject may be at all of them."""
    items = np.arange(60, dtype=np.int32)
    none = np.zeros(0, np.int32)
    splits = Splits(items, np.repeat(np.arange(SUBJECTS, dtype=np.int32), 2), none, none)
    ids = [f"s{subject}" for subject in range(SUBJECTS)]
    partition = partition_subjects(splits, ids, PartitionConfig(silos=4), seed=0)
    assert partition.facts["most_silos_of_a_subject"] <= 2
    assert partition.federation_facts().silos_per_subject == 4
    limited = partition_subjects(splits, ids, PartitionConfig(silos=4, silos_per_subject=3), seed=0)
    assert limited.federation_facts().silos_per_subject == 3


def test_loading_gives_back_what_was_made(prepared: Path, tmp_path: Path) -> None:
    made = make_partition(prepared, tmp_path, run_of(partition={**CAPPED, "max_items_per_subject": 1}))
    loaded = load_partition(tmp_path)
    for name in ARRAYS:
        assert np.array_equal(getattr(made, name), getattr(loaded, name))
        assert getattr(made, name).dtype == getattr(loaded, name).dtype
    assert made.facts == loaded.facts
    assert made.federation_facts() == loaded.federation_facts()
    assert (loaded.silos, loaded.subjects) == (4, SUBJECTS - 1), "a subject that the cap leaves is counted by its row"


@pytest.mark.parametrize(
    ("subjects", "silos", "told"),
    [
        (3, 16, r"partition\.silos to be small enough for 2 subjects.*got 16"),
        (SUBJECTS + 1, 4, rf"data\.subjects.*{SUBJECTS}.*got {SUBJECTS + 1}"),
    ],
)
def test_what_cannot_be_dealt_is_refused(prepared: Path, tmp_path: Path, subjects: int, silos: int, told: str) -> None:
    """Before anything is written."""
    with pytest.raises((ConfigError, DataError), match=told):
        make_partition(prepared, tmp_path / "partition", run_of({"subjects": subjects}, partition={"silos": silos}))
    assert not (tmp_path / "partition").exists()
