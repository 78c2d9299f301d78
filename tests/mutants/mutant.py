"""A planted bug as data."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """``old``, found exactly once in ``file``, becomes ``new``; each of ``tests`` must notice."""

    name: str  # says what goes wrong
    file: str  # relative to the library's package
    old: str
    new: str
    tests: tuple[str, ...]  # node ids, relative to the folder of the tests


def mutant(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """A mutant with any number of tests."""
    return Mutant(name, file, old, new, tests)
