"""Counts of items: what is read, and which line of a bad table an error names."""

import gzip
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subjectdp.api import counts as module
from subjectdp.api.counts import Counts, SiloSizes, as_counts, read_counts
from subjectdp.data.names import person
from subjectdp.errors import ConfigError, DataError

TABLE = "subject,silo,items\nann,north,3\nben,north,1\nann,south,5\n"
TRIPLES = [("ann", "north", 3), ("ben", "north", 1), ("ann", "south", 5)]


@pytest.fixture(autouse=True, params=[module._LONG, -1], ids=["row by row", "by columns"], scope="module")
def _length_of_a_long_table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Long tables are read by columns, and so that nothing but the time tells."""
    module._LONG, before = request.param, module._LONG
    yield
    module._LONG = before


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "counts.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def same(left: Counts, right: Counts) -> bool:
    return (left.subjects, left.silos) == (right.subjects, right.silos) and (left.rows == right.rows).all()


@pytest.mark.parametrize(
    ("cap", "items", "largest"), [(None, (4, 5), (3, 5)), (2, (3, 2), (2, 2)), (10**30, (4, 5), (3, 5))]
)
def test_a_cap_drops_the_surplus(tmp_path: Path, cap: int | None, items: object, largest: object) -> None:
    facts = read_counts(written(tmp_path, TABLE)).facts(cap)
    assert (facts.items, facts.subjects, facts.largest_subject) == (items, (2, 1), largest)
    assert (facts.silos_per_subject, facts.total_subjects) == (2, 2)
    assert (facts.cap_enforced, facts.max_items_per_subject) == (cap is not None, cap)
    with pytest.raises(ConfigError, match="max_items_per_subject to be a whole number from 1 on, got 0"):
        as_counts(TRIPLES).facts(0)


@pytest.mark.parametrize(
    "source",
    [
        TRIPLES,
        {("ann", "north"): 3, ("ben", "north"): 1, ("ann", "south"): 5},
        {"items": [3, 1, 5], "subject": ["ann", "ben", "ann"], "silo": ["north", "north", "south"]},
        pd.DataFrame(TRIPLES, columns=["subject", "silo", "items"]),
        pd.DataFrame(TRIPLES, columns=["subject", "silo", "items"]).astype({"items": float}),
    ],
    ids=["triples", "mapping", "columns", "frame", "frame of floats"],
)
def test_every_kind_of_table_is_the_same_counts(tmp_path: Path, source: Any) -> None:
    counts = as_counts(source)
    assert same(counts, as_counts(written(tmp_path, TABLE)))
    assert as_counts(counts) is counts


@pytest.mark.parametrize(
    "content",
    [
        "\ufeff" + TABLE,
        TABLE.replace("\n", "\r\n"),
        TABLE + "\n\ncara,south,0\n",
        TABLE.replace("3", "3.0").replace("5", "5.00 "),
        "items, note ,silo,subject\n3,x,north,ann\n1,,north,ben\n5,,south, ann \n",
    ],
    ids=["mark of UTF-8", "Windows", "empty lines and no items", "floats", "other order, more columns"],
)
def test_harmless_differences(tmp_path: Path, content: str) -> None:
    assert same(read_counts(written(tmp_path, content)), as_counts(TRIPLES))
    assert same(read_counts(written(tmp_path, gzip.compress(content.encode()))), as_counts(TRIPLES))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: expected the columns subject, silo, items, got nothing"),
        ("subject;silo;items\na;b;1\n", "line 1: expected .* got subject;silo;items. Separate columns by commas"),
        ("subject,silo,items,items\na,b,1,2\n", "line 1: expected the columns .* once each, got"),
        ("person,silo,items\na,b,1\n", "line 1: .* got person, silo, items"),
        ("subject,silo,items\n", "at least one row"),
        ("subject,silo,items\na,b,0\n", "at least one row"),
        (TABLE + "cara,south\n", "line 5: expected subject, silo, items, got too few columns"),
        (TABLE + '"ca\nra",south,1\n', "line 6: expected a subject of printable characters"),
        (TABLE + "cara,south,1,000\n", "line 5: expected subject, silo, items, got too few columns, or too many"),
        *(
            (f"{TABLE}cara,south,{items}\n", f"line 5: expected items to be a whole number from 0 on, got '{items}'")
            for items in ("-1", "2.5", "many", "1e3")
        ),
        (TABLE + "cara,south,99999999999999999999\n", "line 5"),
        (TABLE + ",south,1\n", "line 5: expected a subject, got nothing"),
        (TABLE + "cara,,1\n", "line 5: expected a silo, got nothing"),
        (TABLE + "ann,north,3\n", "line 5: subject 'ann' at silo 'north' stands at .*line 2 too"),
        (TABLE + "Ann,south,3\n", "subjects 'ann' and 'Ann' differ in capitals alone"),
        (TABLE + "ann,North,3\n", "silos 'north' and 'North' differ in capitals alone"),
        (TABLE.encode() + b"Zo\xeb,south,1\n", "line 5: expected text in UTF-8"),
    ],
)
def test_a_bad_file_is_refused_by_name_and_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=message) as refused:
        read_counts(path)
    assert str(path) in str(refused.value)


def test_all_bad_lines_are_named_up_to_ten(tmp_path: Path) -> None:
    path = written(tmp_path, TABLE + "a,b,x\n" * 12)
    with pytest.raises(DataError) as refused:
        read_counts(path)
    lines = str(refused.value).splitlines()
    assert [line.split("line ")[1].split(":")[0] for line in lines[:10]] == [str(n) for n in range(5, 15)]
    assert lines[10:] == [f"{path}: 2 more problems."]


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Cannot read .*none\.csv: No such file"):
        read_counts(tmp_path / "none.csv")
    with pytest.raises(DataError, match="Cannot read"):
        read_counts(tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (7, "a CSV file, a table with the columns"),
        ([("ann", "north")], "row 1: expected subject, silo, items"),
        ([("ann", "north", 1), ("b", "c", 1.5)], "row 2: .* got 1.5"),
        ([("ann", "north", True)], "row 1: expected items to be a whole number from 0 on, got True"),
        ({"ann": 3}, "row 1"),
        (pd.DataFrame({"subject": ["a"], "items": [1]}), "a table with the columns"),
        ({"subject": ["a", "b"], "silo": ["x"], "items": [1]}, "equally long"),
    ],
)
def test_what_is_no_table(source: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_counts(source)


NAME = st.sampled_from(["ann", " ann", "Ann", "1", "1.0", "007", "ﬁ", "fi", "NA", "", '"a,b"', "ben"])
ROWS = st.lists(st.tuples(NAME, NAME, st.sampled_from(["0", "1", " 2", "+3", "1_0", "2.0", "-1", ""])), max_size=6)


@given(rows=ROWS, more=st.sampled_from(["", ",x", ",,"]))
def test_columns_are_read_as_rows_are(rows: list[tuple[str, str, str]], more: str) -> None:
    text = "subject,silo,items\n" + "".join(f"{','.join(row)}{more}\n" for row in rows)
    read: list[Any] = []
    for module._LONG in (10**6, -1):
        with TemporaryDirectory() as folder:
            try:
                read.append(read_counts(written(Path(folder), text)))
            except DataError as problem:
                read.append(str(problem).replace(folder, ""))
    assert same(*read) if isinstance(read[0], Counts) else read[0] == read[1]


PLACE = st.tuples(st.integers(0, 6), st.integers(0, 3))
CELLS = st.dictionaries(PLACE, st.integers(0, 9), min_size=1).filter(lambda cells: any(cells.values()))


@given(cells=CELLS, cap=st.integers(1, 10))
def test_facts_against_loops(cells: dict[tuple[int, int], int], cap: int) -> None:
    held = {key: min(items, cap) for key, items in cells.items() if items}
    silos = list(dict.fromkeys(silo for _, silo in held))
    facts = as_counts(cells).facts(cap)
    assert facts.items == tuple(sum(n for (_, at), n in held.items() if at == silo) for silo in silos)
    assert facts.subjects == tuple(sum(at == silo for _, at in held) for silo in silos)
    assert facts.largest_subject == tuple(max(n for (_, at), n in held.items() if at == silo) for silo in silos)
    people = {person for person, _ in held}
    assert facts.silos_per_subject == max(sum(who == person for who, _ in held) for person in people)
    assert facts.total_subjects == len(people)


def test_a_series_is_read_by_the_names_of_its_index() -> None:
    rows = pd.DataFrame({"subject": ["ann", "ann", "ben"], "silo": ["n", "s", "s"], "items": [3, 2, 4]})
    wanted: Any = as_counts(rows)
    for names in (["subject", "silo"], ["silo", "subject"]):
        found = as_counts(rows.set_index(names)["items"])
        assert isinstance(found, Counts) and found.subjects == wanted.subjects and found.silos == wanted.silos
    with pytest.raises(DataError, match="the index of the counts to be named subject and silo"):
        as_counts(rows.rename(columns={"silo": "ward"}).set_index(["subject", "ward"])["items"])
    with pytest.raises(ConfigError, match="silos of SiloSizes to be a list"):
        SiloSizes({"n", "s"}, (3, 4))
    assert person("5.00e+01") == person(50) == "50" and person("1E5") == "1E5", "a number, and a code"
    assert person("1e+05") == person(100000), "as R writes it"
    assert person(2.0**52) == person(2**52) and person(Decimal("1E+2")) == person(100)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ([(b"M\xfcller", "n", 3), (b"M\xf6ller", "n", 4)], "a subject of printable characters"),
        ([(2.0**53, "n", 3), (2.0**53 + 1, "s", 4)], "with all of its digits"),  # the same float
        ([("1.23457E+11", "n", 3)], "with all of its digits, got 1.23457E.11: write numbers as text"),
        ([("1E+05", "n", 3)], "with all of its digits"),  # a spreadsheet's 0E+00 of 100001, too
        ([("1e+16", "n", 3)], "with all of its digits"),
        ([{"ann", "n", 3}], "row 1: expected subject, silo, items"),
        ({"subject": "ann", "silo": "nnn", "items": [1, 2, 3]}, "equally long, one of each name"),
        ({"subject": np.array("ann"), "silo": ["n"], "items": [3]}, "equally long, one of each name"),
        (pd.DataFrame([["a", "b", "n", 3]] * 2, columns=["subject", "subject", "silo", "items"]), "one of each name"),
        (pd.DataFrame({"subject": ["ann", None], "silo": ["n", "s"], "items": [3, 4]}), "row 2: expected a subject"),
        (pd.DataFrame({"subject": ["a", "b"], "silo": [None, "s"], "items": [3, 4]}), "row 1: expected a silo"),
    ],
)
def test_what_stands_for_no_one_subject_is_no_row(source: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        as_counts(source)


@pytest.mark.parametrize(
    ("subjects", "silos", "rows", "told"),
    [
        ("ab", "s", [[0, 0, -5], [1, 0, 30]], "items, each name and each pair once"),
        ("ab", "s", [[0, 0, 5], [0, 0, 3]], "each pair once"),
        ("ab", "s", [[0, 0, 5], [7, 0, 3]], "each name and each pair once"),
        ("ab", "st", [[0, 0, 5], [1, 0, 3]], "each name"),
        ("aa", "s", [[0, 0, 5], [1, 0, 3]], "the subjects are not unique, 'a' is there twice"),
        (["1", "1.0"], "s", [[0, 0, 5], [1, 0, 3]], "subjects '1' and '1.0' cannot be told apart"),
        ("a", ["ann", "ann "], [[0, 0, 5], [0, 1, 3]], "silos 'ann' and 'ann ' cannot be told apart"),
        (["100000", "1e+05"], "s", [[0, 0, 5], [1, 0, 3]], "each name"),
        *((["b", name], "s", [[0, 0, 5], [1, 0, 3]], "a subject's name") for name in ("", None, "NA", "a\u200b")),
        ("aA", "s", [[0, 0, 5], [1, 0, 3]], "differ in capitals alone"),
        ("ab", "s", [[0, 0, 5.5], [1, 0, 3]], "a NumPy array of whole numbers"),
        ("", "", np.zeros((0, 3), int), "each name"),
    ],
)
def test_counts_by_hand_are_checked_before_they_are_accounted(subjects: Any, silos: Any, rows: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        as_counts(Counts(tuple(subjects), tuple(silos), np.array(rows)))


def test_counts_by_hand_have_the_names_of_other_counts() -> None:
    rows, wanted = [(1, "s", 5), ("1.0", "01", 3)], np.array([[0, 0, 5], [0, 1, 3]])
    found, by_hand = as_counts(rows), as_counts(Counts((1.0,), ("s", 1), wanted))  # type: ignore[arg-type]
    assert isinstance(found, Counts) and isinstance(by_hand, Counts)
    assert (by_hand.subjects, by_hand.silos) == (found.subjects, found.silos) == (("1",), ("s", "1"))
    with pytest.raises(ConfigError, match="max_items_per_subject to be .*whole number.*1.5"):
        by_hand.capped(1.5)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="subjects of Counts to be a list of names, got 'ann'"):
        as_counts(Counts("ann", ("s",), wanted))  # type: ignore[arg-type]
