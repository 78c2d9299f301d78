"""Labels of runs: the algorithm's, and what must never be missed beside it."""

from __future__ import annotations

_PREDICTED = " [noise of "


def predicted_label(label: str, subjects: int) -> str:
    """The label of an algorithm's runs with the noise of more subjects than they have: it goes with them everywhere."""
    return f"{label}{_PREDICTED}{subjects:,} subjects]"


def algorithm_label(label: str) -> str:
    """The algorithm's own label, without :func:`predicted_label`'s addition."""
    return label.partition(_PREDICTED)[0]
