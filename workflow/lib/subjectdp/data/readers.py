"""How the data sets of :mod:`subjectdp.data.catalogue` are read."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Protocol

from subjectdp.data import leaf_json, table
from subjectdp.data.catalogue import DATASETS, DatasetFacts, Source
from subjectdp.data.content import Content
from subjectdp.errors import DataError, expected, unknown


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
    def label(self) -> str | None: ...
    @property
    def subject(self) -> str | None: ...
    @property
    def silo(self) -> str | None: ...
    @property
    def test_fraction(self) -> float | None: ...
    @property
    def duplicate_first_image_bug(self) -> bool: ...
    @property
    def embedded(self) -> EmbeddedOptions: ...
    @property
    def expected(self) -> Mapping[Any, int]: ...


def facts_of(dataset: str) -> DatasetFacts:
    """The catalogue's entry of ``dataset``; DataError with the nearest name if there is none."""
    if dataset not in DATASETS:
        raise unknown("data.dataset", dataset, DATASETS, DataError)
    return DATASETS[dataset]


def read(data: DataOptions, path: Path, decode: bool) -> Content:
    """Read the source files at ``path``; ``decode``: False leaves pixels zero where only counts are wanted."""
    facts = facts_of(data.dataset)
    if data.source == Source.LEAF_JSON:
        if data.duplicate_first_image_bug:
            raise DataError(
                "Expected data.duplicate_first_image_bug to be false for data.source leaf_json, got True: "
                "LEAF's own output has the duplicates already."
            )
        return leaf_json.load(data.dataset, path)
    if data.source == Source.TABLE:
        if data.label is None:
            raise expected("data.label", None, "the name of a column, for data.source table", DataError)
        return table.read_table(path, data.label, data.subject, data.silo)
    reader = import_module(facts.reader).load_upstream
    options = {"duplicate_first_image_bug": data.duplicate_first_image_bug, "decode": decode}
    taken = signature(reader).parameters  # a reader declares those that its data set has
    content: Content = reader(path, **{name: value for name, value in options.items() if name in taken})
    return content
