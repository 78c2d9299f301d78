"""Synthetic Shakespeare: plays of invented text in the layout of the 1994 e-text, for LEAF's parsing rules.

The file has what those rules need and must cope with: verses to skip, titles two to seven lines above the author's
line, continuations, stage directions in three shapes, names in mixed case, bit parts of one line (dropped), and one
play in the layout that LEAF treats apart. The author's line and that play's title are real; all else is invented.
"""

import textwrap
from dataclasses import dataclass
from math import exp
from pathlib import Path
from statistics import NormalDist

from subjectdp.data.embedded.speech import NAMES, PLAY_PLACES, PLAY_SUBJECTS, Dice, Manner, draw_manner
from subjectdp.errors import expected
from subjectdp.io.atomic import write_text
from subjectdp.noise.keys import Purpose, numpy_generator

ETEXT = "100.txt"
AUTHOR_LINE = "by William Shakespeare"
ODD_PLAY = "THE COMEDY OF ERRORS"
"""The title of the play whose names start in the first column."""

WINDOW = 80
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
    casts = _deal_casts(subjects)
    lines = _preamble(seed)
    first = 0
    for play, cast in enumerate(casts):
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


def _deal_casts(subjects: int) -> list[int]:
    """Numbers of characters of each play, as even as can be."""
    plays = max(1, min(_MOST_PLAYS, subjects // _CHARACTERS_A_PLAY))
    return [subjects // plays + (play < subjects % plays) for play in range(plays)]


def _cast_names(seed: int, play: int, count: int) -> list[str]:
    dice = Dice(numpy_generator(seed, Purpose.EMBEDDED_DATA, "shakespeare", "cast", play))
    names = dice.shuffled(NAMES)
    rounds = -(-count // len(names))
    return [name + suffix for suffix in ["", *(f" {_letters(k)}" for k in range(1, rounds))] for name in names][:count]


def _letters(number: int) -> str:
    """A name for the number of letters alone, since a speaker's name holds no digits: A, B, ..., Z, AA ..."""
    text = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


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
    """Now and then a stage direction: one in two columns is discarded, one far to the right counts as speech; in the
    odd layout one that begins with < ends the speech."""
    fate = dice.roll()
    if odd:
        return [f"<Exit {name}"] if fate < 0.05 else []
    if fate < 0.03:
        return ["", f"  Enter a crowd; {name} turns away", ""]
    return [" " * 48 + "[Aside]"] if fate < 0.05 else []
