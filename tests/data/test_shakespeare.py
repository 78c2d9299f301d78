"""LEAF's parsing rules on a small text with every oddity, and on the real text where it is at hand."""

import gzip
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from source_files import etext, write_zip
from subjectdp.data import shakespeare
from subjectdp.data.content import Content, check_content, check_expected, count_content
from subjectdp.data.shakespeare import VOCABULARY, Play
from subjectdp.errors import DataError

REAL = os.environ.get("SUBJECTDP_REAL_DATA")


def _text_of(content: Content, user: str) -> str:
    index = content.subject_ids.index(user)
    first, items = content.first_items[index], content.items[index]
    return "".join(VOCABULARY[symbol] for symbol in content.features[first : first + items + 80])


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
    assert content.subject_ids == [
        "A_PLAY_OF_TESTS_KING",
        "A_PLAY_OF_TESTS_FIRST_FOOL",
        "THE_COMEDY_OF_ERRORS_DUKE",
        "THE_COMEDY_OF_ERRORS_DROMIO",
    ]
    assert content.groups == ["A PLAY OF TESTS"] * 2 + ["THE COMEDY OF ERRORS"] * 2
    king = _text_of(content, "A_PLAY_OF_TESTS_KING")
    assert king.startswith("Now is the winter") and "York 11; and all the clouds that lour'd upon our" in king
    # The stage direction (17 blanks) continues King's speech, as in LEAF; the exit (2 blanks) is dropped.
    assert "upon our house. Enter a fool Now" in king and "Exit" not in king
    assert "all the clouds ay me. Now" in _text_of(content, "A_PLAY_OF_TESTS_FIRST_FOOL")
    duke = _text_of(content, "THE_COMEDY_OF_ERRORS_DUKE")
    assert "all the clouds in column zero. Now" in duke and "NOTICE" not in duke and "spoken" not in duke
    assert "nobody" not in _text_of(content, "THE_COMEDY_OF_ERRORS_DROMIO")


def test_windows_are_leafs_windows() -> None:
    content = shakespeare.parse(etext())
    for user, first, items in zip(content.subject_ids, content.first_items, content.items, strict=True):
        text = _text_of(content, user)
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
        (" HAM. one blank", None),
        ("   HAM. three blanks", None),
        ("  2. LORD. digit", None),
        ("  HAM, not. a name", None),
        ("HAM. column zero", None),
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


def test_a_title_too_far_above_is_refused() -> None:
    with pytest.raises(DataError, match="without a title"):
        _plays("\n" * 9 + "TITLE" + "\n" * 8 + "by William Shakespeare\n")


def test_plays_of_one_character_and_characters_of_two_lines_are_dropped() -> None:
    body = _play("SOLO", "  A. x") + _play("DUO", "  A. 1", "  A. 2", "  B. 1", "  B. 2", "  B. 3")
    plays = _plays(body)
    assert [play.title for play in plays] == ["DUO"]
    assert shakespeare.user_texts(plays) == {"DUO_B": ("DUO", "1 2 3 ")}


def test_ids_collapse_what_is_no_letter() -> None:
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


@pytest.mark.parametrize("packing", ["txt", "crlf", "bom", "gz", "zip", "folder"])
def test_every_packing_gives_the_same(tmp_path: Path, packing: str) -> None:
    text = etext().encode()
    path = tmp_path / "100.txt"
    if packing == "gz":
        path = tmp_path / "other.txt.gz"
        path.write_bytes(gzip.compress(text))
    elif packing == "zip":
        path = write_zip(tmp_path / "t.zip", {"100.txt": text})
    else:
        change = {"crlf": text.replace(b"\n", b"\r\n"), "bom": b"\xef\xbb\xbf" + text}
        path.write_bytes(change.get(packing, text))
    content = shakespeare.load_upstream(tmp_path if packing == "folder" else path)
    np.testing.assert_array_equal(content.features, shakespeare.parse(etext()).features)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "holds no text"),
        (b" \n\n", "holds no text"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"\n <HTML>", "web page"),
        (b"PLAY\0", "holds no text"),
        (b"Just some words\n" * 50, "No play was found"),
        (b"x\nby William Shakespeare\n" * 2 + b"no speeches\n", "without a title|No play"),
    ],
)
def test_what_is_no_etext_is_refused(tmp_path: Path, raw: bytes, problem: str) -> None:
    path = tmp_path / "100.txt"
    path.write_bytes(raw)
    with pytest.raises(DataError, match=problem):
        shakespeare.load_upstream(path)


def test_a_folder_without_a_clear_text_is_refused(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("x")
    with pytest.raises(DataError, match="2 candidates"):
        shakespeare.load_upstream(tmp_path)


@pytest.mark.skipif(REAL is None, reason="the real e-text is not part of the project")
def test_the_real_text_gives_leafs_numbers() -> None:
    started = time.monotonic()
    content = shakespeare.load_upstream(Path(str(REAL)) / "shakespeare_etext100_1994.txt.gz")
    check_content(content)
    counts = count_content(content, test_fraction=0.1)
    seconds = time.monotonic() - started
    check_expected(
        counts,
        {
            "groups": 36,
            "users": 1130,
            "items": 4_226_206,
            "users_after_split": 660,
            "train_items": 3_678_452,
            "test_items": 356_922,
            "min": 3,
            "max": 66_903,
        },
    )
    assert (round(counts["mean"], 1), round(counts["std"], 1), counts["median"]) == (3740.0, 6210.5, 1162.5)
    assert content.notes["characters"] == 1302 and content.notes["characters_with_lines"] == 1145
    assert count_content(content, 0.2)["users_after_split"] == 799
    assert seconds < 20
