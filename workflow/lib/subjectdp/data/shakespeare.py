"""The Complete Works (1994 e-text) by LEAF's parsing rules: characters, their text, windows by index.

LEAF (Caldas et al. 2018, data/shakespeare) writes every window of 80 characters as a string: 360 MB. Here each
character's text is stored once, and a window is the address of its first symbol. The rules below are LEAF's, in their
order, with its hard-coded places; they are checked by counts (36 plays, 1,130 users, 4,226,206 windows), because a
changed edition gives wrong plays without any error.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subjectdp.data import archives
from subjectdp.data.content import TEXT, WINDOW, Content, subjects_in_order
from subjectdp.errors import DataError

# LEAF's order (models/utils/language_utils.py), 80 symbols
VOCABULARY = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
FILE_NAMES = ("100.txt", "raw_data.txt", "t8.shakespeare.txt", "pg100.txt")

_AUTHOR = "by William Shakespeare"
_COLUMN_ZERO_PLAY = "THE COMEDY OF ERRORS"  # its speeches are not indented
_LAST_LINE = 124_195  # LEAF's hard-coded end of the plays, counted without line 1
_LINES_BEFORE_AUTHOR = 5
_SPEECH = re.compile(r"  ([A-Za-z][A-Za-z ]*)\. (.*)")
_INDENT = "    "  # of a line that continues a speech
_SPEECH_COLUMN_ZERO = re.compile(r"([A-Za-z][A-Za-z ]*)\. (.*)")
_SPACES = re.compile(r" {2,}")
_NOT_A_WORD = re.compile(r"\W+")


@dataclass
class Play:
    """A play: its title and the lines of each character, both in the order of the text."""

    title: str
    lines: dict[str, list[str]] = field(default_factory=dict)


def load_upstream(path: Path) -> Content:
    """Parses the e-text at ``path`` (file or folder; plain, gzip or zip)."""
    return parse(read_text(archives.find_text(path, FILE_NAMES) if path.is_dir() else path))


def read_text(path: Path) -> str:
    """The text in a file (plain, gzip or zip) with ``\\n`` line ends; DataError for what is no text."""
    raw = archives.read_text_file(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse(text: str) -> Content:
    """The e-text as a data set; DataError if it holds no plays or a symbol outside of the vocabulary."""
    plays, discarded = split_plays(text)
    if not plays:
        raise DataError(
            f"No play was found: expected lines {_AUTHOR!r} and indented speeches, as in the 1994 e-text. "
            "Newer Gutenberg files have another layout."
        )
    users = user_texts(plays)
    kept = {user: (play, text) for user, (play, text) in users.items() if len(text) > WINDOW}
    characters = sum(len(play.lines) for play in plays)
    notes = {"characters": characters, "characters_with_lines": len(users), "discarded_lines": discarded}
    return text_content({u: t for u, (_, t) in kept.items()}, [play for play, _ in kept.values()], notes)


def text_content(texts: dict[str, str], groups: list[str], notes: dict[str, int]) -> Content:
    """A content whose subject i's items are all windows of its own text (each longer than the window)."""
    if not texts:
        raise DataError(f"No user has a text of more than {WINDOW} characters.")
    facts = subjects_in_order(texts, [len(text) - WINDOW for text in texts.values()], WINDOW) | {"groups": groups}
    facts |= {"classes": len(VOCABULARY), "window": WINDOW, "vocabulary": VOCABULARY, "notes": notes}
    return Content("shakespeare", TEXT, encode("".join(texts.values())), np.empty(0, dtype=np.uint8), **facts)


def encode(text: str) -> NDArray[np.uint8]:
    """Vocabulary indices of ``text``, (len,) uint8; DataError naming each unknown symbol and its count."""
    unknown = {symbol: n for symbol, n in Counter(text).items() if symbol not in VOCABULARY}
    if unknown:
        listed = ", ".join(f"{symbol!r} ({n} times)" for symbol, n in sorted(unknown.items())[:10])
        more = "" if len(unknown) <= 10 else f" and {len(unknown) - 10} more"
        raise DataError(f"The text has symbols outside of LEAF's {len(VOCABULARY)}: {listed}{more}.")
    table = np.zeros(128, dtype=np.uint8)
    table[np.frombuffer(VOCABULARY.encode("ascii"), dtype=np.uint8)] = np.arange(len(VOCABULARY), dtype=np.uint8)
    return table[np.frombuffer(text.encode("ascii"), dtype=np.uint8)]


# --- LEAF's parser ------------------------------------------------------------------------------------------


def split_plays(text: str) -> tuple[list[Play], int]:
    """The plays with more than one character, and the number of non-blank lines that no rule took up."""
    lines = text.split("\n")[1:]  # splitlines() ends lines at form feeds and other symbols too, and loses what follows
    authors = (number for number, line in enumerate(lines) if _AUTHOR in line)
    next(authors, None)  # the contents and the sonnets go: plays start five lines before the second author line
    start = max(0, next(authors, _LINES_BEFORE_AUTHOR) - _LINES_BEFORE_AUTHOR)
    plays: list[Play] = []
    speaker: str | None = None
    discarded = 0
    body = lines[start : _LAST_LINE + 1]
    for number, line in enumerate(body):
        if _AUTHOR in line:
            plays.append(Play(_title_above(lines, start + number)))
            speaker = None
            continue
        if not plays:
            discarded += line.strip() != ""
            continue
        speaker, taken = _take_line(plays[-1], speaker, line)
        discarded += not taken and line.strip() != ""
    return [play for play in plays if len(play.lines) > 1], discarded


def _title_above(lines: list[str], number: int) -> str:
    """The first non-blank of the lines two to seven above the author's."""
    for above in range(2, 8):
        title = lines[number - above].strip() if number >= above else ""
        if title != "":
            return title
    raise DataError(f"Line {number}: {_AUTHOR!r} without a title above it. This is not the 1994 e-text.")


def _take_line(play: Play, speaker: str | None, line: str) -> tuple[str | None, bool]:
    """Adds ``line`` to its speaker; returns who speaks after it, and whether a rule took the line up."""
    column_zero = play.title == _COLUMN_ZERO_PLAY
    speech = (_SPEECH_COLUMN_ZERO if column_zero else _SPEECH).match(line)
    if speech is not None:
        speaker = speech[1].upper()
        if column_zero and speaker.startswith("ACT "):
            return None, True
        play.lines.setdefault(speaker, []).append(speech[2])
        return speaker, True
    if speaker is None:
        return None, False
    if column_zero and line.startswith("<"):
        return None, True
    if not column_zero and not line.startswith(_INDENT):
        return speaker, False  # a stage direction does not end the speech
    play.lines[speaker].append(line if column_zero else line.removeprefix(_INDENT))  # in column zero blank lines too
    return speaker, True


def user_texts(plays: list[Play]) -> dict[str, tuple[str, str]]:
    """User id -> (play, text) for the characters with more than two lines, in the order of the text.

    Lines end in a blank, runs of blanks become one. Characters whose ids coincide are one user, as in LEAF.
    """
    collected: dict[str, tuple[str, list[str]]] = {}
    for play in plays:
        for character, lines in play.lines.items():
            if len(lines) > 2:
                user = _NOT_A_WORD.sub("_", f"{play.title}_{character}".replace(" ", "_"))
                collected.setdefault(user, (play.title, []))[1].extend(lines)
    texts = {user: "".join(f"{line} " for line in lines) for user, (_, lines) in collected.items()}
    return {user: (title, _SPACES.sub(" ", texts[user])) for user, (title, _) in collected.items()}
