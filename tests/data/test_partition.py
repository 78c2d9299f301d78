"""The partition: what each silo holds, its files, and what is refused."""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from subjectdp.config.run import RunConfig
from subjectdp.config.sections import PartitionConfig
from subjectdp.data.content import Content
from subjectdp.data.partition import (
    ARRAYS,
    Partition,
    load_partition,
    make_partition,
    partition_subjects,
    silo_table,
    subject_table,
)
from subjectdp.data.splits import Splits, split_items
from subjectdp.data.store import load_prepared, write_prepared
from subjectdp.errors import ConfigError, DataError

SUBJECTS = 30
CAPPED = {"silos": 4, "distribution": "power", "alpha": 3.0, "max_items_per_subject": 5, "silos_per_subject": 3}


def run_of(data: dict[str, Any] | None = None, partition: dict[str, Any] | None = None, **more: Any) -> RunConfig:
    return RunConfig.model_validate({"data": data or {}, "partition": partition or {"silos": 4}, **more})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 writers of 1 to 59 images: the first has one image only and drops out at the split."""
    folder = tmp_path_factory.mktemp("prepared")
    items = np.arange(SUBJECTS, dtype=np.int64) * 2 + 1
    total = int(items.sum())
    generator = np.random.default_rng(0)
    content = Content(
        dataset="femnist",
        kind="image",
        features=generator.integers(0, 256, (total, 28, 28), dtype=np.uint8),
        labels=(np.arange(total) % 62).astype(np.uint8),
        subject_ids=[f"f{index:04d}_14" for index in range(SUBJECTS)],
        groups=[""] * SUBJECTS,
        first_items=np.cumsum(items) - items,
        items=items,
        classes=62,
    )
    write_prepared(folder, content, "leaf_json", [], 0.2)
    return folder


def reference(splits: Splits) -> dict[int, list[int]]:
    """Train addresses of each subject of the prepared data, by a plain loop."""
    owned = defaultdict(list)
    for item, subject in zip(splits.train_items.tolist(), splits.train_subjects.tolist(), strict=True):
        owned[subject].append(item)
    return owned


def test_every_train_item_is_at_exactly_one_silo_with_its_subject(prepared: Path, tmp_path: Path) -> None:
    data = load_prepared(prepared)
    splits = split_items(data, 0, 0.2, 0.2)
    partition = make_partition(prepared, tmp_path, run_of())
    assert sorted(partition.train_items.tolist()) == sorted(splits.train_items.tolist())
    ids = pd.read_parquet(tmp_path / "subjects.parquet")["subject_id"].tolist()
    owner = {item: data.subject_ids[subject] for subject, items in reference(splits).items() for item in items}
    for silo in range(partition.silos):
        items, subjects = partition.silo(silo)
        assert len(items) == len(subjects) > 0
        assert [owner[item] for item in items.tolist()] == [ids[subject] for subject in subjects.tolist()]
        keys = list(zip(subjects.tolist(), items.tolist(), strict=True))
        assert keys == sorted(keys)


def test_validation_and_test_items_are_pooled_and_disjoint(prepared: Path, tmp_path: Path) -> None:
    splits = split_items(load_prepared(prepared), 0, 0.2, 0.2)
    partition = make_partition(prepared, tmp_path, run_of())
    assert np.array_equal(partition.validation_items, splits.validation_items)
    assert np.array_equal(partition.test_items, splits.test_items)
    parts = [partition.train_items, partition.validation_items, partition.test_items]
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together) == load_prepared(prepared).items[1:].sum()


def test_the_same_for_all_algorithms_of_a_seed_and_another_for_another_seed(prepared: Path, tmp_path: Path) -> None:
    first = make_partition(prepared, tmp_path / "a", run_of(algorithm="fed_avg"))
    again = make_partition(prepared, tmp_path / "b", run_of(algorithm="higrad_avg_dp"))
    other = make_partition(prepared, tmp_path / "c", run_of(seed=1))
    for name in ARRAYS:
        assert np.array_equal(getattr(first, name), getattr(again, name))
    for file in ("partition.json", "silos.csv", "train_items.npy"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert not np.array_equal(first.test_items, other.test_items)  # the split
    before = dict(zip(first.train_items.tolist(), full_silos(first), strict=True))
    after = dict(zip(other.train_items.tolist(), full_silos(other), strict=True))
    shared = before.keys() & after.keys()
    moved = sum(before[item] != after[item] for item in shared)
    assert moved > 0.5 * len(shared)  # the spread
    assert (first.facts["seed"], other.facts["seed"]) == (0, 1)


def test_trimming_takes_the_first_subjects_before_the_split(prepared: Path, tmp_path: Path) -> None:
    full = make_partition(prepared, tmp_path / "full", run_of())
    few = make_partition(prepared, tmp_path / "few", run_of({"subjects": 10}))
    ids = pd.read_parquet(tmp_path / "few" / "subjects.parquet")["subject_id"].tolist()
    assert ids == [f"f{index:04d}_14" for index in range(1, 10)]  # the first has one image: dropped as LEAF does
    where_full = dict(zip(full.train_items.tolist(), full_silos(full), strict=True))
    where_few = dict(zip(few.train_items.tolist(), full_silos(few), strict=True))
    assert where_few.items() <= where_full.items()


def full_silos(partition: Partition) -> list[int]:
    return np.repeat(np.arange(partition.silos), np.diff(partition.train_offsets)).tolist()


def test_facts_against_a_plain_count(prepared: Path, tmp_path: Path) -> None:
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
    splits = split_items(load_prepared(prepared), 0, 0.2, 0.2)
    dropped = len(splits.train_items) - len(partition.train_items)
    assert facts["counts"]["train_items_dropped_by_cap"] == dropped > 0
    counts = partition.counts()
    assert {(s, j): n for (s, j), n in np.ndenumerate(counts) if n > 0} == groups


def test_facts_name_the_data_and_the_split(prepared: Path, tmp_path: Path) -> None:
    make_partition(prepared, tmp_path, run_of({"subjects": 20, "test_fraction": 0.5}))
    meta = json.loads((prepared / "meta.json").read_text())
    assert json.loads((tmp_path / "partition.json").read_text())["data"] == {
        "dataset": "femnist",
        "synthetic": False,
        "subjects": 20,
        "test_fraction": 0.5,
        "validation_fraction": 0.2,
        "sha256": meta["sha256"],
    }


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
    splits = Splits(items, np.repeat(np.arange(SUBJECTS, dtype=np.int32), 2), none, none, none, none)
    ids = [f"s{subject}" for subject in range(SUBJECTS)]
    partition = partition_subjects(splits, ids, PartitionConfig(silos=4), seed=0)
    assert partition.facts["most_silos_of_a_subject"] <= 2
    assert partition.federation_facts().silos_per_subject == 4
    limited = partition_subjects(splits, ids, PartitionConfig(silos=4, silos_per_subject=3), seed=0)
    assert limited.federation_facts().silos_per_subject == 3


def test_tables(prepared: Path, tmp_path: Path) -> None:
    data = load_prepared(prepared)
    partition = make_partition(prepared, tmp_path, run_of(partition=CAPPED))
    silos = pd.read_csv(tmp_path / "silos.csv")
    pd.testing.assert_frame_equal(silos, silo_table(partition), check_dtype=False)
    assert list(silos.columns) == ["silo", "items", "subjects", "mean_items_per_subject", "max_items_per_subject"]
    subjects = pd.read_parquet(tmp_path / "subjects.parquet")
    splits = split_items(data, 0, 0.2, 0.2)
    pd.testing.assert_frame_equal(subjects, subject_table(partition, splits, list(data.subject_ids)))
    parts = subjects[["train_items", "dropped_items", "validation_items", "test_items"]].sum(axis=1)
    assert parts.tolist() == data.items[1:].tolist()
    assert subjects["silos"].max() == 3 and subjects["max_items_in_a_silo"].max() == 5
    assert subjects["train_items"].sum() == silos["items"].sum() == len(partition.train_items)


def test_a_subject_that_the_cap_leaves_is_still_counted_by_its_row(prepared: Path, tmp_path: Path) -> None:
    partition = make_partition(prepared, tmp_path, run_of(partition={**CAPPED, "max_items_per_subject": 1}))
    assert partition.subjects == SUBJECTS - 1
    assert partition.counts().shape == (4, SUBJECTS - 1)


def test_loading_gives_back_what_was_made(prepared: Path, tmp_path: Path) -> None:
    made = make_partition(prepared, tmp_path, run_of(partition=CAPPED))
    loaded = load_partition(tmp_path)
    for name in ARRAYS:
        assert np.array_equal(getattr(made, name), getattr(loaded, name))
        assert getattr(made, name).dtype == getattr(loaded, name).dtype
    assert made.facts == loaded.facts
    assert made.federation_facts() == loaded.federation_facts()
    with pytest.raises(ValueError, match="read-only"):
        loaded.train_items[0] = 0


def test_one_silo_holds_everything_in_order(prepared: Path, tmp_path: Path) -> None:
    partition = make_partition(prepared, tmp_path, run_of(partition={"silos": 1}))
    splits = split_items(load_prepared(prepared), 0, 0.2, 0.2)
    assert np.array_equal(partition.silo(0)[0], splits.train_items)


def test_no_such_silo(prepared: Path, tmp_path: Path) -> None:
    partition = make_partition(prepared, tmp_path, run_of())
    for index in (-1, 4):
        with pytest.raises(ConfigError, match=f"silo to be 0 to 3, got {index}"):
            partition.silo(index)


def test_an_empty_silo_is_refused_before_anything_is_written(prepared: Path, tmp_path: Path) -> None:
    run = run_of({"subjects": 3}, partition={"silos": 16})
    with pytest.raises(ConfigError, match=r"partition\.silos to be small enough for 2 subjects.*got 16"):
        make_partition(prepared, tmp_path / "partition", run)
    assert not (tmp_path / "partition").exists()


def test_more_subjects_than_there_are(prepared: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"data\.subjects.*{SUBJECTS}.*got {SUBJECTS + 1}"):
        make_partition(prepared, tmp_path, run_of({"subjects": SUBJECTS + 1}))


def change_the_cap(path: Path) -> None:
    text = path.read_text()
    assert '"max_items_per_subject": ' in text
    path.write_text(re.sub(r'("max_items_per_subject": )(null|\d+)', r"\g<1>1", text))


def test_another_cap_in_the_facts_is_refused(prepared: Path, tmp_path: Path) -> None:
    make_partition(prepared, tmp_path, run_of())
    change_the_cap(tmp_path / "partition.json")
    with pytest.raises(DataError, match="checksum mismatch"):
        load_partition(tmp_path)
