"""Tables as people and programs write them: each is read as it was meant, or refused by name with the remedy."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from subjectdp.config.run import load_run
from subjectdp.data.content import check_content, count_content
from subjectdp.data.sizes import table_sizes
from subjectdp.data.splits import split_items
from subjectdp.data.table import TableOptions, read_frame, read_table
from subjectdp.errors import ConfigError, DataError

PLAIN = "who,site,x,y\nann,n,1.5,0\nbob,s,2,1\nann,s,-3,1\n"
WRITTEN: dict[str, tuple[str, bytes]] = {
    "commas": ("t.csv", PLAIN.encode()),
    "mark of byte order": ("t.csv", b"\xef\xbb\xbf" + PLAIN.encode()),
    "blank lines at the end": ("t.csv", (PLAIN + "\n\n").encode()),
    "semicolons and decimal commas": ("t.csv", PLAIN.replace(",", ";").replace("1.5", "1,5").encode()),
    "tabs": ("t.tsv", PLAIN.replace(",", "\t").encode()),
    "Windows": ("t.csv", PLAIN.replace("\n", "\r\n").encode()),
    "zipped": ("t.csv.gz", gzip.compress(PLAIN.encode())),
    "an index of pandas": ("t.csv", pd.read_csv(io.StringIO(PLAIN)).to_csv().encode()),
    "row names of R": (
        "t.csv",
        b'"","who","site","x","y"\n"1","ann","n",1.5,0\n"2","bob","s",2,1\n"3","ann","s",-3,1\n',
    ),
}


def _read(path: Path, **options: Any) -> Any:
    content = read_table(path, "y", "who", "site", TableOptions(**options))
    check_content(content)
    return content


@pytest.mark.parametrize("name", WRITTEN)
def test_the_same_table_however_it_is_written(tmp_path: Path, name: str) -> None:
    file, raw = WRITTEN[name]
    (tmp_path / file).write_bytes(raw)
    content = _read(tmp_path / file)
    assert content.features.tolist() == [[1.5], [-3.0], [2.0]]
    assert (content.subject_ids, content.labels.tolist(), content.silo_names) == (["ann", "bob"], [0, 1, 1], ("n", "s"))
    assert table_sizes(str(tmp_path / file), "who") == (2, 1)


def test_thousands_that_may_be_decimals_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("y;x;z\n0;1,5;1.200\n1;2;3.400\n")
    with pytest.raises(DataError, match=r"column 'z' holds thousands or decimals \(1.200\)"):
        read_frame(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("y;x;z\n0;1.200,5;1\n1;2;3\n")
    assert read_frame(tmp_path / "t.csv")[0]["x"].tolist() == ["1200.5", "2"]


def test_parquet_keeps_an_index_with_a_name_and_loses_one_without(tmp_path: Path) -> None:
    frame = pd.read_csv(io.StringIO(PLAIN)).convert_dtypes()
    for index in ("who", None):
        (frame if index is None else frame.set_index(index)).to_parquet(tmp_path / "t.parquet")
        assert _read(tmp_path / "t.parquet").features.tolist() == [[1.5], [-3.0], [2.0]]


def test_a_nameless_column_that_is_no_numbering_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",y,x\n5,0,1\n7,1,2\n")
    with pytest.raises(DataError, match="column 1 has no name"):
        read_frame(tmp_path / "t.csv")


def test_a_file_for_each_silo(tmp_path: Path) -> None:
    rows = pd.read_csv(io.StringIO(PLAIN))
    for site, part in rows.groupby("site"):
        part.drop(columns="site").to_csv(tmp_path / f"{site}.csv", index=False)
    content = read_table(tmp_path, "y", "who", "file")
    assert content.silo_names == ("n", "s") and sorted(content.features[:, 0]) == [-3.0, 1.5, 2.0]
    (tmp_path / "w.csv").write_text("who,x,z\nann,1,1\n")
    with pytest.raises(DataError, match=r"w.csv has other columns than n.csv: expected who, x, y, file"):
        read_table(tmp_path, "y", "who", "file")
    (tmp_path / "notes.doc").write_text("")
    with pytest.raises(DataError, match=r"notes.doc: expected files that end in"):
        read_table(tmp_path, "y", "who", "file")


def test_partitions_of_parquet(tmp_path: Path) -> None:
    pd.read_csv(io.StringIO(PLAIN)).to_parquet(tmp_path / "t", partition_cols=["site"])
    assert sorted(_read(tmp_path / "t").features[:, 0]) == [-3.0, 1.5, 2.0]


WORDS = "who,stage,age,y\na,II,30,0\nb,I,NA,0\na,,50,1\nb,II,70,1\n"


def _words(path: Path, **options: Any) -> Any:
    path.write_text(WORDS)
    return read_table(path, "y", "who", None, TableOptions(**options))


def test_words_become_columns_and_missing_values_follow_the_stated_rule(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with pytest.raises(DataError, match=r"row 3, stage: expected a value, got a missing one. data.missing: drop"):
        _words(path)
    dropped = _words(path, missing="drop")
    assert dropped.notes["features"] == ["stage=II", "age"]
    assert dropped.notes["rows left out for a missing value"] == 2
    marked = _words(path, missing="indicator", ranges={"age": (0, 100)})
    assert marked.notes["features"] == ["stage=I", "stage=II", "age", "age missing"]
    assert np.allclose(marked.features, [[0, 1, 0.3, 0], [0, 0, 0.5, 0], [1, 0, 0, 1], [0, 1, 0.7, 0]])
    assert _words(path, missing="drop", drop=["stage"]).notes["features"] == ["age"]
    assert _words(path, missing="indicator", columns=["age"]).notes["features"] == ["age", "age missing"]


def test_numbers_are_cut_off_at_their_public_range(tmp_path: Path) -> None:
    found = _words(tmp_path / "t.csv", missing="drop", ranges={"age": (40, 60)})
    assert found.features[:, 1].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"drop": ["agee"]}, r"data.drop.*'agee'.*age"),
        ({"columns": ["y"]}, "the column 'y' has a part already"),
        ({"drop": ["age", "stage"]}, "a column of features"),
        ({"ranges": {"weight": (0, 1)}}, "data.ranges.*'weight'"),
        ({"ranges": {"y": (0, 1)}}, "data.ranges names 'y', which is no feature"),
        ({"ranges": {"age": (0, 100)}, "drop": ["age"]}, "data.ranges names 'age', which is no feature"),
        ({"columns": ["who"]}, "the column 'who' has a part already"),
    ],
)
def test_options_that_fit_no_column_are_refused(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        _words(tmp_path / "t.csv", **options)


def test_a_person_is_a_number_at_a_site(tmp_path: Path) -> None:
    rows = [(site, who, who % 2, site + who) for site in (1, 2) for who in (1, 2, 3)]
    pd.DataFrame(rows, columns=["site", "id", "y", "x"]).to_csv(tmp_path / "t.csv", index=False)
    alone = read_table(tmp_path / "t.csv", "y", "id", "site")
    assert (len(alone.subject_ids), alone.notes["subjects at several silos"]) == (3, 3)
    both = read_table(tmp_path / "t.csv", "y", ["site", "id"], "site")
    assert (len(both.subject_ids), both.notes["subjects at several silos"]) == (6, 0)
    assert both.notes["features"] == ["x"]


def test_true_and_false_are_two_classes_however_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n1,True\n2,true\n3,FALSE\n4,false\n")
    content = read_table(tmp_path / "t.csv", "y", None, None)
    assert (content.notes["class_names"], content.labels.tolist()) == (["false", "true"], [1, 1, 0, 0])


def test_a_label_in_numbers_needs_a_public_range(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"1,{number}.5\n" for number in range(40)))
    with pytest.raises(DataError, match="classification or regression"):
        read_table(tmp_path / "t.csv", "y", None, None)
    with pytest.raises(DataError, match=r"data.ranges: \{y: \[0, 100\]\}"):
        read_table(tmp_path / "t.csv", "y", None, None, TableOptions(task="regression"))
    options = TableOptions(task="regression", ranges={"y": (0, 40)})
    content = read_table(tmp_path / "t.csv", "y", None, None, options)
    check_content(content)
    assert content.classes == 0 and np.allclose(content.labels, (np.arange(40) + 0.5) / 40)


def test_people_with_one_row_are_in_one_part_each(tmp_path: Path) -> None:
    rows = [(f"p{who}", who % 2, who) for who in range(50)] + [("twice", 0, 1), ("twice", 1, 2)]
    pd.DataFrame(rows, columns=["who", "y", "x"]).to_csv(tmp_path / "t.csv", index=False)
    content = read_table(tmp_path / "t.csv", "y", "who", None)
    splits = split_items(content, 0, 0.2, 0.2)
    parts = [splits.train_items, splits.validation_items, splits.test_items]
    assert sorted(np.concatenate(parts)) == list(range(52))
    owners = [splits.train_subjects, splits.validation_subjects, splits.test_subjects]
    for items, whose in zip(parts, owners, strict=True):
        assert [
            content.first_items[one] <= item < content.first_items[one] + content.items[one]
            for one, item in zip(whose, items, strict=True)
        ].count(False) == 0
    assert len(splits.test_items) == 11 and count_content(content, 0.2)["users_after_split"] == 51
    assert (split_items(content, 1, 0.2, 0.2).test_items != splits.test_items).any()


def test_a_column_of_silos_is_the_partition_unless_another_is_asked_for() -> None:
    table = {"source": "table", "path": "t.csv", "label": "y", "subject": "who", "silo": "site"}
    assert load_run({"data": table}).partition.distribution == "inherent"
    assert load_run({"data": {**table, "silo": None}}).partition.distribution == "uniform"
    with pytest.raises(ConfigError, match=r"data.silo to be null when partition.distribution is uniform \(not read\)"):
        load_run({"data": table, "partition": {"distribution": "uniform"}})
    with pytest.raises(ConfigError, match=r"data.drop to be empty when data.source is embedded"):
        load_run({"data": {"drop": ["x"]}})
    with pytest.raises(ConfigError, match=r"data.ranges.age to be two numbers, the smaller one first"):
        load_run({"data": {**table, "ranges": {"age": [9, 1]}}})
