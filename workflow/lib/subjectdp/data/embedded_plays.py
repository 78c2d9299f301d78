"""Synthetic Shakespeare: plays of invented text in the layout of the 1994 e-text, for LEAF's parsing rules.

The file has what those rules need and must cope with: verses to skip, titles two to seven lines above the author's
line, continuations, stage directions in three shapes, names in mixed case, bit parts of one line (dropped), and one
play in the layout that LEAF treats apart. The author's line and that play's title are real; all else is invented.

Each character talks in a manner of its own. All share one language, so a model learns from every character, and each
pulls it another way: the data are not identically distributed.
"""

from __future__ import annotations

import re
import textwrap
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import exp
from pathlib import Path
from statistics import NormalDist
from string import ascii_uppercase
from typing import TypeVar

import numpy as np

from subjectdp.data.content import WINDOW
from subjectdp.errors import expected
from subjectdp.io.atomic import write_text
from subjectdp.noise.keys import Purpose, numpy_generator

ETEXT = "100.txt"
AUTHOR_LINE = "by William Shakespeare"
ODD_PLAY = "THE COMEDY OF ERRORS"  # whose names start in the first column
_CHARACTERS_A_PLAY = 8
_MOST_PLAYS = 36
_SIZE_SPREAD = 1.1  # log-normal sigma of the characters' sizes; std/mean about 1.4, the real text's is 1.66
_LINE_WIDTH = 66
_ACTS = ("I", "II", "III", "IV", "V")
_LAST_LINE = 124_000  # LEAF stops at line 124,195, where the real plays end
_NOTICE = (
    "<<THIS IS A SYNTHETIC TEXT FOR TESTS AND DEMONSTRATIONS. ITS WORDS WERE",
    "DRAWN AT RANDOM FROM INVENTED LISTS; NO LINE OF IT IS BY THE AUTHOR",
    "WHOSE NAME THE FILE FORMAT ASKS FOR.>>",
)
_BUFFER = 4096  # numbers drawn at a time
_T = TypeVar("_T")


@dataclass(frozen=True)
class Role:
    """A speaking character: its name, its manner and its speeches (each a list of sentences)."""

    name: str
    manner: Manner
    speeches: list[list[str]]


def write_files(folder: Path, subjects: int, items_per_subject: int, seed: int) -> list[Path]:
    """Writes 100.txt with ``subjects`` characters of about ``items_per_subject`` windows each on average.

    Sizes are skewed as in the real text. A character's words depend on (seed, character, size) only. Raises ConfigError
    for a text that is longer than LEAF's rules read.
    """
    _check_length(subjects * items_per_subject // _LINE_WIDTH, subjects, items_per_subject)
    sizes = role_sizes(subjects, items_per_subject, seed)
    lines = _preamble(seed)
    first, plays = 0, max(1, min(_MOST_PLAYS, subjects // _CHARACTERS_A_PLAY))
    for play in range(plays):
        cast = subjects // plays + (play < subjects % plays)
        names = enumerate(_cast_names(seed, play, cast), start=first)
        roles = [_draw_role(seed, index, name, sizes[index]) for index, name in names]
        odd = play == 1  # the first play follows the verses, as in the e-text, and must be an ordinary one
        title = ODD_PLAY if odd else _title(seed, play)
        dice = Dice(numpy_generator(seed, Purpose.EMBEDDED_DATA, "shakespeare", "play", play))
        lines += _play_lines(title, play, roles, dice, odd)
        first += cast
    _check_length(len(lines), subjects, items_per_subject)
    target = folder / ETEXT
    write_text(target, "\n".join([*lines, "End of this synthetic text.", ""]))
    return [target]


def _check_length(lines: int, subjects: int, items_per_subject: int) -> None:
    """Refuses a text of which LEAF's rules would silently leave out the end."""
    if lines > _LAST_LINE:
        allowed = f"small enough for {subjects} subjects in {_LAST_LINE} lines (LEAF's rules read no further)"
        raise expected("data.embedded.items_per_subject", items_per_subject, allowed)


def role_sizes(subjects: int, items_per_subject: int, seed: int) -> list[int]:
    """Windows aimed at for each character: log-normal quantiles of the given mean, in random order."""
    law = NormalDist(0.0, _SIZE_SPREAD)
    raw = [exp(law.inv_cdf((k + 0.5) / subjects)) for k in range(subjects)]
    scale = items_per_subject * subjects / sum(raw)
    dice = Dice(numpy_generator(seed, Purpose.EMBEDDED_DATA, "shakespeare", "sizes"))
    return dice.shuffled([max(1, round(scale * value)) for value in raw])


def _cast_names(seed: int, play: int, count: int) -> list[str]:
    dice = Dice(numpy_generator(seed, Purpose.EMBEDDED_DATA, "shakespeare", "cast", play))
    names = dice.shuffled(NAMES)
    suffixes = ["", *(f" {letter}" for letter in ascii_uppercase)]  # a text with more is longer than LEAF's rules read
    return [name + suffix for suffix in suffixes for name in names][:count]


def _title(seed: int, play: int) -> str:
    """The play's title: every play of a file has its own (there are 36 and at most 36 plays)."""
    titles = [f"THE {subject} OF {place}" for subject in PLAY_SUBJECTS for place in PLAY_PLACES]
    dice = Dice(numpy_generator(seed, Purpose.EMBEDDED_DATA, "shakespeare", "titles"))
    return dice.shuffled(titles)[play]


def _draw_role(seed: int, index: int, name: str, windows: int) -> Role:
    """Draws a character who speaks at least three times and long enough for about ``windows`` windows."""
    dice = Dice(numpy_generator(seed, Purpose.EMBEDDED_DATA, "shakespeare", "role", index))
    manner = draw_manner(dice)
    speeches: list[list[str]] = []
    length = 0
    while length < windows + WINDOW or len(speeches) < 3:
        speech = []
        for _ in range(1 + int(5 * dice.roll() ** 2)):
            speech.append(manner.sentence(dice))
            length += len(speech[-1]) + 1
            if length >= windows + WINDOW:
                break
        speeches.append(speech)
    return Role(name=name, manner=manner, speeches=speeches)


def _preamble(seed: int) -> list[str]:
    """What stands before the first play: notes and a section of verses, which LEAF skips."""
    dice = Dice(numpy_generator(seed, Purpose.EMBEDDED_DATA, "shakespeare", "verses"))
    manner = draw_manner(dice)
    verses = [f"  {manner.sentence(dice)}" for _ in range(14)]
    notes = ["This is a synthetic text in the layout of a 1994 electronic text.", "", *_NOTICE, "", "", "1609", ""]
    return [*notes, "THE VERSES", "", AUTHOR_LINE, "", "", *verses, "", "THE END", "", "", *_NOTICE, "", "", "", ""]


def _play_lines(title: str, play: int, roles: list[Role], dice: Dice, odd: bool) -> list[str]:
    """A whole play: heading, cast, five acts of scenes, THE END."""
    blank_lines = 1 + play % 4 if play == 0 else 1 + play % 6  # the title stands 2..7 lines above the author's line
    lines = [str(1590 + play), "", title, *[""] * blank_lines, AUTHOR_LINE, "", "", "DRAMATIS PERSONAE", ""]
    indent = "" if odd else "  "
    lines += [f"{indent}{role.name}, of {title.split(' OF ')[-1].title()}" for role in roles]
    lines += ["", "", *_NOTICE, "", ""]
    for number, scene in enumerate(_scenes(roles, dice)):
        act, place = number // 4 % 5 + 1, PLAY_PLACES[dice.index(len(PLAY_PLACES))].title()
        lines += [f"ACT {_ACTS[act - 1]}. SCENE {number % 4 + 1}.", f"A street in {place}", ""]
        lines += _scene_lines(roles, scene, dice, odd, bit_part=number == 0)
    return [*lines, *(["<Exeunt"] if odd else []), "THE END", "", "", *_NOTICE, "", "", "", ""]


def _scenes(roles: list[Role], dice: Dice) -> list[list[tuple[int, int]]]:
    """Scenes as lists of (role, speech); a role speaks the more often the more it still has to say."""
    left = [len(role.speeches) for role in roles]
    total = sum(left)
    length = max(6, -(-total // 20))
    order: list[tuple[int, int]] = []
    while len(order) < total:
        at = dice.index(total - len(order))
        role = 0
        while at >= left[role]:
            at -= left[role]
            role += 1
        order.append((role, len(roles[role].speeches) - left[role]))
        left[role] -= 1
    return [order[start : start + length] for start in range(0, total, length)]


def _scene_lines(roles: list[Role], scene: list[tuple[int, int]], dice: Dice, odd: bool, bit_part: bool) -> list[str]:
    """One scene; ``bit_part`` puts in the play's one speaker of a single line, whom LEAF's rules drop."""
    names = sorted({roles[role].name for role, _ in scene})
    lines = [f"Enter {' and '.join(names[:3])}", ""]
    for number, (role, speech) in enumerate(scene):
        lines += _speech_lines(roles[role], roles[role].speeches[speech], dice, odd)
        lines += _direction(roles[role].name, dice, odd)
        if bit_part and number == 0:
            lines += [f"{'' if odd else '  '}BIT PART. Your pardon, they are waiting.", *["<Exit BIT PART"] * odd]
    if odd:
        return [*lines, "<Exeunt", ""]
    lines[-1] += "" if dice.roll() < 0.5 else " " * max(4, _LINE_WIDTH - len(lines[-1])) + "Exeunt"
    return [*lines, "", ""]


def _speech_lines(role: Role, speech: list[str], dice: Dice, odd: bool) -> list[str]:
    """A speech: name and first line, then continuations; verse starts a new line with each sentence."""
    name = role.name.title() if dice.roll() < 0.03 else role.name
    paragraphs = speech if role.manner.verse else [" ".join(speech)]
    lead, indent = ("", "  ") if odd else ("  ", "    ")
    text = [line for p in paragraphs for line in textwrap.wrap(p, _LINE_WIDTH - len(name), break_on_hyphens=False)]
    lines = [f"{lead}{name}. {text[0]}", *(indent + line for line in text[1:])]
    if dice.roll() < 0.02:
        lines[-1] += "  "  # the e-text has stray blanks at the ends of lines
    return lines


def _direction(name: str, dice: Dice, odd: bool) -> list[str]:
    """Now and then: in two columns it is discarded, far right it is speech, in the odd layout it ends the speech."""
    fate = dice.roll()
    if odd:
        return [f"<Exit {name}"] if fate < 0.05 else []
    if fate < 0.03:
        return ["", f"  Enter a crowd; {name} turns away", ""]
    return [" " * 48 + "[Aside]"] if fate < 0.05 else []


# --- manners of speaking ------------------------------------------------------------------------------------


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
        keyed = [(self.roll(), position) for position in range(len(values))]
        return [values[position] for _, position in sorted(keyed)]


class Favourites:
    """A choice among values in a personal order of preference: the k-th has weight 1 / k**steepness."""

    def __init__(self, values: Sequence[str], dice: Dice, steepness: float) -> None:
        self._values = dice.shuffled(values)
        weights = [1.0 / (rank + 1) ** steepness for rank in range(len(values))]
        self._bounds = list(accumulate(weights))

    def draw(self, dice: Dice) -> str:
        return self._values[bisect(self._bounds[:-1], dice.roll() * self._bounds[-1])]


@dataclass(frozen=True)
class Manner:
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

        def word(match: re.Match[str]) -> str:
            slot = match.group(1)
            return third_person(self.slots["v"].draw(dice)) if slot == "vs" else self.slots[slot].draw(dice)

        text = re.sub(r"\ba (?=[aeiou])", "an ", _SLOT.sub(word, self.patterns.draw(dice)))
        question = text.endswith("?")
        if dice.roll() < self.opening_rate:
            text = f"{self.opener} {text}"
        if not question and dice.roll() < self.closing_rate:
            text = f"{text}, {self.closer}"
        text = self.quirk(text[0].upper() + text[1:])
        return text if question else text + self.end


def draw_manner(dice: Dice) -> Manner:
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
        end=(".", ".", ".", ".", "!", "!", ";", "...")[dice.index(8)],
        verse=dice.roll() < 0.4,
        quirk=_QUIRKS[dice.index(len(_QUIRKS))],
    )


def third_person(verb: str) -> str:
    """The third person singular of a verb of the list: carry, carries; wash, washes; keep, keeps."""
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "sh", "ch", "x", "z")) else "s")


_SLOT = re.compile(r"\{(vs|[navdxp])\}")


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


# --- the words ----------------------------------------------------------------------------------------------


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
CODAS = ("", *_words("n l rk st m ck ss"))  # beginnings, middles and ends of the syllables of invented words
