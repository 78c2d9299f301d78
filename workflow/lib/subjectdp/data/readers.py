"""How the data sets of :mod:`subjectdp.data.catalogue` are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from subjectdp.data.catalogue import DATASETS
from subjectdp.data.content import Content
from subjectdp.data.splits import DEFAULT_TEST_FRACTION
from subjectdp.errors import DataError, unknown


class EmbeddedOptions(Protocol):
    """Size of the generated data."""

    @property
    def subjects(self) -> int: ...
    @property
    def items_per_subject(self) -> int: ...
    @property
    def seed(self) -> int: ...


class DataOptions(Protocol):
    """What this package reads of the configuration's ``data`` section."""

    @property
    def dataset(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def path(self) -> str | None: ...
    @property
    def test_fraction(self) -> float | None: ...
    @property
    def duplicate_first_image_bug(self) -> bool: ...
    @property
    def embedded(self) -> EmbeddedOptions: ...
    @property
    def expected(self) -> object: ...


Reader = Callable[[Path, bool, bool], Content]  # (path, duplicate_first_image_bug, decode) -> content


@dataclass(frozen=True)
class Adapter:
    """How one data set is read: from files in the upstream's format, and from LEAF's JSON."""

    name: str
    upstream: Reader
    leaf_json: Reader
    group: str  # what a group of subjects is called; empty: there are none

    @property
    def test_fraction(self) -> float:
        """The papers' part of each subject's items for the test."""
        return DEFAULT_TEST_FRACTION[self.name]


def _upstream(dataset: str) -> Reader:
    def read(path: Path, duplicate_first_image_bug: bool, decode: bool) -> Content:
        reader = import_module(DATASETS[dataset].reader).load_upstream
        # FEMNIST alone has a bug of LEAF's to repeat, and images that need no decoding to be counted.
        content: Content = (
            reader(path, duplicate_first_image_bug, decode) if dataset == "femnist" else reader(path)
        )
        return content

    return read


def _leaf_json(dataset: str) -> Reader:
    def read(path: Path, duplicate_first_image_bug: bool, _decode: bool) -> Content:
        from subjectdp.data import leaf_json

        if duplicate_first_image_bug:
            raise DataError(
                "Expected data.duplicate_first_image_bug to be false for data.source leaf_json, got True: "
                "LEAF's own output has the duplicates already."
            )
        return leaf_json.load(dataset, path)

    return read


ADAPTERS = {
    name: Adapter(name, _upstream(name), _leaf_json(name), facts.group) for name, facts in DATASETS.items()
}
SOURCES = ("embedded", "leaf_json", "upstream")


def adapter(dataset: str) -> Adapter:
    """The adapter of ``dataset``; DataError with the nearest name if there is none."""
    if dataset not in ADAPTERS:
        raise unknown("data.dataset", dataset, ADAPTERS, DataError)
    return ADAPTERS[dataset]
