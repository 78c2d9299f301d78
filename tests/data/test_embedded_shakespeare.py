"""The embedded plays, read by a parser of the test's own and by the project's."""

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


def texts_of(text: str) -> dict[str, str]:
    """The text of each user, by the project's reader."""
    content = shakespeare.parse(text)
    stream = "".join(shakespeare.VOCABULARY[k] for k in content.features)
    spans = zip(content.subject_ids, content.first_items.tolist(), content.items.tolist(), strict=True)
    return {user: stream[first : first + items + 80] for user, first, items in spans}


def test_plays_and_characters(text):
    made, _ = shakespeare.split_plays(text)
    titles = [play.title for play in made]
    assert len(titles) == len(set(titles)) == 3
    assert titles.count(ODD_PLAY) == 1 and titles[0] != ODD_PLAY
    content = shakespeare.parse(text)
    assert len(content.subject_ids) == SUBJECTS and Counter(content.groups) == dict.fromkeys(titles, 8)
    assert all("BIT PART" in play.lines for play in made), "of one line, whom LEAF's rules drop"


@settings(max_examples=25, deadline=None)
@given(subjects=st.integers(2, 70), items=st.integers(2, 400), seed=st.integers(0, 2**40))
def test_as_many_users_as_asked_for(tmp_path_factory, subjects, items, seed):
    text = text_of(tmp_path_factory.mktemp("some"), subjects, items, seed)
    ids = shakespeare.parse(text).subject_ids
    assert len(ids) == len(set(ids)) == subjects


def test_sizes_follow_the_law(text):
    sizes = role_sizes(60, 3000, 4)
    assert abs(np.mean(sizes) - 3000) < 10
    assert 1.1 < np.std(sizes) / np.mean(sizes) < 1.8, "the real text: 1.66"
    assert role_sizes(60, 3000, 4) == sizes != role_sizes(60, 3000, 5)
    windows = shakespeare.parse(text).items.tolist()
    assert abs(np.mean(windows) - ITEMS) < 0.08 * ITEMS
    asked = sorted(role_sizes(SUBJECTS, ITEMS, SEED))
    assert all(abs(got - want) < 0.05 * want + 150 for got, want in zip(sorted(windows), asked, strict=True))


def test_the_layouts_oddities_are_there(text):
    ordinary = odd = text.split("\n")
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
    spoken = sorted(texts_of(text).values(), key=len)[-12:]
    train, test = ([s[: len(s) * 4 // 5] for s in spoken], [s[len(s) * 4 // 5 :] for s in spoken])
    unigram, trigram = (next_symbol_accuracy(train, test, order) for order in (0, 3))
    assert 0.1 < unigram < 0.25
    assert 0.55 < trigram < 0.9
    size = min(map(len, train))
    own = np.mean([next_symbol_accuracy([a[:size]], [b], 3) for a, b in zip(train, test, strict=True)])
    others = np.mean([next_symbol_accuracy([a[:size]], [test[k - 1]], 3) for k, a in enumerate(train)])
    assert own > others + 0.42, "0.59 and 0.10; with one order of preference for all: 0.61 and 0.22"


def test_a_text_longer_than_the_rules_read_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"items_per_subject.*small enough.*124000 lines"):
        generate("shakespeare", tmp_path, 3, 3_000_000, 0)
    monkeypatch.setattr(plays, "_LAST_LINE", 500)  # below the lines written, above the first estimate
    with pytest.raises(ConfigError, match=r"small enough for 6 subjects in 500 lines"):
        generate("shakespeare", tmp_path, 6, 5000, 0)
    assert list(tmp_path.iterdir()) == []
