"""Tables as people and programs write them: each is read as it was meant, or refused by name with the remedy."""

import gzip
import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from subjectdp.cli.main import main
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.sections import DataConfig
from subjectdp.data.content import Content, check_content, count_content, split_items
from subjectdp.data.names import person
from subjectdp.data.partition import make_partition
from subjectdp.data.prepare import fetch_sources, prepare_dataset
from subjectdp.data.sizes import table_sizes
from subjectdp.data.table import read_frame, read_table
from subjectdp.errors import ConfigError, DataError

ROWS = """age,person,outcome,clinic,weight
31,Ann,sick,North,62.5
44,Bob,well,South,80
31.5,Ann,well,South,63
70,Cleo,sick,North,55
44,Bob,sick,North,81
"""
ROLES = ("outcome", "person", "clinic")


def _csv(folder: Path, text: str) -> Path:
    path = folder / "t.csv"
    path.write_text(text, encoding="utf-8")
    return path


def _read(source: Any, label: str = "y", subject: Any = None, silo: str | None = None, **options: Any) -> Content:
    """The content of a file, or of a text written into a folder."""
    path = _csv(*source) if isinstance(source, tuple) else source
    content = read_table(path, DataConfig(source="table", label=label, subject=subject, silo=silo, **options))
    check_content(content)
    return content


@pytest.mark.parametrize("parquet", [False, True])
def test_rows_are_read_by_subject_with_label_and_silo(tmp_path: Path, parquet: bool) -> None:
    path = _csv(tmp_path, ROWS)
    if parquet:
        pd.read_csv(path).to_parquet(path := tmp_path / "t.parquet")
    content = _read(path, *ROLES)
    assert content.features.tolist() == [[31, 62.5], [31.5, 63], [44, 80], [44, 81], [70, 55]]
    assert [content.subject_ids, content.items.tolist()] == [["Ann", "Bob", "Cleo"], [2, 2, 1]]
    assert content.notes["class_names"] == ["sick", "well"]
    assert content.labels.tolist() == [0, 1, 1, 0, 0]
    assert [content.silo_names[silo] for silo in content.silos] == ["North", "South", "South", "North", "North"]


def test_names_may_hold_a_slash(tmp_path: Path) -> None:
    """No name becomes part of a path."""
    text = ROWS.replace("Bob", "B/57").replace("South", "../Köln/Süd").replace("well", "no\\unknown")
    content = _read((tmp_path, text), *ROLES)
    assert (content.subject_ids[1], content.silo_names) == ("B/57", ("../Köln/Süd", "North"))
    assert content.notes["class_names"] == ["no\\unknown", "sick"]


def test_without_a_subject_each_row_is_its_own(tmp_path: Path) -> None:
    content = _read((tmp_path, "y,x\n" + "\n".join(f"{label},{label / 10}" for label in (10, 9, 10, 2))))
    assert content.own_subjects and content.items.tolist() == [1, 1, 1, 1]
    assert content.notes["class_names"] == ["2", "9", "10"]  # by value, not by letters
    assert content.labels.tolist() == [2, 1, 2, 0]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("44,Bob,well", "forty,Bob,well", r"row 2, age: expected a number .* got 'forty'"),
        ("80\n", "\n", r"row 2, weight: expected a value, got an empty cell, NA, \? or their like. .*indicator"),
        ("80\n", "nan\n", r"row 2, weight: expected a value"),
        ("80\n", "1e39\n", r"row 2, weight: expected a number below 3e\+38, got '1e39'"),
        ("South,80", "South,80,7", "Expected 5 fields in line 3, saw 6"),
        ("South,80", "South", "row 2, weight: expected a value"),
        ("44,Bob,well", "44,,well", "row 2, person: expected a value, .*drop leaves such rows out.$"),
        ("South,80", "NA,80", "row 2, clinic: expected a value"),
        ("44,Bob,well", f"44,{'Bob' * 70},well", "row 2, person: expected a subject's name"),
        ("44,Bob,well", "44,ann,well", "subjects 'Ann' and 'ann' differ in capitals alone"),
        (
            "44,Bob",
            '4,"Doe, B",well,South,1\n4,"doe, B",well,South,1\n4,Bob',
            "'Doe, B' and 'doe, B' differ in capitals",
        ),
        ("44,Bob,well,South", "44,Bob,well,north", "silos '[Nn]orth' and '[Nn]orth' differ in capitals alone"),
        ("44,Bob,well", '44,"Bob,well', "not a table in UTF-8 CSV|expected 5 columns"),
        ("age,person", "weight,person", "column 'weight' is there twice"),
        ("age,person", "age,persona", "data.subject.*persona"),
    ],
)
def test_damage_is_named_with_its_row(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in ROWS
    with pytest.raises(DataError, match=problem):
        _read((tmp_path, ROWS.replace(old, new, 1)), *ROLES)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x,y\n", "no row"),
        ("x,y\n1,2\n2,2\n", "t.csv: expected 2 to 1000 classes in 'y', got 1"),
        ("x,y\n1,Yes\n2,no\n3,yes\n", "labels 'Yes' and 'yes' differ in capitals alone"),
        ("y;x;z\n0;1,5;1.200\n1;2;3.400\n", r"column 'z' holds thousands or decimals \(1.200\)"),
        ("y\tx\n0\t950\n1\t1,234\n", r"column 'x' holds thousands or decimals \(1,234\)"),
        ("y;x\n0;950\n1;1.200\n", r"'x' holds thousands or decimals \(1.200\).*without points, or with decimal commas"),
        *(
            (f"y;x;z\n0;{cell};1\n1;{cell};2\n", r"'x' holds formatted numbers or dates")
            for cell in ("$12", "12 %", "1 200", "-1.234.5", "2020-01-31", "31/1/20 09:00", "12:30")
        ),
        ('x,y\n"1,5",0\n"2,5",1\n', r"'x' holds formatted numbers or dates \(1,5\)"),
        ("x,y\n1,10%\n2,20%\n", r"'y' holds formatted numbers or dates \(10%\)"),
        (",y,x\n5,0,1\n7,1,2\n", "column 1 has no name"),
        ("x,y\n" + "".join(f"0,{number}\n" for number in range(300)), "regression: the label 'y' has 300 different"),
    ],
)
def test_tables_that_cannot_be_meant_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        _read((tmp_path, text))


MARKS = ("?", r"\N", ".", "(null)", "N.A.", "1.#QNAN", "-1.#IND", "#NULL!", "#VALUE!", "#REF!", "#DIV/0!", "#NAME?")


@pytest.mark.parametrize("mark", MARKS)
def test_marks_of_a_missing_value_name_nothing(tmp_path: Path, mark: str) -> None:
    """Of a program each: in label, subject and silo, among words and numbers."""
    for place, name in enumerate(("y", "who", "site", "word", "x")):
        cells = ["no", "ben", "n", "b", "2"]
        cells[place] = mark
        text = f"y,who,site,word,x\nyes,ann,n,a,1\n{','.join(cells)}\nno,ben,s,b,2\n"
        with pytest.raises(DataError, match=f"row 2, {name}: expected a value, .*data.missing: drop"):
            _read((tmp_path, text), "y", "who", "site")
    with pytest.raises(DataError, match="a missing value: leave such rows out"):
        person(mark)


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and nothing")
    for name, problem in (("t.xls", "end in .parquet, or in .csv"), ("t.parquet", "not a parquet file")):
        with pytest.raises(DataError, match=problem):
            _read(tmp_path / name)
    with pytest.raises(DataError, match="different columns"):
        _read((tmp_path, ROWS), "outcome", "outcome")
    pd.DataFrame({"y": [0, 1], "x": [[1, 2], [3, 4]]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t.parquet, x: expected a value as text or a number"):
        _read(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ([pd.Timestamp(0)] * 2, "'x' holds dates"),
        ([None, 1.0], "row 1, x: expected a value"),
        *((cells, "row 1, x: expected a number") for cells in (["True", "1"], ["0x1", "1"])),
        ([float("inf"), 1.0], "row 1, x: expected a number as in other rows, got inf"),
    ],
)
def test_cells_of_parquet_that_are_no_numbers_are_refused(tmp_path: Path, cells: list[object], problem: str) -> None:
    pd.DataFrame({"x": cells, "y": [1, 2]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=problem):
        _read(tmp_path / "t.parquet")


@pytest.mark.parametrize("role", ["label", "subject", "silo"])
@pytest.mark.parametrize(("cell", "problem"), [([1, 2], "text or a number, got lists"), (b"\xff", "holds bytes")])
def test_columns_of_parquet_without_names_are_refused(tmp_path: Path, role: str, cell: object, problem: str) -> None:
    columns = {"label": ["a", "b"] * 3, "subject": list("xxyyzz"), "silo": list("ststst"), "x": range(6)}
    pd.DataFrame({**columns, role: [cell] * 6}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=rf"{role}.*{problem}"):
        _read(tmp_path / "t.parquet", "label", "subject", "silo")


def test_more_than_256_classes_keep_their_labels(tmp_path: Path) -> None:
    text = "x,y\n" + "\n".join(f"0,{number}" for number in range(300))
    assert _read((tmp_path, text), task="classification").labels.tolist() == list(range(300))


@pytest.mark.parametrize("subject", [None, "person"])
def test_a_table_becomes_a_federation_of_its_own_silos(tmp_path: Path, subject: str | None) -> None:
    rng = np.random.default_rng(0)
    people = rng.integers(0, 12, 300)
    frame = pd.DataFrame({"person": people, "clinic": people % 3, "y": rng.integers(0, 2, 300), "x": rng.random(300)})
    path = tmp_path / "made.csv"
    frame.to_csv(path, index=False)
    source = {"source": "table", "path": str(path), "label": "y", "subject": subject, "silo": "clinic"}
    partition = {"silos": 3, "distribution": "inherent"}
    run = RunConfig.model_validate({"data": source, "partition": partition, "algorithm": "local_item_dp"})
    fetch_sources(run.data, tmp_path / "source")
    meta = prepare_dataset(run.data, tmp_path / "source", tmp_path / "prepared")
    assert meta["silo_names"] == ["0", "1", "2"]
    more = run.model_copy(update={"partition": run.partition.model_copy(update={"silos": 4})})
    with pytest.raises(ConfigError, match="partition.silos to be 3, the silos that the data name, got 4"):
        make_partition(tmp_path / "prepared", tmp_path / "partition", more)
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


@pytest.mark.slow
def test_inspecting_a_wide_table_prints_few_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wide.csv"
    names = [f"level{number}" for number in range(300)]
    rows = [["outcome", *names], *([word, *["0.5"] * 300] for word in ("well", "ill") * 5)]
    path.write_text("\n".join(",".join(row) for row in rows))
    assert main(["inspect", "table", "--path", str(path), "--label", "outcome"]) == 0
    printed = capsys.readouterr().out
    assert "300: level0 ... level299" in printed and "['ill', 'well']" in printed
    assert max(map(len, printed.splitlines())) < 100


PLAIN = "who,site,x,y\nann,n,1.5,0\nbob,s,2,1\nann,s,-3,1\n"
WRITTEN: dict[str, tuple[str, bytes]] = {
    "commas": ("t.csv", PLAIN.encode()),
    "mark of byte order": ("t.csv", b"\xef\xbb\xbf" + PLAIN.encode()),
    "blank lines at the end": ("t.csv", (PLAIN + "\n\n").encode()),
    "semicolons and decimal commas": ("t.csv", PLAIN.replace(",", ";").replace("1.5", "1,5").encode()),
    "tabs": ("t.tsv", PLAIN.replace(",", "\t").encode()),
    "capitals": ("T.CSV", PLAIN.encode()),
    "Windows": ("t.csv", PLAIN.replace("\n", "\r\n").encode()),
    "zipped": ("t.csv.gz", gzip.compress(PLAIN.encode())),
    "an index of pandas": ("t.csv", pd.read_csv(io.StringIO(PLAIN)).to_csv().encode()),
    "row names of R": (
        "t.csv",
        b'"","who","site","x","y"\n"1","ann","n",1.5,0\n"2","bob","s",2,1\n"3","ann","s",-3,1\n',
    ),
}


@pytest.mark.parametrize(("file", "raw"), WRITTEN.values(), ids=WRITTEN)
def test_the_same_table_however_it_is_written(tmp_path: Path, file: str, raw: bytes) -> None:
    (tmp_path / file).write_bytes(raw)
    content = _read(tmp_path / file, "y", "who", "site")
    assert content.features.tolist() == [[1.5], [-3.0], [2.0]]
    assert (content.subject_ids, content.labels.tolist(), content.silo_names) == (["ann", "bob"], [0, 1, 1], ("n", "s"))
    assert table_sizes(str(tmp_path / file), "who") == (2, 1)


def test_decimal_commas_with_thousands(tmp_path: Path) -> None:
    assert read_frame(_csv(tmp_path, "y;x;z\n0;1.200,5;1\n1;2;3\n"))[0]["x"].tolist() == ["1200.5", "2"]


@pytest.mark.parametrize("rows", ["0;1.200;0.5\n1;3.125;2\n", "0;1500;1\n1;1.250;2\n", "0;0.125;1\n1;1.250;2\n"])
def test_a_column_that_shows_decimal_points_is_no_thousands(tmp_path: Path, rows: str) -> None:
    frame, _ = read_frame(_csv(tmp_path, f"y;x;z\n{rows}"))
    assert frame.to_csv(sep=";", index=False) == f"y;x;z\n{rows}"


def test_names_with_points_stay_names(tmp_path: Path) -> None:
    """Site and patient; as a feature nobody could tell."""
    rows = "".join(f"{n % 2 + 1}.00{n + 1};{n};{n % 3 % 2}\n" for n in range(6))
    path = _csv(tmp_path, f"who;x;y\n{rows}")
    assert _read(path, "y", "who").subject_ids[:2] == ["1.001", "1.003"]
    with pytest.raises(DataError, match="the column 'who' holds thousands or decimals"):
        _read(path, "y")
    assert len(_read(path, "y", drop=["who"]).labels) == 6


def test_whole_numbers_with_decimal_commas_name_who_they_name_without(tmp_path: Path) -> None:
    """As pandas writes a column of whole numbers with a gap at one site, and without at the other."""
    for site, rows in (("1,0", ("1,0", "2,00", "3,5", "1,000")), ("1", ("1", "2", "3,5", "1,000"))):
        text = "".join(f"{who};{site};{n},5;{n % 2}\n" for n, who in enumerate(rows))
        (tmp_path / f"{len(site)}.csv").write_text(f"who;site;x;y\n{text}")
    content = _read(tmp_path, "y", "who", "site")
    assert (content.subject_ids, content.silo_names) == (["1", "1,000", "2", "3,5"], ("1",))
    assert _read(tmp_path, "y", ["who", "site"]).subject_ids[0] == "1, 1"
    for cell, kind in (("1,001", "1001"), ("1,0", "1")):
        with pytest.raises(DataError, match=f"subjects '({cell}|{kind})' and '({cell}|{kind})' differ in commas"):
            _read((tmp_path, f'who,x,y\n"{cell}",1,0\n{kind},2,1\n'), "y", "who")


def test_all_files_of_a_table_are_read_by_one_rule_of_decimals(tmp_path: Path) -> None:
    for name, row in (("a", "0;1.250"), ("b", "1;1.200,5")):
        (tmp_path / f"{name}.csv").write_text(f"y;x\n{row}\n")
    assert read_frame(tmp_path)[0]["x"].tolist() == ["1250", "1200.5"]
    (tmp_path / "b.csv").write_text('y,x\n1,"1,5"\n')
    with pytest.raises(DataError, match=r"x: expected a number as in other rows, got '1,5'"):
        _read((tmp_path), "y")


def test_bands_and_codes_are_words(tmp_path: Path) -> None:
    text = "x,y\n18-25,0\n65+,1\n<30,0\n1st,1\nI10.9,0\n"
    assert len(_read((tmp_path, text)).notes["features"]) == 5


def test_parquet_keeps_an_index_with_a_name_and_loses_one_without(tmp_path: Path) -> None:
    frame = pd.read_csv(io.StringIO(PLAIN)).convert_dtypes()
    for index in ("who", None):
        (frame if index is None else frame.set_index(index)).to_parquet(tmp_path / "t.parquet")
        assert _read(tmp_path / "t.parquet", "y", "who", "site").features.tolist() == [[1.5], [-3.0], [2.0]]


def test_a_file_for_each_silo(tmp_path: Path) -> None:
    rows = pd.read_csv(io.StringIO(PLAIN))
    for site, part in rows.groupby("site"):
        part.drop(columns="site").to_csv(tmp_path / f"{site}.csv", index=False)
    content = _read(tmp_path, "y", "who", "file")
    assert content.silo_names == ("n", "s") and sorted(content.features[:, 0]) == [-3.0, 1.5, 2.0]
    (tmp_path / "s.txt").write_text("who,x,y\nann,1,1\n")
    with pytest.raises(DataError, match="two files have the name of one silo"):
        _read(tmp_path, "y", "who", "file")
    (tmp_path / "s.txt").rename(tmp_path / "s.2.csv")
    assert _read(tmp_path, "y", "who", "file").silo_names == ("n", "s", "s.2")
    (tmp_path / "s.2.csv").unlink()
    (tmp_path / "w.csv").write_text("who,x,z\nann,1,1\n")
    with pytest.raises(DataError, match=r"w.csv has other columns than n.csv: expected who, x, y, file"):
        _read(tmp_path, "y", "who", "file")
    (tmp_path / "notes.doc").write_text("")
    with pytest.raises(DataError, match=r"notes.doc: expected files that end in"):
        _read(tmp_path, "y", "who", "file")


def test_partitions_of_parquet(tmp_path: Path) -> None:
    pd.read_csv(io.StringIO(PLAIN)).to_parquet(tmp_path / "t", partition_cols=["site"])
    assert sorted(_read(tmp_path / "t", "y", "who", "site").features[:, 0]) == [-3.0, 1.5, 2.0]
    named = pd.DataFrame({"who": ["a", "b", "c"], "y": [0, 1, 0], "x": [1, 2, 3], "site": ["Ü 1", "Ü 1", None]})
    named.to_parquet(tmp_path / "u", partition_cols=["site"])
    with pytest.raises(DataError, match="row 3, site: expected a value, got an empty cell"):
        _read(tmp_path / "u", "y", "who", "site")
    assert _read(tmp_path / "u", "y", "who", "site", missing="drop").silo_names == ("Ü 1",)


WORDS = "who,stage,age,y\na,II,30,0\nb,I,NA,0\na,,50,1\nb,II,70,1\n"


def _words(folder: Path, **options: Any) -> Content:
    return _read((folder, WORDS), "y", "who", **options)


def test_words_become_columns_and_missing_values_follow_the_stated_rule(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 3, stage: .*got an empty cell, NA, \? or their like. data.missing: drop"):
        _words(tmp_path)
    dropped = _words(tmp_path, missing="drop")
    assert dropped.notes["features"] == ["stage=II", "age"]
    assert dropped.notes["rows left out for a missing value"] == 2
    marked = _words(tmp_path, missing="indicator", ranges={"age": (0, 100)})
    assert marked.notes["features"] == ["stage=I", "stage=II", "age", "age missing"]
    assert np.allclose(marked.features, [[0, 1, 0.3, 0], [0, 0, 0.5, 0], [1, 0, 0, 1], [0, 1, 0.7, 0]])
    assert _words(tmp_path, missing="drop", drop=["stage"]).notes["features"] == ["age"]
    assert _words(tmp_path, missing="indicator", columns=["age"]).notes["features"] == ["age", "age missing"]


def test_one_long_text_among_words_takes_its_own_memory_alone(tmp_path: Path) -> None:
    """An array of texts is as wide as its longest: 20,000 rows took 1.3 GB for one cell of 8,000 letters."""
    notes = ["x" * 5000, *("short" for _ in range(2999))]
    text = "y,note\n" + "\n".join(f"{row % 2},{note}" for row, note in enumerate(notes))
    tracemalloc.start()
    content = _read((tmp_path, text))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert content.features[:2].tolist() == [[0, 1], [1, 0]]
    assert most < 3e7


def test_numbers_are_cut_off_at_their_public_range(tmp_path: Path) -> None:
    found = _words(tmp_path, missing="drop", ranges={"age": (40, 60)})
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
        _words(tmp_path, **options)


def test_a_person_is_a_number_at_a_site(tmp_path: Path) -> None:
    rows = [(site, who, who % 2, site + who) for site in (1, 2) for who in (1, 2, 3)]
    pd.DataFrame(rows, columns=["site", "id", "y", "x"]).to_csv(tmp_path / "t.csv", index=False)
    alone = _read(tmp_path / "t.csv", "y", "id", "site")
    assert (len(alone.subject_ids), alone.notes["subjects at several silos"]) == (3, 3)
    both = _read(tmp_path / "t.csv", "y", ["site", "id"], "site")
    assert (len(both.subject_ids), both.notes["subjects at several silos"]) == (6, 0)
    assert both.notes["features"] == ["x"]


def test_true_and_false_are_two_classes_however_they_are_written(tmp_path: Path) -> None:
    content = _read((tmp_path, "x,y\n1,True\n2,true\n3,FALSE\n4,false\n"))
    assert (content.notes["class_names"], content.labels.tolist()) == (["false", "true"], [1, 1, 0, 0])


def test_a_label_in_numbers_needs_a_public_range(tmp_path: Path) -> None:
    text = "x,y\n" + "".join(f"1,{number}.5\n" for number in range(40))
    with pytest.raises(DataError, match="classification or regression"):
        _read((tmp_path, text))
    with pytest.raises(DataError, match=r"data.ranges: \{y: \[0, 100\]\}"):
        _read((tmp_path, text), task="regression")
    content = _read((tmp_path, text), task="regression", ranges={"y": (0, 40)})
    assert content.classes == 0 and np.allclose(content.labels, (np.arange(40) + 0.5) / 40)


def test_people_with_one_row_are_in_one_part_each(tmp_path: Path) -> None:
    rows = [(f"p{who}", who % 2, who) for who in range(50)] + [("twice", 0, 1), ("twice", 1, 2)]
    pd.DataFrame(rows, columns=["who", "y", "x"]).to_csv(tmp_path / "t.csv", index=False)
    content = _read(tmp_path / "t.csv", "y", "who", None)
    splits = split_items(content, 0, 0.2, 0.2)
    parts = [splits.train_items, splits.validation_items, splits.test_items]
    assert sorted(np.concatenate(parts)) == list(range(52))
    assert (np.repeat(np.arange(51), content.items)[splits.train_items] == splits.train_subjects).all()
    assert len(splits.test_items) == 11 and count_content(content, 0.2)["users_after_split"] == 51
    assert (split_items(content, 1, 0.2, 0.2).test_items != splits.test_items).any()


def test_a_column_of_silos_is_the_partition_unless_another_is_asked_for() -> None:
    table = {"source": "table", "path": "t.csv", "label": "y", "subject": "who", "silo": "site"}
    assert load_run({"data": table}).partition.distribution == "inherent"
    assert load_run({"data": {**table, "silo": None}}).partition.distribution == "uniform"
    with pytest.raises(ConfigError, match=r"data.silo to be null when partition.distribution is uniform \(not read\)"):
        load_run({"data": table, "partition": {"distribution": "uniform"}})
    with pytest.raises(ConfigError, match=r"data.drop to be \[\] when data.source is embedded"):
        load_run({"data": {"drop": ["x"]}})
    with pytest.raises(ConfigError, match=r"data.ranges.age to be two numbers, the smaller one first"):
        load_run({"data": {**table, "ranges": {"age": [9, 1]}}})
