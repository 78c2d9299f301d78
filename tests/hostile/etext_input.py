"""The e-text: hostile texts in any packing, and a slow reader that walks it symbol by symbol."""

from __future__ import annotations

import functools
import gzip
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from hostile.leaf_input import items_of
from hostile.mutations import generator, mutate
from hostile.outcomes import Case, Invalid, real_file
from hostile.zips import unzipped, zipped
from source_files import etext
from subjectdp.data import shakespeare
from subjectdp.data.content import check_content
from subjectdp.data.embedded import generate
from subjectdp.data.shakespeare import VOCABULARY

FILE = "100.txt"
AUTHOR = "by William Shakespeare"
LINES = (
    "",
    " ",
    AUTHOR,
    f"  {AUTHOR}  ",
    "A PLAY OF TESTS",
    "THE COMEDY OF ERRORS",
    "ANOTHER/PLAY",
    "A TITLE" * 40,
    "TITLE\tWITH TAB",
    "  KING. " + "What is this? " * 8,
    "  King Lear. Nothing. " * 3,
    "  FOOL. Nothing.",
    "    and nothing more",
    "KING. In column zero.",
    "ACT II. SCENE 2",
    "<<NOTICE>>",
    "  A* . b",
    "  KING. caf\u00e9",
    "  KING. form\x0cfeed",
    "  KING. line\u2028separator and\x85next",
    "  KING. tab\there",
    "  K" + "i" * 3000 + ". long name",
    "  KING. " + "x" * 20_000,
    "    " + " " * 20_000,
    "\u00c9TIENNE",
    "  \u00c9TIENNE. Accent",
)


class EtextReader:
    """The e-text, plain or gzip or zip; the oracle decides both ways for what it can unpack."""

    name = "etext"
    decisive = True

    def generated(self) -> SearchStrategy[Case]:
        """Texts made of odd and of ordinary lines."""
        plays = st.lists(st.sampled_from(LINES) | st.text(max_size=20), min_size=1, max_size=25)
        packing = st.sampled_from(("plain", "plain", "gzip", "zip", "utf-16", "latin-1", "crlf", "bom"))
        return st.builds(_case, plays.map(lambda lines: _SAMPLE_HEAD + "\n".join(lines)), packing)

    def mutated(self, key: str) -> Case:
        """Changes of bytes, of lines, of the encoding and of the packing."""
        rng = generator(key)
        text = sample(rng.choice(("small", "small", "embedded", "real")))
        kind = rng.random()
        if kind < 0.1:
            return _case(text, rng.choice(("plain", "gzip", "zip", "crlf", "bom")), valid=True)
        if kind < 0.4:
            return Case({FILE: mutate(text.encode(), rng)})
        lines = text.split("\n")
        for _ in range(rng.choice((1, 2, 8))):
            place = rng.randrange(len(lines))
            action = rng.randrange(5)
            if action == 0:
                del lines[place]
            elif action == 1:
                lines.insert(place, rng.choice(LINES))
            elif action == 2:
                lines[place] = rng.choice(("", " ", "  ", "    ")) + lines[place].strip()
            elif action == 3:
                other = rng.randrange(len(lines))
                lines[place], lines[other] = lines[other], lines[place]
            else:
                lines[place:place] = lines[place : place + 9]
        case = _case(
            "\n".join(lines), rng.choice(("plain", "plain", "gzip", "zip", "utf-16", "latin-1", "crlf"))
        )
        if rng.random() < 0.7:
            return case
        return Case({FILE: mutate(case.files[FILE], rng)}, exact=not case.files[FILE].startswith(b"PK"))

    def read(self, folder: Path) -> Any:
        """Users with their play and text."""
        content = shakespeare.load_upstream(folder / FILE)
        check_content(content)
        return items_of(content)

    def oracle(self, folder: Path) -> Any:
        """As :meth:`read`."""
        raw = (folder / FILE).read_bytes()
        return slow_etext(unzipped(folder / FILE, ".txt") if raw.startswith(b"PK") else _unpacked(raw))


_SAMPLE_HEAD = (
    "line 1\nCONTENTS\nby William Shakespeare\n\n\n\n\nA PLAY OF TESTS\n\n\nby William Shakespeare\n"
)


@functools.cache
def sample(kind: str) -> str:
    """A small text with every oddity, the one that the embedded data set writes, or parts of the real one."""
    if kind == "real" and (path := real_file("shakespeare_etext100_1994.txt.gz")) is not None:
        return _excerpt(gzip.decompress(path.read_bytes()).decode("latin-1").replace("\r\n", "\n"))
    if kind == "small":
        return etext(speeches=4)
    with tempfile.TemporaryDirectory() as folder:
        return generate("shakespeare", Path(folder), 3, 60, 0)[0].read_text()


def _excerpt(text: str) -> str:
    """Two plays' beginnings, one of them the Comedy of Errors, behind the contents."""
    lines = text.split("\n")
    authors = [number for number, line in enumerate(lines) if AUTHOR in line]
    comedy = next(n for n in authors if "THE COMEDY OF ERRORS" in (line.strip() for line in lines[n - 7 : n]))
    return "\n".join(
        lines[: authors[0] + 3] + lines[authors[1] - 8 : authors[1] + 150] + lines[comedy - 8 : comedy + 250]
    )


def _case(text: str, packing: str, valid: bool = False) -> Case:
    raw = text.encode("utf-8", "replace")
    if packing == "gzip":
        raw = gzip.compress(raw, mtime=0)
    elif packing == "zip":
        raw = zipped({"100.txt": raw})
    elif packing == "utf-16":
        raw = text.encode("utf-16", "replace")
    elif packing == "latin-1":
        raw = text.encode("latin-1", "replace")
    elif packing == "crlf":
        raw = raw.replace(b"\n", b"\r\n")
    elif packing == "bom":
        raw = b"\xef\xbb\xbf" + raw
    return Case({FILE: raw}, valid)


# --- the slow reader ----------------------------------------------------------------------------------------


def _unpacked(raw: bytes) -> bytes:
    try:
        if raw[:2] == b"\x1f\x8b":
            return gzip.decompress(raw)
    except Exception as problem:
        raise Invalid(f"packing: {problem}") from None
    return raw


def slow_etext(raw: bytes) -> dict[str, tuple[str, str]]:
    """Users of the e-text by LEAF's rules, without a regular expression."""
    if 0 in raw or not raw.strip() or raw[:1024].lstrip(b"\xef\xbb\xbf \r\n\t").lower().startswith(_PAGES):
        raise Invalid("no text")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    users: dict[str, tuple[str, list[str]]] = {}
    for title, speakers in _plays(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[1:]):
        if len(speakers) < 2:
            continue
        for name, spoken in speakers.items():
            if len(spoken) > 2:
                users.setdefault(_identifier(f"{title}_{name}"), (title, []))[1].extend(spoken)
    found = {user: (title, _joined(spoken)) for user, (title, spoken) in users.items()}
    found = {user: (title, text) for user, (title, text) in found.items() if len(text) > 80}
    _check(found)
    return found


_PAGES = (b"<!doctype", b"<html", b"<?xml")


def _plays(lines: list[str]) -> list[tuple[str, dict[str, list[str]]]]:
    authors = [number for number, line in enumerate(lines) if AUTHOR in line]
    start = max(0, authors[1] - 5) if len(authors) > 1 else 0
    plays: list[tuple[str, dict[str, list[str]]]] = []
    speaker = None
    for number in range(start, min(len(lines), start + 124_196)):
        line = lines[number]
        if AUTHOR in line:
            plays.append((_title(lines, number), {}))
            speaker = None
        elif plays:
            speaker = _take(*plays[-1], speaker, line)
    return plays


def _title(lines: list[str], number: int) -> str:
    for above in (2, 3, 4, 5, 6, 7):
        if number - above >= 0 and lines[number - above].strip():
            return lines[number - above].strip()
    raise Invalid("no title")


def _take(title: str, speakers: dict[str, list[str]], speaker: str | None, line: str) -> str | None:
    """Adds the line to who speaks it, and returns who speaks on."""
    flush_left = title == "THE COMEDY OF ERRORS"
    begun = _speech(line, 0 if flush_left else 2)
    if begun is not None:
        name = begun[0].upper()
        if flush_left and name.startswith("ACT "):
            return None
        speakers.setdefault(name, []).append(begun[1])
        return name
    if speaker is None:
        return None
    if flush_left:
        if line[:1] == "<":
            return None
        speakers[speaker].append(line)
    elif line[:4] == "    ":
        speakers[speaker].append(line[4:])
    return speaker


def _speech(line: str, blanks: int) -> tuple[str, str] | None:
    """(name, text) of a line that begins a speech: blanks, a name of letters and blanks, a period, a blank."""
    if line[:blanks] != " " * blanks or not _letter(line[blanks : blanks + 1]):
        return None
    end = blanks
    while _letter(line[end : end + 1]) or line[end : end + 1] == " ":
        end += 1
    return (line[blanks:end], line[end + 2 :]) if line[end : end + 2] == ". " else None


def _letter(symbol: str) -> bool:
    return len(symbol) == 1 and symbol.isascii() and symbol.isalpha()


def _identifier(name: str) -> str:
    made = ""
    for symbol in name:
        if symbol.isalnum() or symbol in "_ ":
            made += "_" if symbol == " " else symbol
        elif not made.endswith("\0"):
            made += "\0"  # a run of other symbols is one underscore
    return made.replace("\0", "_")


def _joined(spoken: list[str]) -> str:
    text = "".join(line + " " for line in spoken)
    while "  " in text:
        text = text.replace("  ", " ")
    return text


def _check(found: dict[str, tuple[str, str]]) -> None:
    if not found or not all(symbol in VOCABULARY for _, text in found.values() for symbol in text):
        raise Invalid("no user, or another symbol")
    names = [*found, *{title for title, _ in found.values()}]
    for name in names:
        if len(name) > 200 or "/" in name or "\\" in name or not name.isprintable() or name in (".", ".."):
            raise Invalid("name")
    for group in (list(found), {title for title, _ in found.values()}):
        if len({unicodedata.normalize("NFKC", name).strip() for name in group}) != len(group):
            raise Invalid("look-alikes")
