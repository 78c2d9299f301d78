"""All planted bugs, read from ``bugs.txt``.

The flaws are those that privacy libraries and research code have shipped, and the slips that are easy to make here.
Each is an exact replacement of one text in one file of the library (lines after ``-`` become those after ``+``), and
names the tests, relative to the folder of the tests, each of which must notice it.
"""

from pathlib import Path
from typing import NamedTuple


class Mutant(NamedTuple):
    """``old``, found exactly once in ``file``, becomes ``new``; each of ``tests`` must notice."""

    name: str  # says what goes wrong
    file: str  # relative to the library's package
    old: str
    new: str
    tests: tuple[str, ...]  # node ids


def read_bugs(text: str) -> tuple[Mutant, ...]:
    """The mutants of a text: a name, the file and the tests, lines to replace, lines that replace them."""
    mutants: list[Mutant] = []
    for line in text.splitlines():
        if line.startswith("  "):
            file, *tests = line.split()
            mutants[-1] = mutants[-1]._replace(file=file, tests=tuple(tests))
        elif line.startswith("- "):
            mutants[-1] = mutants[-1]._replace(old=f"{mutants[-1].old}\n{line[2:]}".removeprefix("\n"))
        elif line.startswith("+ "):
            mutants[-1] = mutants[-1]._replace(new=f"{mutants[-1].new}\n{line[2:]}".removeprefix("\n"))
        elif not line.startswith("#"):
            mutants.append(Mutant(line, "", "", "", ()))
    return tuple(mutants)


MUTANTS = read_bugs(Path(__file__).with_name("bugs.txt").read_text(encoding="utf-8"))

QUICK = (  # one of each kind, each killed in about a second: what `make test-long` runs
    "batches of fixed size pose as Poisson batches",
    "all silos draw the same noise",
    "an empty mini-batch is skipped without noise",
    "the noise stands after the division",
    "sensitivity C instead of 2C where mini-batches are clipped",
    "R/√s rounds in sound mode",
    "validation items are trained on",
)
