"""Manners of speaking: each character of the embedded plays talks in a way of its own.

A character keeps a few favourite nouns, verbs, adjectives and sentence patterns, an opening and a closing
phrase, invented words built from its own syllables, and a quirk of pronunciation or punctuation. All share
one language, so a model learns from every character, and each pulls it another way: the data are not
identically distributed.
"""

import re
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TypeVar

import numpy as np

_BUFFER = 4096
_T = TypeVar("_T")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(" ".join(phrase.split()) for phrase in text.split("|"))


NOUNS = _words("""
    lantern ladder river orchard kettle window bridge harbour candle garden letter mirror ribbon basket anchor
    barrel feather hammer pillow saddle thimble whistle meadow chimney button cellar mountain stranger neighbour
    teacher baker miller sailor farmer painter tailor uncle sister cousin widow brother master evening morning
    winter summer harvest thunder shadow silence market money bread butter honey apple onion pepper copper silver
    story riddle promise secret answer question quarrel journey supper shoulder finger pocket corner table door
    clock wheel stone horse goose spider herring sparrow donkey kitten weather moonlight sunrise snow rain
""")

ADJECTIVES = _words("""
    little broken golden quiet patient crooked bitter gentle hollow clever rusty narrow foolish honest hungry lonely
    merry pale proud restless sleepy sudden tender weary wooden yellow ancient borrowed careful distant empty
    faithful heavy idle jealous kindly muddy nimble painted ragged salty silent stubborn thirsty tidy unlucky velvet
    windy wicked young
""")

VERBS = _words("""
    carry follow forget mend steal sell bury borrow answer watch trust paint count measure scatter gather polish
    hide leave keep break open burn wash sharpen bless swallow remember lose find weigh chase frighten praise
""")
"""Transitive verbs, bare form; the third person adds s or es."""

ADVERBS = _words("""
    always never slowly again tomorrow tonight seldom gladly softly badly already twice often somewhere together
    alone indeed perhaps quickly backwards
""")

ADDRESSES = _phrases("""
    my friend | good neighbour | old fellow | dear cousin | captain | madam | your honour | child | gentle people |
    my sweet | master | you rascal | brother | kind stranger | dear heart | young man
""")

OPENERS = _phrases("""
    Listen, | Upon my word, | I tell you, | Well, well, | Look here, | Between ourselves, | Alas, | Ho there, |
    Believe me, | By my boots, | As I was saying, | Hush now, | Good heavens, | To be plain, | Mark this, | Bless my
    whiskers, | Once more, | On the other hand, | Saints and herrings, | If you please,
""")

CLOSERS = _phrases("""
    and that is all | or so they say | as everybody knows | and no mistake | if I may say so | and there it ends |
    like it or not | as my mother said | and so good night | for what it is worth | and who could blame me | until
    the tide turns | but never mind | and the devil take the rest
""")

PATTERNS = _phrases("""
    the {a} {n} {vs} the {n} | I {v} the {n} of the {a} {n} | will you {v} my {n}, {x}? | there is no {n} in {p} so
    {a} as this {n} | I have seen a {a} {n} in {p} | we {v} the {n} and the {n} {d} | do not {v} the {n}, {x} | who
    can {v} a {n} without a {n}? | when the {n} is {a}, I {v} it {d} | my {n} is {a}, my {n} is {a} | they say that
    {p} will {v} the {n} | give me a {n}, a {n} and a {a} {n} | a {n} for you, {x}, and a {n} for me | he {vs} his
    {n} and I {v} mine | what is a {n} to a {a} {n}? | let the {n} {v} itself {d} | she {d} {vs} the {a} {n} of {p}
    | if the {n} {vs} the {n}, then {v} it {d} | no {n}, no {n}, and not a word of {p} | you {d} {v} what the {n}
    {vs} | I would rather {v} a {n} than {v} the {n} | the {n} of {p} is {a} and {a} | come to {p}, {x}, and {v} the
    {n} | all my {n} was {a} before the {n} came
""")
"""Sentence patterns: n noun, a adjective, v verb (vs: third person), d adverb, x address, p own word."""

NAMES = _phrases("""
    ROLLO | BETTINA | OLD GRIM | TAMSIN | PERRICK | DUCHESS | FIRST BAKER | SECOND BAKER | ORLAND | MILLICENT | HOB
    | QUENBY | CAPTAIN | WIDOW TARN | FENNIMORE | ISOLT | JACKDAW | KEEPER | LADY VANE | MORRIS | NELL | OSWIN |
    PIPKIN | RAFE | SYBELLA | TOBIAS | URSULINE | VICAR | WINNOW | YOUNG GRIM | ZACHARY | APOTHECARY | BARNABY |
    CLEMENCE | DOGSBODY | ERASMA | FERRYMAN | GODWIN | HESTER | INNKEEPER | JOSSE | KATRIN | LUTEMAKER | MARGERY |
    NOTARY | OTTOLINE | PASTRYCOOK | RUFUS | SEXTON | THISTLE
""")

PLAY_SUBJECTS = _phrases("""
    CLOCKMAKER | HERRING SELLER | LAMPLIGHTER | FALSE MAYOR | SECOND WEDDING | DROWNED BELL | KITE THIEVES | WINTER
    FAIR | LOST UMBRELLA
""")

PLAY_PLACES = _phrases("VELLANORE | DUNWICK SANDS | ST OBBLE | THE SEVEN WEIRS")

ONSETS = _words("b c d f g h j k l m n p q r s t v w z br dr gl kr pl sk st th tr")

VOWELS = _words("a e i o u ae ou ee")

CODAS = ("", *_words("n l rk st m ck ss"))
"""Beginnings, middles and ends of the syllables of invented words."""


class Dice:
    """Uniform numbers of one generator, drawn in blocks (a single draw of numpy's costs far more)."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator, self._block = generator, list[float]()

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
    known = {"n": (NOUNS, 1.1), "a": (ADJECTIVES, 1.2), "v": (VERBS, 1.2), "d": (ADVERBS, 1.4), "x": (ADDRESSES, 2.0)}
    slots = {slot: Favourites(words, dice, steepness) for slot, (words, steepness) in known.items()}
    slots["p"] = Favourites(_invent_words(dice, 5), dice, 1.0)
    return Manner(
        patterns=Favourites(PATTERNS, dice, 1.3),
        slots=slots,
        opener=OPENERS[dice.index(len(OPENERS))],
        closer=CLOSERS[dice.index(len(CLOSERS))],
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
    onsets = dice.shuffled(ONSETS)[:4]
    vowels = dice.shuffled(VOWELS)[:2]
    codas = dice.shuffled(CODAS)[:2]
    names: list[str] = []
    while len(names) < count:
        syllables = [onsets[dice.index(4)] + vowels[dice.index(2)] for _ in range(2 + dice.index(2))]
        name = ("".join(syllables) + codas[dice.index(2)]).capitalize()
        if name not in names:
            names.append(name)
    return names


_ENDS = (".", ".", ".", ".", "!", "!", ";", "...")


_QUIRKS: tuple[Callable[[str], str], ...] = (
    *(str, str, str),
    partial(re.sub, r"s(?=[aeiou])", "th"),  # a lisp
    partial(re.sub, r"\bth(?=[aeiou])", "d"),  # dis and dat
    partial(re.sub, r"(?<=[a-z])ing\b", "in'"),
    partial(re.sub, r"\bh(?=[aeiou])", "'"),  # drops the h
    partial(re.sub, r"\bw(?=[aeiou])", "v"),
    partial(re.sub, r"\band\b", "&"),
    partial(re.sub, r"\bis\b", "be"),
    partial(re.sub, r", ", " - "),
    partial(re.sub, r"^(.)", r"\1-\1"),  # a stammer
    str.upper,  # shouts
)
