"""From a data configuration to a prepared folder, for each data set and source; and what inspecting shows."""

import gzip
import hashlib
import json
import logging
import re
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.made_content import images
from source_files import etext, leaf_femnist, nist_folder, write_document
from subjectdp.config.run import RunConfig
from subjectdp.config.sections import DataConfig
from subjectdp.data import cifar10
from subjectdp.data.catalogue import DATASETS, DatasetSpec
from subjectdp.data.partition import make_partition
from subjectdp.data.prepare import LOCK, fetch_sources, generate, inspect_source, prepare_dataset, read_source
from subjectdp.data.store import load_prepared
from subjectdp.errors import DataError

GENERATED = sorted(name for name, facts in DATASETS.items() if facts.generator)


def options(dataset: str = "femnist", source: str = "upstream", **more: Any) -> DataConfig:
    """A section of the configuration; ``embedded``: few subjects, 30 people a silo where the source names silos."""
    size = {"subjects": max(3, DATASETS[dataset].silos), "items_per_subject": 1000 if dataset == "shakespeare" else 30}
    return DataConfig.model_validate({"dataset": dataset, "source": source, "embedded": size, **more})


def _run(tmp_path: Path, data: DataConfig) -> dict[str, Any]:
    source, prepared = tmp_path / "data" / "key" / "source", tmp_path / "data" / "key" / "prepared"
    fetch_sources(data, source)
    meta = prepare_dataset(data, source, prepared)
    assert load_prepared(prepared, verify=True).meta == meta
    return meta


def _local_etext(tmp_path: Path) -> str:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "100.txt.gz").write_bytes(gzip.compress(etext().encode()))
    return str(tmp_path / "local")


def test_femnist_upstream_from_a_local_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nist_folder(tmp_path / "local", writers=3, images=5)
    with caplog.at_level(logging.INFO, "subjectdp"):
        meta = _run(tmp_path, options(path=str(tmp_path / "local"), expected={"users": 3, "items": 15}))
    assert meta["counts"]["items"] == 15 and not meta["synthetic"] and meta["test_fraction"] == 0.2
    assert [i["file"] for i in meta["inputs"]] == ["by_class.zip", "by_write.zip"]
    assert set(json.loads((tmp_path / "data" / LOCK).read_text())) == {"by_class.zip", "by_write.zip"}
    assert any("3 users, 15 items" in message and "prepared in" in message for message in caplog.messages)


def test_femnist_upstream_from_unpacked_folders(tmp_path: Path) -> None:
    zipped = nist_folder(tmp_path / "zipped", writers=3, images=5)
    for name in ("by_class", "by_write"):
        zipfile.ZipFile(zipped / f"{name}.zip").extractall(tmp_path / "local")
    meta = _run(tmp_path, options(path=str(tmp_path / "local")))
    assert [i["file"] for i in meta["inputs"]] == ["by_class/", "by_write/"]
    assert meta["sha256"] == _run(tmp_path / "other", options(path=str(zipped)))["sha256"]
    doubled = _run(tmp_path / "doubled", options(path=str(zipped), duplicate_first_image_bug=True))
    assert doubled["counts"]["items"] == 17


def test_shakespeare_upstream_from_a_local_copy(tmp_path: Path) -> None:
    meta = _run(tmp_path, options("shakespeare", path=_local_etext(tmp_path), expected={"groups": 2, "users": 4}))
    assert meta["counts"]["vocabulary"] == meta["classes"] == 80 and meta["window"] == 80
    assert meta["inputs"][0]["file"] == "100.txt" and meta["test_fraction"] == 0.1


def test_leaf_json(tmp_path: Path) -> None:
    path = write_document(tmp_path / "all_data_0.json", leaf_femnist({"a": 4, "b": 6}))
    meta = _run(tmp_path, options(source="leaf_json", path=str(path)))
    assert meta["counts"]["users"] == 2 and meta["source"] == "leaf_json"


@pytest.mark.slow
@pytest.mark.parametrize("dataset", GENERATED)
def test_what_is_generated_becomes_a_federation(tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each generator and reader: counted as inspected, called synthetic, every item in one part or dropped."""
    data, facts = options(dataset, "embedded"), DATASETS[dataset]
    meta = _run(tmp_path, data)
    monkeypatch.setattr(tempfile, "tempdir", tempfile.mkdtemp(dir=tmp_path))
    seen = json.loads(json.dumps(inspect_source(data)))
    assert not list(tmp_path.glob("*.json")), "nothing is written beside the scratch folder"
    assert meta["synthetic"] is seen["synthetic"] is True and meta["counts"].items() <= seen.items()
    assert meta["own_subjects"] == facts.own_subjects and (seen["users"] == 3 or facts.own_subjects)
    prepared = tmp_path / "data" / "key" / "prepared"
    assert facts.shape == load_prepared(prepared).shape and len(meta["silo_names"]) == facts.silos
    settings = {"silos": facts.silos or 3, "distribution": "inherent" if facts.silos else "equal"}
    runs = [RunConfig(data=data, partition=settings, seed=seed) for seed in (0, 1)]
    made, other = (make_partition(prepared, tmp_path / f"partition{run.seed}", run) for run in runs)
    assert made.train_items.tolist() != other.train_items.tolist()
    everything = np.concatenate([made.train_items, made.validation_items, made.test_items])
    assert len(set(everything.tolist())) == len(everything) and np.diff(made.train_offsets).min() > 0
    if facts.own_subjects:
        assert sorted(everything) == list(range(meta["counts"]["items"]))
        assert made.facts["own_subjects"] and made.facts["partition"]["max_items_per_subject"] == 1
    if not facts.silos:
        assert np.ptp(np.diff(made.train_offsets)) <= 1, "dealt in equal shares"


GOLDEN = {
    "femnist": (8, 60, "e8f655be049d0a88"),
    "shakespeare": (24, 600, "35d952e3f5b49d49"),
    "fashion_mnist": (10, 20, "96ac937101349b95"),
    "cifar10": (10, 20, "c072446e304cfcf9"),
    "acs_income": (51, 40, "8dbf3aa66ede8474"),
}


@pytest.mark.slow
@pytest.mark.parametrize("dataset", GENERATED)
def test_what_is_generated_is_what_the_published_results_were_made_with(tmp_path: Path, dataset: str) -> None:
    """Items, labels, people and silos, to the bit, on any processor; of cifar10 its images, without the network."""
    subjects, items, digest = GOLDEN[dataset]
    generate(dataset, tmp_path, subjects, items, 3)
    parts: tuple[Any, ...]
    if dataset == "cifar10":
        parts = cifar10.read_archive(tmp_path / cifar10.ARCHIVE)
    else:
        found = read_source(options(dataset, "embedded"), tmp_path)
        parts = found.features, found.labels, found.items, found.silos, np.array(found.subject_ids)
    content = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
    assert hashlib.sha256(content).hexdigest().startswith(digest)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", GENERATED)
def test_the_same_arguments_generate_the_same_bytes(tmp_path: Path, dataset: str) -> None:
    subjects, items = max(3, DATASETS[dataset].silos), 30
    one, same, other = (
        [file.read_bytes() for file in generate(dataset, tmp_path / name, subjects, items, seed)]
        for name, seed in (("one", 5), ("same", 5), ("other", 6))
    )
    assert one == same
    assert all(first != second for first, second in zip(one, other, strict=True))


def test_another_count_than_expected_stops_the_run(tmp_path: Path) -> None:
    data = options("shakespeare", path=_local_etext(tmp_path), expected={"users": 1130, "groups": 36})
    with pytest.raises(DataError, match="users: expected 1130, found 4; groups: expected 36, found 2"):
        _run(tmp_path, data)
    assert not (tmp_path / "data" / "key" / "prepared").exists()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"source": "leaf_json"}, "data.path"),
        ({"source": "leaf_json", "path": "/nowhere/at/all"}, "an existing file or folder"),
        ({"source": "table", "dataset": "table", "path": "/"}, "data.label"),
    ],
)
def test_bad_options_are_refused(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        inspect_source(options(**data))


def test_a_source_that_changed_after_the_fetch_is_refused(tmp_path: Path) -> None:
    data = options("shakespeare", path=_local_etext(tmp_path))
    source = tmp_path / "data" / "key" / "source"
    fetch_sources(data, source)
    (source / "100.txt").write_text(etext(3))
    with pytest.raises(DataError, match="not the file that was fetched"):
        prepare_dataset(data, source, tmp_path / "prepared")
    for record in ("", "{}", '{"dataset": "femnist", "source": "upstream", "inputs": []}'):
        (source / "source.json").write_text(record)
        with pytest.raises(DataError, match="missing or damaged|holds femnist"):
            prepare_dataset(data, source, tmp_path / "prepared")


CONTENT = images([3, 4])
FLAT = replace(CONTENT, dataset="digits", features=CONTENT.features.reshape(7, 784))
SILOS = replace(CONTENT, dataset="digits", silo_names=("north",), silos=np.zeros(7, np.int16))
NOTED = replace(CONTENT, dataset="digits", notes={"items": np.int64(7)})
OWN = {
    "def load_upstream(folder): return CONTENT": "own_reader gives to be as in the catalogue, {'dataset': 'digits'}",
    "def load_upstream(folder): return FLAT": "{'shape': (1, 28, 28)}, got {'shape': (784,)}",
    "def load_upstream(folder): return SILOS": "{'silos': 0}, got {'silos': 1}",
    "def load_upstream(folder): return NOTED": "notes of own_reader to be what JSON holds, got {'items': np.int64(7)}",
    "def load_upstream(folder): return None": "Expected what own_reader gives to be a Content, got None",
    "def load_upstream(folder): return {}['items']": "own_reader.py, line 2: KeyError: 'items'",
    "def load_upstream(folder: return CONTENT": "own_reader.py, line 2: SyntaxError",
    "def load_upstrem(folder): return CONTENT": "own_reader.py: AttributeError: module 'own_reader' has no attribute",
}


@pytest.mark.parametrize(("line", "said"), OWN.items())
def test_a_mistake_in_an_own_reader_is_told_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    (tmp_path / "own_reader.py").write_text(f"from data.test_prepare import CONTENT, FLAT, NOTED, SILOS\n{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_reader", raising=False)
    monkeypatch.setitem(DATASETS, "digits", DatasetSpec("Digits", "own_reader", "image", (1, 28, 28), 62))
    data = DataConfig.model_construct(dataset="digits", source="upstream", duplicate_first_image_bug=False)
    with pytest.raises(DataError, match=re.escape(said)):
        read_source(data, tmp_path)
