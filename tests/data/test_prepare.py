"""From a data configuration to a prepared folder, for each data set and source; and what inspecting shows."""

from __future__ import annotations

import gzip
import json
import logging
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from source_files import etext, leaf_femnist, nist_folder, write_document
from subjectdp.data.catalogue import DATASETS
from subjectdp.data.embedded import GENERATORS
from subjectdp.data.inspect import EmbeddedSize, SourceOptions, format_summary, inspect_source
from subjectdp.data.prepare import LOCK, fetch_sources, prepare_dataset
from subjectdp.data.store import load_prepared
from subjectdp.errors import DataError, DownloadError

REAL = os.environ.get("SUBJECTDP_REAL_DATA")


@dataclass
class Options:
    """Stands for the configuration's data section."""

    dataset: str = "femnist"
    source: str = "upstream"
    path: str | None = None
    label: str | None = None
    subject: str | None = None
    silo: str | None = None
    test_fraction: float | None = None
    duplicate_first_image_bug: bool = False
    embedded: EmbeddedSize = field(default_factory=lambda: EmbeddedSize(3, 30, 0))
    expected: dict[str, int] = field(default_factory=dict)


def _run(tmp_path: Path, options: Options) -> dict[str, Any]:
    source, prepared = tmp_path / "data" / "key" / "source", tmp_path / "data" / "key" / "prepared"
    fetch_sources(options, source)
    meta = prepare_dataset(options, source, prepared)
    assert load_prepared(prepared, verify=True).meta == meta
    return meta


def _size(dataset: str) -> EmbeddedSize:
    """Few subjects; 30 people a silo where the source names silos."""
    return EmbeddedSize(max(3, DATASETS[dataset].silos), 30, 0)


def _local_etext(tmp_path: Path) -> str:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "100.txt.gz").write_bytes(gzip.compress(etext().encode()))
    return str(tmp_path / "local")


def test_femnist_upstream_from_a_local_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nist_folder(tmp_path / "local", writers=3, images=5)
    with caplog.at_level(logging.INFO, "subjectdp"):
        meta = _run(tmp_path, Options(path=str(tmp_path / "local"), expected={"users": 3, "items": 15}))
    assert meta["counts"]["items"] == 15 and not meta["synthetic"] and meta["test_fraction"] == 0.2
    assert [i["file"] for i in meta["inputs"]] == ["by_class.zip", "by_write.zip"]
    assert set(json.loads((tmp_path / LOCK).read_text() if (tmp_path / LOCK).exists() else "{}")) == set()
    assert set(json.loads((tmp_path / "data" / LOCK).read_text())) == {"by_class.zip", "by_write.zip"}
    assert any("3 users, 15 items" in message and "prepared in" in message for message in caplog.messages)


def test_femnist_upstream_from_unpacked_folders(tmp_path: Path) -> None:
    zipped = nist_folder(tmp_path / "zipped", writers=3, images=5)
    for name in ("by_class", "by_write"):
        zipfile.ZipFile(zipped / f"{name}.zip").extractall(tmp_path / "local")
    meta = _run(tmp_path, Options(path=str(tmp_path / "local")))
    assert [i["file"] for i in meta["inputs"]] == ["by_class/", "by_write/"]
    other = _run(tmp_path / "other", Options(path=str(zipped)))
    assert meta["sha256"] == other["sha256"]


def test_the_duplicate_bug_is_passed_on(tmp_path: Path) -> None:
    nist_folder(tmp_path / "local", writers=3, images=5)
    meta = _run(tmp_path, Options(path=str(tmp_path / "local"), duplicate_first_image_bug=True))
    assert meta["counts"]["items"] == 17


def test_shakespeare_upstream_from_a_local_copy(tmp_path: Path) -> None:
    meta = _run(tmp_path, Options("shakespeare", path=_local_etext(tmp_path), expected={"groups": 2, "users": 4}))
    assert meta["counts"]["vocabulary"] == meta["classes"] == 80 and meta["window"] == 80
    assert meta["inputs"][0]["file"] == "100.txt" and meta["test_fraction"] == 0.1


def test_leaf_json(tmp_path: Path) -> None:
    path = write_document(tmp_path / "all_data_0.json", leaf_femnist({"a": 4, "b": 6}))
    meta = _run(tmp_path, Options(source="leaf_json", path=str(path)))
    assert meta["counts"]["users"] == 2 and meta["source"] == "leaf_json"


@pytest.mark.slow
@pytest.mark.parametrize("dataset", sorted(GENERATORS))
def test_embedded_data_are_prepared_and_called_synthetic(tmp_path: Path, dataset: str) -> None:
    meta = _run(tmp_path, Options(dataset, "embedded", embedded=_size(dataset)))
    assert meta["synthetic"] is True and (meta["counts"]["users"] == 3 or DATASETS[dataset].own_subjects)


@pytest.mark.slow
def test_preparing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    options = Options(source="embedded")
    first, second = _run(tmp_path / "a", options), _run(tmp_path / "b", options)
    assert first == second


def test_another_count_than_expected_stops_the_run(tmp_path: Path) -> None:
    options = Options("shakespeare", path=_local_etext(tmp_path), expected={"users": 1130, "groups": 36})
    with pytest.raises(DataError, match="users: expected 1130, found 4; groups: expected 36, found 2"):
        _run(tmp_path, options)
    assert not (tmp_path / "data" / "key" / "prepared").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (Options("femnits"), "Did you mean 'femnist'"),
        (Options(source="upsteam"), "Did you mean 'upstream'"),
        (Options(source="leaf_json"), "data.path"),
        (Options(source="leaf_json", path="/nowhere/at/all"), "an existing file or folder"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: Options, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        fetch_sources(options, tmp_path)


def test_the_duplicate_bug_is_refused_for_leafs_output(tmp_path: Path) -> None:
    path = write_document(tmp_path / "all_data_0.json", leaf_femnist({"a": 4}))
    with pytest.raises(DataError, match="duplicates already"):
        _run(tmp_path, Options(source="leaf_json", path=str(path), duplicate_first_image_bug=True))


def test_a_local_folder_without_the_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"does not hold by_class\.zip"):
        fetch_sources(Options(path=str(tmp_path)), tmp_path / "source")


def test_a_source_that_changed_after_the_fetch_is_refused(tmp_path: Path) -> None:
    options = Options("shakespeare", path=_local_etext(tmp_path))
    source = tmp_path / "data" / "key" / "source"
    fetch_sources(options, source)
    (source / "100.txt").write_text(etext(3))
    with pytest.raises(DataError, match="not the file that was fetched"):
        prepare_dataset(options, source, tmp_path / "prepared")
    for record in ("", "{}", '{"dataset": "femnist", "source": "upstream", "inputs": []}'):
        (source / "source.json").write_text(record)
        with pytest.raises(DataError, match="missing or damaged|holds femnist"):
            prepare_dataset(options, source, tmp_path / "prepared")


def test_the_configurations_data_sets_are_the_registrys() -> None:
    from subjectdp.config.sections import DataConfig

    for name in DATASETS:
        assert DataConfig(dataset=name).dataset == name  # type: ignore[arg-type]


def test_the_configuration_itself_is_accepted(tmp_path: Path) -> None:
    from subjectdp.config.sections import DataConfig

    values = {"dataset": "shakespeare", "source": "upstream", "path": _local_etext(tmp_path)}
    data = DataConfig.model_validate({**values, "expected": {"users": 4, "vocabulary": 80}})
    fetch_sources(data, tmp_path / "source")
    assert prepare_dataset(data, tmp_path / "source", tmp_path / "prepared")["counts"]["users"] == 4
    wrong = DataConfig.model_validate({**values, "expected": {"users": 5}})
    with pytest.raises(DataError, match="users: expected 5, found 4"):
        prepare_dataset(wrong, tmp_path / "source", tmp_path / "prepared")


# --- inspecting ---------------------------------------------------------------------------------------------


def test_inspecting_counts_what_preparing_counts(tmp_path: Path) -> None:
    nist_folder(tmp_path / "local", writers=3, images=5)
    summary = inspect_source(SourceOptions("femnist", "upstream", str(tmp_path / "local")))
    meta = _run(tmp_path, Options(path=str(tmp_path / "local")))
    assert meta["counts"].items() <= summary.items()
    json.dumps(summary)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", sorted(GENERATORS))
def test_generated_data_are_inspected_without_a_path(dataset: str) -> None:
    summary = inspect_source(SourceOptions(dataset, "embedded", embedded=_size(dataset)))
    assert summary["synthetic"] and "synthetic" in format_summary(summary)
    assert summary["users"] == 3 or summary["own_subjects"]


def test_the_summary_names_every_number(tmp_path: Path) -> None:
    text = format_summary(inspect_source(SourceOptions("shakespeare", "upstream", str(_local_etext(tmp_path)), 0.2)))
    for part in ("users", "plays", "mean", "std (population)", "median", "users left at the 0.8 split"):
        assert part in text
    assert "synthetic" not in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("femnits", "upstream", "."), "femnist"),
        (("femnist", "usptream", "."), "upstream"),
        (("femnist", "upstream", None), "path"),
        (("femnist", "upstream", ".", 1.0), "test_fraction"),
        (("femnist", "leaf_json", "/nowhere/at/all"), "existing"),
        (("shakespeare", "upstream", "/nowhere/at/all"), "does not exist"),
    ],
)
def test_bad_arguments_are_refused(arguments: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        inspect_source(SourceOptions(*arguments))


@pytest.mark.skipif(REAL is None, reason="the real e-text is not part of the project")
def test_the_real_text_is_prepared_in_time(tmp_path: Path) -> None:
    expected = {"users": 1130, "groups": 36, "items": 4_226_206, "vocabulary": 80, "users_after_split": 660}
    path = str(Path(str(REAL)) / "shakespeare_etext100_1994.txt.gz")
    meta = _run(tmp_path, Options("shakespeare", path=path, expected=expected))
    assert (tmp_path / "data/key/source/100.txt").stat().st_size == 5_458_199
    features = np.load(tmp_path / "data/key/prepared/features.npy", mmap_mode="r")
    assert features.dtype == np.uint8 and len(features) == 4_226_206 + 80 * 1130 == meta["bytes"]["features"] - 128
