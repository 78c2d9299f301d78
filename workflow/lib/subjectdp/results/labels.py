"""Display names of runs, data sets and numbers, shared by figures, tables and messages."""

import math
from collections.abc import Iterable

from subjectdp.data.catalogue import DATASETS

_PREDICTED = " [noise of "


def run_label(label: str, predicted_subjects: int | None) -> str:
    """The algorithm's label; marked, in every table and figure, if the noise is that of more subjects."""
    return label if predicted_subjects is None else f"{label}{_PREDICTED}{predicted_subjects:,} subjects]"


def algorithm_label(label: str) -> str:
    """The algorithm's own label, without the mark of :func:`run_label`."""
    return label.partition(_PREDICTED)[0]


def dataset_name(dataset: str) -> str:
    """The display name of a data set: femnist -> FEMNIST."""
    return DATASETS[dataset].label if dataset in DATASETS else dataset


def datasets_in_order(datasets: Iterable[str]) -> list[str]:
    """Distinct data sets in the papers' order: FEMNIST first, unknown ones last."""
    order = {name: index for index, name in enumerate(DATASETS)}
    return sorted(set(datasets), key=lambda name: (order.get(name, len(order)), name))


def format_epsilon(value: float) -> str:
    """An ε with at most three significant digits: 4, 8.33, 57.9, 145, 1e7, ∞; a dash if none is stated (NaN)."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if value >= 99_999.5:
        return f"{value:.2g}".replace("e+0", "e").replace("e+", "e")
    if value >= 99.95:
        return f"{value:,.0f}"
    digits = 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def format_number(value: float) -> str:
    """A number without trailing zeros: 1, 0.5, 16."""
    return f"{value:g}"
