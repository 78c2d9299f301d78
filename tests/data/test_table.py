"""A table of one's own: what is read, and which damage is refused where."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from subjectdp.cli.main import main
from subjectdp.config.run import RunConfig
from subjectdp.data.content import check_content
from subjectdp.data.partition import make_partition
from subjectdp.data.prepare import fetch_sources, prepare_dataset
from subjectdp.data.table import TableOptions, read_table
from subjectdp.errors import DataError

ROWS = """age,person,outcome,clinic,weight
31,Ann,sick,North,62.5
44,Bob,well,South,80
31.5,Ann,well,South,63
70,Cleo,sick,North,55
44,Bob,sick,North,81
"""


def _csv(folder: Path, text: str = ROWS) -> Path:
    path = folder / "patients.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("parquet", [False, True])
def test_rows_are_read_by_subject_with_label_and_silo(tmp_path: Path, parquet: bool) -> None:
    path = _csv(tmp_path)
    if parquet:
        pd.read_csv(path).to_parquet(path := tmp_path / "patients.parquet")
    content = read_table(path, "outcome", "person", "clinic")
    check_content(content)
    assert content.features.tolist() == [[31, 62.5], [31.5, 63], [44, 80], [44, 81], [70, 55]]
    assert [content.subject_ids, content.items.tolist()] == [["Ann", "Bob", "Cleo"], [2, 2, 1]]
    assert content.notes["class_names"] == ["sick", "well"]
    assert content.labels.tolist() == [0, 1, 1, 0, 0]
    assert [content.silo_names[silo] for silo in content.silos] == ["North", "South", "South", "North", "North"]


def test_without_a_subject_each_row_is_its_own(tmp_path: Path) -> None:
    text = "label,x\n" + "\n".join(f"{label},{label / 10}" for label in (10, 9, 10, 2))
    content = read_table(_csv(tmp_path, text), "label", None, None)
    check_content(content)
    assert content.own_subjects and content.items.tolist() == [1, 1, 1, 1]
    assert content.notes["class_names"] == ["2", "9", "10"]  # by value, not by letters
    assert content.labels.tolist() == [2, 1, 2, 0]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("44,Bob,well", "forty,Bob,well", r"row 2, age: expected a number .* got 'forty'"),
        ("80\n", "\n", r"row 2, weight: expected a value, got a missing one. .*indicator"),
        ("80\n", "nan\n", r"row 2, weight: expected a value"),
        ("80\n", "1e39\n", r"row 2, weight: expected a number"),
        ("South,80", "South,80,7", "Expected 5 fields in line 3, saw 6"),
        ("South,80", "South", "row 2, weight: expected a value"),
        ("44,Bob,well", "44,,well", "row 2, person: expected a value, .*drop leaves such rows out.$"),
        ("South,80", "NA,80", "row 2, clinic: expected a value"),
        ("44,Bob,well", "44,../Bob,well", "row 2, person: expected a subject's name"),
        ("44,Bob,well", '44,"Bob,well', "not a table in UTF-8 CSV|expected 5 columns"),
        ("age,person", "weight,person", "column 'weight' is there twice"),
        ("age,person", "age,persona", "data.subject.*persona"),
    ],
)
def test_damage_is_named_with_its_row(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in ROWS
    with pytest.raises(DataError, match=problem):
        read_table(_csv(tmp_path, ROWS.replace(old, new, 1)), "outcome", "person", "clinic")


def test_tables_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no row"):
        read_table(_csv(tmp_path, "x,y\n"), "y", None, None)
    with pytest.raises(DataError, match="2 to 1000 classes"):
        read_table(_csv(tmp_path, "x,y\n1,2\n2,2\n"), "y", None, None)
    with pytest.raises(DataError, match="end in .parquet, or in .csv"):
        read_table(tmp_path / "table.xls", "y", None, None)
    (tmp_path / "table.parquet").write_bytes(b"PAR1 and nothing")
    with pytest.raises(DataError, match="not a parquet file"):
        read_table(tmp_path / "table.parquet", "y", None, None)
    with pytest.raises(DataError, match="different columns"):
        read_table(_csv(tmp_path), "outcome", "outcome", None)


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ([pd.Timestamp(0)] * 2, "'x' holds dates"),
        ([None, 1.0], "row 1, x: expected a value"),
        (["True", "1"], "row 1, x: expected a number"),
        ([float("inf"), 1.0], "row 1, x: expected a number"),
        (["0x1", "1"], "row 1, x: expected a number"),
    ],
)
def test_cells_of_parquet_that_are_no_numbers_are_refused(tmp_path: Path, cells: list[object], problem: str) -> None:
    pd.DataFrame({"x": cells, "y": [1, 2]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=problem):
        read_table(tmp_path / "t.parquet", "y", None, None)


def test_more_than_256_classes_keep_their_labels(tmp_path: Path) -> None:
    text = "x,y\n" + "\n".join(f"0,{number}" for number in range(300))
    with pytest.raises(DataError, match="classification or regression: the label 'y' has 300 different numbers"):
        read_table(_csv(tmp_path, text), "y", None, None)
    content = read_table(_csv(tmp_path, text), "y", None, None, TableOptions(task="classification"))
    assert content.labels.tolist() == list(range(300))


@pytest.mark.parametrize("subject", [None, "person"])
def test_a_table_becomes_a_federation_of_its_own_silos(tmp_path: Path, subject: str | None) -> None:
    rng = np.random.default_rng(0)
    people = rng.integers(0, 12, 300)
    frame = pd.DataFrame({"person": people, "clinic": people % 3, "y": rng.integers(0, 2, 300), "x": rng.random(300)})
    path = tmp_path / "made.csv"
    frame.to_csv(path, index=False)
    source = {"source": "table", "path": str(path), "label": "y", "subject": subject, "silo": "clinic"}
    run = RunConfig.model_validate(
        {"data": source, "partition": {"silos": 3, "distribution": "inherent"}, "algorithm": "local_item_dp"}
    )
    fetch_sources(run.data, tmp_path / "source")
    meta = prepare_dataset(run.data, tmp_path / "source", tmp_path / "prepared")
    assert meta["silo_names"] == ["0", "1", "2"]
    made = make_partition(tmp_path / "prepared", tmp_path / "partition", run)
    for silo in range(3):
        items, owners = made.silo(silo)
        assert len(items) > 0
        features = np.load(tmp_path / "prepared" / "features.npy")[items, -1]
        mine = frame["x"][frame["clinic"] == silo].to_numpy(dtype=np.float32)
        assert np.isin(features, mine).all()
    held_out = np.concatenate([made.train_items, made.validation_items, made.test_items])
    assert sorted(held_out) == list(range(300))
    facts = made.federation_facts()
    assert facts.largest_subject == (1, 1, 1) if subject is None else max(facts.largest_subject) > 1
    assert (facts.max_items_per_subject, facts.silos_per_subject) == ((1, 1) if subject is None else (None, 3))


def test_inspecting_a_wide_table_prints_few_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wide.csv"
    names = [f"level{number}" for number in range(784)]
    rows = [["outcome", *names], *([word, *["0.5"] * 784] for word in ("well", "ill") * 5)]
    path.write_text("\n".join(",".join(row) for row in rows))
    assert main(["inspect", "table", "--path", str(path), "--label", "outcome"]) == 0
    printed = capsys.readouterr().out
    assert "784: level0 ... level783" in printed and "['ill', 'well']" in printed
    assert max(map(len, printed.splitlines())) < 100
