"""Names of people and plays in a source: safe in tables, logs and messages, and distinct.

A name never becomes part of a path. Look-alike names are refused, because one person under two names would be two
subjects, and the guarantee would not be that of the person.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from subjectdp.errors import DataError, in_words

LONGEST_NAME = 200
"""Characters of the longest name."""

_ALLOWED = f"1 to {LONGEST_NAME} printable characters without path separators"


def check_name(name: str, kind: str, where: str) -> None:
    """DataError unless ``name`` is short, visible, printable (no control, format or surrogate character) and no path.

    Messages call it ``kind`` and say ``where`` it was found.
    """
    good = 0 < len(name) <= LONGEST_NAME and name.isprintable() and name.strip() != ""
    if not good or "/" in name or "\\" in name or name in (".", ".."):
        raise DataError(f"{where}: expected {kind} of {_ALLOWED}, got {in_words(name)}.")


def check_distinct(names: Iterable[str], kind: str, where: str) -> None:
    """DataError if a name is there twice, or two look alike: equal once composed (Unicode NFKC) and stripped."""
    seen: dict[str, str] = {}
    for name in names:
        look = unicodedata.normalize("NFKC", name).strip()
        if look in seen and seen[look] == name:
            raise DataError(f"{where}: {kind} are not unique, {in_words(name)} is there twice.")
        if look in seen:
            raise DataError(
                f"{where}: {kind} {in_words(seen[look])} and {in_words(name)} cannot be told apart."
            )
        seen[look] = name
