"""From a data configuration to a prepared folder: ``fetch_sources``, then ``prepare_dataset``."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Protocol

from subjectdp.data import leaf_json, table
from subjectdp.data.catalogue import DATASETS, DatasetSpec, Source
from subjectdp.data.content import Content, check_expected, count_content
from subjectdp.data.embedded import generate
from subjectdp.data.fetch import FetchOptions, fetch_file
from subjectdp.data.local_files import HASHES, describe
from subjectdp.data.sources import SourceFile, load_sources
from subjectdp.data.store import InputFile, write_prepared
from subjectdp.errors import DataError, expected, unknown
from subjectdp.io import atomic

_LOGGER = logging.getLogger(__name__)
RECORD = "source.json"
LOCK = "fetched.lock.json"


def fetch_sources(
    data: DataOptions,
    folder: Path,
    lock_file: Path | None = None,
    options: FetchOptions | None = None,
    table: Path | None = None,
) -> list[Path]:
    """Brings the source files of ``data`` into ``folder``, writes ``source.json`` there, returns the files.

    ``embedded``: generated. ``upstream``: from ``data.path`` if set, else from the mirrors of config/datasets.yaml.
    ``leaf_json`` and ``table``: the files at ``data.path`` are hashed, not copied. ``lock_file`` records the
    fetched files (default: beside the data folders, shared by all of them).
    """
    facts_of(data.dataset)
    if data.source not in [*Source]:
        raise unknown("data.source", data.source, map(str, Source), DataError)
    folder.mkdir(parents=True, exist_ok=True)
    if data.source == Source.EMBEDDED:
        files = _generate(data, folder)
    elif data.source == Source.UPSTREAM:
        files = _fetch_upstream(data, folder, lock_file, options, table)
    else:
        files = [_path_in_place(data)]
    inputs = [describe(file, _hashes(folder)) for file in files]
    atomic.write_json(folder / RECORD, {"dataset": data.dataset, "source": data.source, "inputs": inputs})
    return files


def prepare_dataset(
    data: DataOptions,
    source_folder: Path,
    prepared_folder: Path,
    input_fingerprint: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Parses the fetched files, checks ``data.expected``, writes the prepared folder, returns its meta.

    The whole source is prepared; ``data.subjects`` trims it later (``PreparedData.first_subjects``).
    ``input_fingerprint`` is recorded as it is: content and code, as the workflow compares them.
    DataError if the files are not those that ``fetch_sources`` recorded, or cannot be parsed, or their counts
    differ.
    """
    started = time.monotonic()
    inputs = _read_record(source_folder, data)
    fraction = chosen_test_fraction(data)
    content = read_source(data, source_folder)
    check_expected(count_content(content, fraction), data.expected)
    meta = write_prepared(prepared_folder, content, data.source, inputs, fraction, input_fingerprint)
    counts, seconds = meta["counts"], time.monotonic() - started
    group = facts_of(data.dataset).group
    groups = f", {counts['groups']} {group}" if group != "" else ""
    _LOGGER.info(
        "%s (%s): %d users, %d items%s, mean %.1f, std %.1f, %d users left at the split; prepared in %.1f s",
        *(data.dataset, data.source, counts["users"], counts["items"], groups, counts["mean"], counts["std"]),
        *(counts["users_after_split"], seconds),
    )
    return meta


def chosen_test_fraction(data: DataOptions) -> float:
    """``data.test_fraction``, or the data set's default."""
    return facts_of(data.dataset).test_fraction if data.test_fraction is None else data.test_fraction


def read_source(data: DataOptions, folder: Path, decode: bool = True) -> Content:
    """Parses the source of ``data``: LEAF's JSON or a table at ``data.path``, or upstream files in ``folder``."""
    return read(data, _path_in_place(data) if Source(data.source).in_place else folder, decode)


def _generate(data: DataOptions, folder: Path) -> list[Path]:
    size = data.embedded
    return generate(data.dataset, folder, size.subjects, size.items_per_subject, size.seed)


def _fetch_upstream(
    data: DataOptions, folder: Path, lock_file: Path | None, options: FetchOptions | None, table: Path | None
) -> list[Path]:
    licence, sources = load_sources(data.dataset, table)
    _LOGGER.info("%s: %s", data.dataset, licence)
    lock = folder.parent.parent / LOCK if lock_file is None else lock_file
    local = None if data.path is None else Path(data.path)
    return [_one_file(source, folder, lock, local, options) for source in sources]


def _one_file(source: SourceFile, folder: Path, lock: Path, local: Path | None, options: FetchOptions | None) -> Path:
    unpacked = Path(source.name).stem
    if source.format == "zip" and local is not None and (local / unpacked).is_dir():
        link = folder / unpacked  # an archive that was unpacked beforehand is used where it lies
        link.unlink(missing_ok=True)
        link.symlink_to((local / unpacked).resolve(), target_is_directory=True)
        return link
    return fetch_file(source, folder, lock, local, options).path


def _path_in_place(data: DataOptions) -> Path:
    if data.path is None:
        raise expected("data.path", None, "where the data lie, when data.source is leaf_json or table", DataError)
    path = Path(data.path)
    if not path.exists():
        raise expected("data.path", data.path, "an existing file or folder", DataError)
    return path


# --- the record of the inputs -------------------------------------------------------------------------------


def _hashes(folder: Path) -> Path:
    return folder.parent.parent / HASHES


def _read_record(folder: Path, data: DataOptions) -> list[InputFile]:
    """The recorded inputs, checked to be those that are there now."""
    path = folder / RECORD
    try:
        record = json.loads(path.read_text())
        inputs = [InputFile(i["file"], i["sha256"], i["bytes"]) for i in record["inputs"]]
        kind = (record["dataset"], record["source"])
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{path} is missing or damaged: fetch the source again.") from None
    if kind != (data.dataset, data.source):
        raise DataError(f"{folder} holds {kind[0]} from {kind[1]}, not {data.dataset} from {data.source}.")
    for item in inputs:
        file = _path_in_place(data) if Source(data.source).in_place else folder / item.file
        recorded = {"file": item.file, "sha256": item.sha256, "bytes": item.bytes}
        if not file.exists() or describe(file, _hashes(folder)) != recorded:
            raise DataError(f"{file} is not the file that was fetched (missing or changed): fetch it again.")
    return inputs


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


def facts_of(dataset: str) -> DatasetSpec:
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
