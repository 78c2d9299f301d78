"""The embedded plays, read by a parser of the test's own and by the project's."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subjectdp.data import shakespeare
from subjectdp.data.embedded import generate, plays
from subjectdp.data.embedded.plays import ODD_PLAY, role_sizes
from subjectdp.data.embedded.speech import third_person
from subjectdp.errors import ConfigError

SUBJECTS, ITEMS, SEED = 24, 2000, 0
SYMBOLS = set("\n !\"&'(),-.0123456789:;>?[]}abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def text_of(folder: Path, subjects: int, items: int, seed: int) -> str:
    (path,) = generate("shakespeare", folder, subjects, items, seed)
    assert path == folder / "100.txt"
    return path.read_text(encoding="ascii")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return text_of(tmp_path_factory.mktemp("embedded"), SUBJECTS, ITEMS, SEED)


def blocks_of(text: str) -> list[tuple[str, list[str]]]:
    """(title, lines) of each play: cut at the author's lines, the first of which heads the verses."""
    lines = text.split("\n")
    marks = [k for k, line in enumerate(lines) if "by William Shakespeare" in line]
    blocks = []
    for start, end in zip(marks[1:], [*marks[2:], len(lines)], strict=True):
        title = next(lines[start - k] for k in range(2, 8) if lines[start - k].strip())
        blocks.append((title, lines[start + 1 : end]))
    return blocks


def speeches_of(title: str, lines: list[str]) -> dict[str, list[str]]:
    """Lines of each character. Written apart from the project's parser, as a scan over prefixes."""
    name_at = 0 if title == ODD_PLAY else 2
    spoken: dict[str, list[str]] = defaultdict(list)
    speaker = None
    for line in lines:
        head, dot, rest = line[name_at:].partition(". ")
        is_name = line[:name_at] == " " * name_at and bool(dot) and re.fullmatch("[A-Za-z][A-Za-z ]*", head)
        if is_name and title == ODD_PLAY and head.upper().startswith("ACT "):
            speaker = None
        elif is_name:
            speaker = head.upper()
            spoken[speaker].append(rest)
        elif title == ODD_PLAY and line.startswith("<"):
            speaker = None
        elif speaker is not None and (title == ODD_PLAY or line.startswith("    ")):
            spoken[speaker].append(line if title == ODD_PLAY else line[4:])
    return spoken


def users_of(text: str) -> dict[tuple[str, str], str]:
    """(play, character) -> text, of the characters with more than two lines and more than 80 symbols."""
    users = {}
    for title, lines in blocks_of(text):
        for name, spoken in speeches_of(title, lines).items():
            joined = re.sub(" {2,}", " ", "".join(line + " " for line in spoken))
            if len(spoken) > 2 and len(joined) > 80:
                users[title, name] = joined
    return users


def test_plays_and_characters(text):
    titles = [title for title, _ in blocks_of(text)]
    assert len(titles) == len(set(titles)) == 3
    assert titles.count(ODD_PLAY) == 1 and titles[0] != ODD_PLAY
    users = users_of(text)
    assert len(users) == SUBJECTS
    assert Counter(title for title, _ in users) == dict.fromkeys(titles, 8)
    dropped = {n for t, lines in blocks_of(text) for n in speeches_of(t, lines) if (t, n) not in users}
    assert dropped == {"BIT PART"}


@settings(max_examples=25, deadline=None)
@given(subjects=st.integers(2, 70), items=st.integers(2, 400), seed=st.integers(0, 2**40))
def test_as_many_users_as_asked_for(tmp_path_factory, subjects, items, seed):
    text = text_of(tmp_path_factory.mktemp("some"), subjects, items, seed)
    users = users_of(text)
    assert len(users) == subjects
    assert set("".join(users.values())) <= SYMBOLS
    content = shakespeare.parse(text)
    assert len(content.subject_ids) == len(set(content.subject_ids)) == subjects


def test_only_symbols_of_the_vocabulary(text):
    assert len(SYMBOLS) == 80
    assert set("".join(users_of(text).values())) <= SYMBOLS
    assert max(len(line) for _, lines in blocks_of(text) for line in lines) <= 80


def test_sizes_follow_the_law(text):
    sizes = role_sizes(60, 3000, 4)
    assert abs(np.mean(sizes) - 3000) < 10
    assert 1.1 < np.std(sizes) / np.mean(sizes) < 1.8, "the real text: 1.66"
    assert role_sizes(60, 3000, 4) == sizes != role_sizes(60, 3000, 5)
    windows = [len(spoken) - 80 for spoken in users_of(text).values()]
    assert abs(np.mean(windows) - ITEMS) < 0.08 * ITEMS
    asked = sorted(role_sizes(SUBJECTS, ITEMS, SEED))
    assert all(abs(got - want) < 0.05 * want + 150 for got, want in zip(sorted(windows), asked, strict=True))


def test_same_arguments_give_the_same_bytes(tmp_path):
    first, same, other = (text_of(tmp_path / name, 6, 300, seed) for name, seed in (("a", 3), ("b", 3), ("c", 4)))
    assert first == same != other


def test_the_layouts_oddities_are_there(text):
    ordinary = [line for title, lines in blocks_of(text) if title != ODD_PLAY for line in lines]
    odd = [line for title, lines in blocks_of(text) if title == ODD_PLAY for line in lines]
    assert any(line.startswith("Enter ") for line in ordinary)
    assert any(line.startswith("  Enter ") for line in ordinary)
    assert any(line.startswith(" " * 20) for line in ordinary), "directions that count as speech"
    assert any(re.match(r"  [A-Z][a-z]+\. ", line) for line in ordinary), "names in mixed case"
    assert any(line.endswith("  ") for line in ordinary), "stray blanks"
    assert any(line.startswith("<Exit") for line in odd)
    distances = {
        next(k for k in range(2, 8) if above[-k - 1].strip())
        for above in (part.split("\n") for part in text.split("\nby William Shakespeare")[:-1])
        for above in [[*above, ""]]
    }
    assert len(distances) > 1, "titles stand at several distances from the author's line"


def next_symbol_accuracy(train: list[str], test: list[str], order: int) -> float:
    """Accuracy of the most frequent symbol after the last ``order`` ones, in ``train``."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for part in train:
        for k in range(order, len(part)):
            seen[part[k - order : k]][part[k]] += 1
    best = {context: counts.most_common(1)[0][0] for context, counts in seen.items()}
    hits = [best.get(part[k - order : k]) == part[k] for part in test for k in range(order, len(part))]
    return float(np.mean(hits))


def test_there_is_something_to_learn_and_each_speaks_otherwise(text):
    spoken = sorted(users_of(text).values(), key=len)[-12:]
    train, test = ([s[: len(s) * 4 // 5] for s in spoken], [s[len(s) * 4 // 5 :] for s in spoken])
    unigram, trigram = (next_symbol_accuracy(train, test, order) for order in (0, 3))
    assert 0.1 < unigram < 0.25
    assert 0.55 < trigram < 0.9
    size = min(map(len, train))
    own = np.mean([next_symbol_accuracy([a[:size]], [b], 3) for a, b in zip(train, test, strict=True)])
    others = np.mean([next_symbol_accuracy([a[:size]], [test[k - 1]], 3) for k, a in enumerate(train)])
    assert own > others + 0.42, "0.59 and 0.10; with one order of preference for all: 0.61 and 0.22"


def test_the_projects_own_preparation_agrees(text):
    content = shakespeare.parse(text)
    users = users_of(text)
    assert len(set(content.groups)) == 3
    assert content.items.tolist() == [len(spoken) - 80 for spoken in users.values()]
    assert content.groups == [play for play, _ in users]
    assert content.subject_ids == [re.sub(r"\W+", "_", f"{play} {name}") for play, name in users]
    stream = "".join(shakespeare.VOCABULARY[k] for k in content.features)
    assert stream == "".join(users.values())


def test_a_text_longer_than_the_rules_read_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"items_per_subject.*small enough.*124000 lines"):
        generate("shakespeare", tmp_path, 3, 3_000_000, 0)
    monkeypatch.setattr(plays, "_LAST_LINE", 500)  # below the lines written, above the first estimate
    with pytest.raises(ConfigError, match=r"small enough for 6 subjects in 500 lines"):
        generate("shakespeare", tmp_path, 6, 5000, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("verb", "third"), [("carry", "carries"), ("wash", "washes"), ("keep", "keeps"), ("bless", "blesses")]
)
def test_third_person(verb, third):
    assert third_person(verb) == third
