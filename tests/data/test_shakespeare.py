"""LEAF's parsing rules on a small text with every oddity, on the real text where it is at hand; and generated plays."""

import gzip
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.made_content import texts_of
from source_files import etext, write_zip
from subjectdp.data import embedded_plays, shakespeare
from subjectdp.data.content import check_content, check_expected, count_content
from subjectdp.data.prepare import generate
from subjectdp.data.shakespeare import VOCABULARY, Play
from subjectdp.errors import ConfigError, DataError

REAL = os.environ.get("SUBJECTDP_REAL_DATA")


def _plays(body: str) -> list[Play]:
    """Plays of ``body`` behind contents that hold the first author line."""
    head = "line 1\nCONTENTS\nby William Shakespeare\n"
    return shakespeare.split_plays(head + body)[0]


def _play(title: str, *lines: str) -> str:
    return "\n".join(["1599", "", title, "", "", "by William Shakespeare", "", *lines, ""])


def test_the_vocabulary_is_leafs() -> None:
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 80
    assert VOCABULARY[:3] == "\n !" and VOCABULARY[-1] == "}"
    assert "".join(sorted(VOCABULARY)) == VOCABULARY


def test_users_and_texts_of_a_small_etext() -> None:
    content = shakespeare.parse(etext(speeches=12))
    check_content(content)
    own, odd = "A_PLAY_OF_TESTS", "THE_COMEDY_OF_ERRORS"
    assert content.subject_ids == [f"{own}_KING", f"{own}_FIRST_FOOL", f"{odd}_DUKE", f"{odd}_DROMIO"]
    assert content.groups == ["A PLAY OF TESTS"] * 2 + ["THE COMEDY OF ERRORS"] * 2
    king, fool, duke, dromio = texts_of(content).values()
    assert king.startswith("Now is the winter") and "York 11; and all the clouds that lour'd upon our" in king
    # The stage direction (17 blanks) continues King's speech, as in LEAF; the exit (2 blanks) is dropped.
    assert "upon our house. Enter a fool Now" in king and "Exit" not in king
    assert "all the clouds ay me. Now" in fool
    assert "all the clouds in column zero. Now" in duke and "NOTICE" not in duke and "spoken" not in duke
    assert "nobody" not in dromio


def test_windows_are_leafs_windows() -> None:
    content = shakespeare.parse(etext())
    for text, first, items in zip(texts_of(content).values(), content.first_items, content.items, strict=True):
        windows = [text[i : i + 80] for i in range(0, len(text) - 80, 1)]
        assert len(windows) == items
        last = content.features[first + items - 1 : first + items + 79]
        assert "".join(VOCABULARY[s] for s in last) == windows[-1]
        assert VOCABULARY[content.features[first + items + 79]] == text[-1]


@pytest.mark.parametrize(
    ("line", "speaker"),
    [
        ("  HAM. To be", "HAM"),
        ("  First Lord. Ay", "FIRST LORD"),
        ("  A. x", "A"),
        ("  HAM.", None),  # no blank after the period
        *((f"{blanks}HAM. not two blanks", None) for blanks in ("", " ", "   ")),
        ("  2. LORD. digit", None),
        ("  HAM, not. a name", None),
    ],
)
def test_who_starts_a_speech(line: str, speaker: str | None) -> None:
    plays = _plays(_play("T", "  X. a", "  Y. b", line))
    names = set(plays[0].lines) - {"X", "Y"}
    assert names == (set() if speaker is None else {speaker})


def test_cases_are_merged_and_other_lines_do_not_end_a_speech() -> None:
    body = _play("T", "    nobody speaks yet", "  Ham. a", "", "Stage left", "    b", "  OPH. c", "  HAM. d")
    assert _plays(body)[0].lines == {"HAM": ["a", "b", "d"], "OPH": ["c"]}


def test_the_column_zero_play_is_known_by_its_exact_title() -> None:
    lines = ("DUKE. a", "b", "<c", "d", "ACT II. SCENE", "e", "Wife. f", "", "  g")
    (play,) = _plays(_play("THE COMEDY OF ERRORS", *lines))
    assert play.lines == {"DUKE": ["a", "b"], "WIFE": ["f", "", "  g", *play.lines["WIFE"][3:]]}
    assert _plays(_play("A COMEDY OF ERRORS", *lines)) == []


@pytest.mark.parametrize("above", range(2, 8))
def test_the_title_is_two_to_seven_lines_above_the_author(above: int) -> None:
    lines = ["TITLE", *[""] * (above - 1), "by William Shakespeare", "  A. x", "  B. y"]
    assert _plays("\n" * 9 + "\n".join(lines))[0].title == "TITLE"


def test_plays_of_one_character_and_characters_of_two_lines_are_dropped() -> None:
    body = _play("SOLO", "  A. x") + _play("DUO", "  A. 1", "  A. 2", "  B. 1", "  B. 2", "  B. 3")
    plays = _plays(body)
    assert [play.title for play in plays] == ["DUO"]
    assert shakespeare.user_texts(plays) == {"DUO_B": ("DUO", "1 2 3 ")}
    play = Play("HAMLET, PRINCE OF D.", {"A  B": ["1", "2", "3"]})
    assert list(shakespeare.user_texts([play])) == ["HAMLET__PRINCE_OF_D__A__B"]


@given(st.lists(st.text(alphabet="ab \n", max_size=12).map(lambda s: s.replace("\n", "")), min_size=3, max_size=9))
def test_texts_are_joined_as_leafs_file_and_regular_expression_do(lines: list[str]) -> None:
    written = "".join(line + "\n" for line in lines)
    wanted = re.sub(r"   *", " ", written.replace("\n", " "))
    ((_, text),) = shakespeare.user_texts([Play("P", {"C": lines})]).values()
    assert text == wanted


@given(st.text(alphabet=VOCABULARY, max_size=200))
def test_encoding_is_str_find(text: str) -> None:
    assert shakespeare.encode(text).tolist() == [VOCABULARY.find(symbol) for symbol in text]


def test_unknown_symbols_are_named_and_counted() -> None:
    with pytest.raises(DataError, match=r"'\*' \(2 times\), 'é' \(1 times\)"):
        shakespeare.encode("a*b*é")
    with pytest.raises(DataError, match="'_'"):
        shakespeare.parse(etext().replace("winter", "wint_er"))


def test_every_packing_gives_the_same(tmp_path: Path) -> None:
    text = etext().encode()
    written = {"crlf": text.replace(b"\n", b"\r\n"), "bom": b"\xef\xbb\xbf" + text, "gz": gzip.compress(text)}
    for name, raw in (written | {"100.txt": text}).items():
        (tmp_path / name).write_bytes(raw)
    write_zip(tmp_path / "zip", {"100.txt": text, "readme.md": b"no"})
    for name in (*written, "zip", "100.txt", "."):
        content = shakespeare.load_upstream(tmp_path / name)
        np.testing.assert_array_equal(content.features, shakespeare.parse(etext()).features, name)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Just some words\n" * 50, "No play was found"),
        ("x\nby William Shakespeare\n" * 2 + "no speeches\n", "without a title"),
        ("x\nby William Shakespeare\nTITLE" + "\n" * 8 + "by William Shakespeare\n", "without a title"),
    ],
)
def test_what_is_no_etext_is_refused(text: str, problem: str) -> None:
    """The last one has a title a line too far above."""
    with pytest.raises(DataError, match=problem):
        shakespeare.parse(text)


@pytest.mark.skipif(REAL is None, reason="the real e-text is not part of the project")
def test_the_real_text_gives_leafs_numbers() -> None:
    started = time.monotonic()
    content = shakespeare.load_upstream(Path(str(REAL)) / "shakespeare_etext100_1994.txt.gz")
    check_content(content)
    counts = count_content(content, test_fraction=0.1)
    seconds = time.monotonic() - started
    wanted = {"groups": 36, "users": 1130, "items": 4_226_206, "users_after_split": 660, "min": 3, "max": 66_903}
    check_expected(counts, wanted | {"train_items": 3_678_452, "test_items": 356_922})
    assert (round(counts["mean"], 1), round(counts["std"], 1), counts["median"]) == (3740.0, 6210.5, 1162.5)
    assert content.notes["characters"] == 1302 and content.notes["characters_with_lines"] == 1145
    assert count_content(content, 0.2)["users_after_split"] == 799
    assert seconds < 20


# --- generated ----------------------------------------------------------------------------------------------

Factory = pytest.TempPathFactory


@settings(max_examples=25, deadline=None)
@given(subjects=st.integers(2, 70), items=st.integers(2, 400), seed=st.integers(0, 2**40))
def test_as_many_users_as_asked_for(tmp_path_factory: Factory, subjects: int, items: int, seed: int) -> None:
    (path,) = generate("shakespeare", tmp_path_factory.mktemp("some"), subjects, items, seed)
    ids = shakespeare.load_upstream(path).subject_ids
    assert len(ids) == len(set(ids)) == subjects


def test_a_text_longer_than_the_rules_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"items_per_subject.*small enough.*124000 lines"):
        generate("shakespeare", tmp_path, 3, 3_000_000, 0)
    monkeypatch.setattr(embedded_plays, "_LAST_LINE", 500)  # below the lines written, above the first estimate
    with pytest.raises(ConfigError, match=r"small enough for 6 subjects in 500 lines"):
        generate("shakespeare", tmp_path, 6, 5000, 0)
    assert list(tmp_path.iterdir()) == []
