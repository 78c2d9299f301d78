"""ACS Income: whom the task keeps, how people are encoded, generated files, and which damage is refused."""

import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from subjectdp.config.run import RunConfig
from subjectdp.data.acs_income import COLUMNS, REGIONS, WIDTH, encode, load_upstream, read_region
from subjectdp.data.content import check_content
from subjectdp.data.embedded import generate
from subjectdp.data.partition import make_partition
from subjectdp.data.prepare import fetch_sources, prepare_dataset
from subjectdp.data.sources import load_sources
from subjectdp.errors import ConfigError, DataError

KEPT = {"AGEP": 40, "SCHL": 21, "WKHP": 40, "COW": 1, "MAR": 5, "SEX": 2, "RAC1P": 9, "RELP": 0, "OCCP": 1020}
KEPT |= {"POBP": 303, "PINCP": 60000, "PWGTP": 1}


def _zip(path: Path, people: pd.DataFrame) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("psam_p01.csv", people.to_csv(index=False))
    return path


@pytest.mark.parametrize(
    ("column", "value", "kept"),
    [("AGEP", 16, False), ("AGEP", 17, True), ("PINCP", 100, False), ("PINCP", 101, True), ("WKHP", 0, False)]
    + [("WKHP", "", False), ("PWGTP", 0, False), ("COW", "", True)],
)
def test_the_task_keeps_whom_folktables_keeps(tmp_path: Path, column: str, value: object, kept: bool) -> None:
    people = pd.DataFrame([KEPT, KEPT | {column: value}])
    assert len(read_region(_zip(tmp_path / "csv_pal.zip", people))) == 1 + kept


def test_a_person_as_numbers() -> None:
    row = encode(pd.DataFrame([KEPT]))[0]
    assert len(row) == WIDTH == 73
    assert row[:3] == pytest.approx([40 / 99, 21 / 24, 40 / 99])
    blocks = np.split(row[3:], np.cumsum([9, 5, 2, 9, 18, 20]))
    assert [int(block.argmax()) for block in blocks] == [0, 4, 1, 8, 0, 2, 4]
    assert all(block.sum() == 1 for block in blocks)
    unknown = encode(pd.DataFrame([KEPT | {"COW": np.nan, "OCCP": np.nan, "POBP": np.nan}]))[0]
    assert unknown.sum() == pytest.approx(row.sum() - 3)


def test_files_that_are_not_the_census_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_region(tmp_path / "csv_pal.zip")
    with pytest.raises(DataError, match="columns"):
        read_region(_zip(tmp_path / "a.zip", pd.DataFrame([KEPT]).drop(columns="SEX")))
    with pytest.raises(DataError, match="of numbers"):
        read_region(_zip(tmp_path / "b.zip", pd.DataFrame([KEPT | {"AGEP": "old"}])))
    with pytest.raises(DataError, match="nobody"):
        read_region(_zip(tmp_path / "c.zip", pd.DataFrame([KEPT | {"AGEP": 3}])))


def test_all_regions_are_listed_with_a_mirror() -> None:
    assert [file.name for file in load_sources("acs_income")[1]] == [f"csv_p{region}.zip" for region in REGIONS]
    assert len(set(REGIONS)) == 51


@pytest.mark.slow
def test_generated_regions_become_silos_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 1530"):
        generate("acs_income", tmp_path, 10, 10, 0)
    data = {"dataset": "acs_income", "embedded": {"subjects": 51, "items_per_subject": 80}}
    run = RunConfig.model_validate({"data": data, "partition": {"silos": 51, "distribution": "inherent"}})
    fetch_sources(run.data, tmp_path / "source")
    content = load_upstream(tmp_path / "source")
    check_content(content)
    assert 0.15 < content.labels.mean() < 0.85 and set(COLUMNS) >= {"PINCP"}
    prepare_dataset(run.data, tmp_path / "source", tmp_path / "prepared")
    made = make_partition(tmp_path / "prepared", tmp_path / "partition", run)
    sizes = np.diff(made.train_offsets)
    assert sizes.max() > 5 * sizes.min()
    for silo in range(51):
        items, _ = made.silo(silo)
        assert (content.silos[items] == silo).all()
    total = np.bincount(content.silos)
    test = np.bincount(content.silos[made.test_items], minlength=51)
    assert np.abs(test / total - 0.2).max() < 0.05  # each region is split by itself
