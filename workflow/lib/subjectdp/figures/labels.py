"""Labels of runs: the algorithm's, and what must never be missed beside it."""

from __future__ import annotations

_PREDICTED = " [noise of "


def predicted_label(label: str, subjects: int) -> str:
    """The label of an algorithm's runs with the noise of more subjects than they have: it goes with them everywhere."""
    return f"{label}{_PREDICTED}{subjects:,} subjects]"


def run_label(label: str, predicted_subjects: int | None) -> str:
    """A run's label: the algorithm's, with :func:`predicted_label`'s addition where its noise is predicted."""
    return label if predicted_subjects is None else predicted_label(label, predicted_subjects)


def algorithm_label(label: str) -> str:
    """The algorithm's own label, without :func:`predicted_label`'s addition."""
    return label.partition(_PREDICTED)[0]
