"""Manners of speaking: each character of the embedded plays talks in a way of its own.

A character keeps a few favourite nouns, verbs, adjectives and sentence patterns, an opening and a closing
phrase, invented words built from its own syllables, and a quirk of pronunciation or punctuation. All share
one language, so a model learns from every character, and each pulls it another way: the data are not
identically distributed.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TypeVar

import numpy as np

from subjectdp.data.embedded import words

_BUFFER = 4096
_T = TypeVar("_T")


class Dice:
    """Uniform numbers of one generator, drawn in blocks (a single draw of numpy's costs far more)."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._block: list[float] = []

    def roll(self) -> float:
        """A number in [0, 1)."""
        if not self._block:
            self._block = self._generator.random(_BUFFER).tolist()
        return self._block.pop()

    def index(self, count: int) -> int:
        """An index in 0..count-1, all equally likely."""
        return min(int(self.roll() * count), count - 1)

    def shuffled(self, values: Sequence[_T]) -> list[_T]:
        """The values in a random order."""
        keyed = [(self.roll(), position) for position in range(len(values))]
        return [values[position] for _, position in sorted(keyed)]


class Favourites:
    """A choice among values in a personal order of preference: the k-th has weight 1 / k**steepness."""

    def __init__(self, values: Sequence[str], dice: Dice, steepness: float) -> None:
        self._values = dice.shuffled(values)
        weights = [1.0 / (rank + 1) ** steepness for rank in range(len(values))]
        self._bounds = list(accumulate(weights))

    def draw(self, dice: Dice) -> str:
        """One of the values."""
        return self._values[bisect(self._bounds[:-1], dice.roll() * self._bounds[-1])]


@dataclass(frozen=True)
class Manner:
    """How one character speaks."""

    patterns: Favourites
    slots: dict[str, Favourites]
    opener: str
    closer: str
    opening_rate: float
    closing_rate: float
    end: str
    verse: bool
    quirk: Callable[[str], str]

    def sentence(self, dice: Dice) -> str:
        """One sentence, capitalised and ended, on one line."""
        text = _fill(self.patterns.draw(dice), self.slots, dice)
        question = text.endswith("?")
        if dice.roll() < self.opening_rate:
            text = f"{self.opener} {text}"
        if not question and dice.roll() < self.closing_rate:
            text = f"{text}, {self.closer}"
        text = self.quirk(text[0].upper() + text[1:])
        return text if question else text + self.end


def draw_manner(dice: Dice) -> Manner:
    """Draws a manner of speaking."""
    slots = {
        "n": Favourites(words.NOUNS, dice, 1.1),
        "a": Favourites(words.ADJECTIVES, dice, 1.2),
        "v": Favourites(words.VERBS, dice, 1.2),
        "d": Favourites(words.ADVERBS, dice, 1.4),
        "x": Favourites(words.ADDRESSES, dice, 2.0),
        "p": Favourites(_invent_words(dice, 5), dice, 1.0),
    }
    return Manner(
        patterns=Favourites(words.PATTERNS, dice, 1.3),
        slots=slots,
        opener=words.OPENERS[dice.index(len(words.OPENERS))],
        closer=words.CLOSERS[dice.index(len(words.CLOSERS))],
        opening_rate=0.1 + 0.4 * dice.roll(),
        closing_rate=0.05 + 0.3 * dice.roll(),
        end=_ENDS[dice.index(len(_ENDS))],
        verse=dice.roll() < 0.4,
        quirk=_QUIRKS[dice.index(len(_QUIRKS))],
    )


def third_person(verb: str) -> str:
    """The third person singular of a verb of the list: carry, carries; wash, washes; keep, keeps."""
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "sh", "ch", "x", "z")) else "s")


_SLOT = re.compile(r"\{(vs|[navdxp])\}")


def _fill(pattern: str, slots: dict[str, Favourites], dice: Dice) -> str:
    def word(match: re.Match[str]) -> str:
        slot = match.group(1)
        return third_person(slots["v"].draw(dice)) if slot == "vs" else slots[slot].draw(dice)

    return re.sub(r"\ba (?=[aeiou])", "an ", _SLOT.sub(word, pattern))


def _invent_words(dice: Dice, count: int) -> list[str]:
    """Names built from the character's own few consonants and vowels: they sound alike within a character."""
    onsets = dice.shuffled(words.ONSETS)[:4]
    vowels = dice.shuffled(words.VOWELS)[:2]
    codas = dice.shuffled(words.CODAS)[:2]
    names: list[str] = []
    while len(names) < count:
        syllables = [onsets[dice.index(4)] + vowels[dice.index(2)] for _ in range(2 + dice.index(2))]
        name = ("".join(syllables) + codas[dice.index(2)]).capitalize()
        if name not in names:
            names.append(name)
    return names


_ENDS = (".", ".", ".", ".", "!", "!", ";", "...")


def _plain(text: str) -> str:
    return text


def _swap(pattern: str, replacement: str, text: str) -> str:
    return re.sub(pattern, replacement, text)


def _repeat_first(text: str) -> str:
    """A stammer: I-I, W-Will."""
    return f"{text[0]}-{text}"


_QUIRKS: tuple[Callable[[str], str], ...] = (
    _plain,
    _plain,
    _plain,
    partial(_swap, r"s(?=[aeiou])", "th"),  # a lisp
    partial(_swap, r"\bth(?=[aeiou])", "d"),  # dis and dat
    partial(_swap, r"(?<=[a-z])ing\b", "in'"),
    partial(_swap, r"\bh(?=[aeiou])", "'"),  # drops the h
    partial(_swap, r"\bw(?=[aeiou])", "v"),
    partial(_swap, r"\band\b", "&"),
    partial(_swap, r"\bis\b", "be"),
    partial(_swap, r", ", " - "),
    _repeat_first,
    str.upper,  # shouts
)
