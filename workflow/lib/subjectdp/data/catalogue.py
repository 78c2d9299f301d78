"""The data sets by name: a new one is a module that reads it, and an entry here.

Imports nothing heavy: the configuration, the rules and the plan read it before any data are there. No entry changes a
result by itself: what a run depends on is in its configuration and in the prepared data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["image", "text"]


@dataclass(frozen=True)
class DatasetFacts:
    """One data set.

    ``reader`` is a module with ``load_upstream(folder) -> Content``, which reads the files that config/datasets.yaml
    lists for the data set; ``sources`` are the values of ``data.source`` that it has. ``subjects`` (those with train
    and test items) and ``items_per_subject`` are what a plan assumes before anything has been read.
    """

    label: str  # in figures
    reader: str
    kind: Kind  # image: (28, 28) grey, text: windows of 80 characters
    classes: int
    test_fraction: float  # of each subject's items, where the configuration names none
    subjects: int
    items_per_subject: float
    group: str = ""  # what a group of subjects is called; empty: there are none
    sources: tuple[str, ...] = ("upstream",)
    archive_bytes: float = 0.0  # of the upstream files

    @property
    def item_bytes(self) -> float:
        """Bytes of a prepared item and its label."""
        return 28 * 28 + 1.0 if self.kind == "image" else 1.2


_ALL_SOURCES = ("embedded", "leaf_json", "upstream")
DATASETS: dict[str, DatasetFacts] = {
    "femnist": DatasetFacts(
        label="FEMNIST",
        reader="subjectdp.data.femnist",
        kind="image",
        classes=62,
        test_fraction=0.2,
        subjects=3597,
        items_per_subject=814255 / 3597,
        sources=_ALL_SOURCES,
        archive_bytes=1.2e9,
    ),
    "shakespeare": DatasetFacts(
        label="Shakespeare",
        reader="subjectdp.data.shakespeare",
        kind="text",
        classes=80,
        test_fraction=0.1,
        subjects=660,
        items_per_subject=3678452 / 0.9 / 660,
        group="plays",
        sources=_ALL_SOURCES,
        archive_bytes=5.5e6,
    ),
}
"""In the papers' order; counts and test fractions are LEAF's."""
