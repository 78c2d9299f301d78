"""From a data configuration to a prepared folder: ``fetch_sources``, then ``prepare_dataset``; or to its counts."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subjectdp.data import leaf_json, table
from subjectdp.data.archives import HASHES, SourceFile, describe, load_sources
from subjectdp.data.catalogue import DATASETS, DatasetSpec, Source, held_out
from subjectdp.data.content import Content, check_content, check_expected, count_content
from subjectdp.data.fetch import fetch_file
from subjectdp.data.store import write_prepared
from subjectdp.errors import DataError, SubjectDPError, expected, mistake
from subjectdp.io import atomic

if TYPE_CHECKING:
    from subjectdp.config.sections import DataConfig

_LOGGER = logging.getLogger(__name__)
RECORD = "source.json"
LOCK = "fetched.lock.json"


def fetch_sources(data: DataConfig, folder: Path) -> list[Path]:
    """Brings the source files of ``data`` into ``folder``, writes ``source.json`` there, returns the files.

    ``embedded``: generated. ``upstream``: from ``data.path`` if set, else from the mirrors of config/datasets.yaml; the
    lock file beside the data folders records them. ``leaf_json`` and ``table``: the files at ``data.path`` are hashed,
    not copied.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if data.source == Source.EMBEDDED:
        size = data.embedded
        files = generate(data.dataset, folder, size.subjects, size.items_per_subject, size.seed)
    elif data.source == Source.UPSTREAM:
        licence, sources = load_sources(data.dataset)
        _LOGGER.info("%s: %s", data.dataset, licence)
        files = [_one_file(source, folder, None if data.path is None else Path(data.path)) for source in sources]
    else:
        files = [_path_in_place(data)]
    inputs = [describe(file, _beside(folder, HASHES)) for file in files]
    atomic.write_json(folder / RECORD, {"dataset": data.dataset, "source": data.source, "inputs": inputs})
    return files


def generate(dataset: str, folder: Path, subjects: int, items_per_subject: int, seed: int) -> list[Path]:
    """Generates a data set's embedded files into ``folder``, which is created if needed; returns their paths.

    They are synthetic, in the upstream's own formats. ``subjects`` counts the writers or characters that have items,
    ``items_per_subject`` is the mean number of images or of windows of 80 characters; where items are their own
    subjects, their product counts. The same arguments give the same bytes. ConfigError for too few people or too long a
    text.
    """
    if not DATASETS[dataset].generator:
        raise expected("data.source", "embedded", f"another one for {dataset}: nothing is generated for it")
    folder.mkdir(parents=True, exist_ok=True)
    write: Callable[[Path, int, int, int], list[Path]] = import_module(DATASETS[dataset].generator).write_files
    return write(folder, subjects, items_per_subject, seed)


def prepare_dataset(
    data: DataConfig, source_folder: Path, prepared_folder: Path, input_fingerprint: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Parses the fetched files, checks ``data.expected``, writes the prepared folder, returns its meta.

    The whole source is prepared; ``data.subjects`` trims it later. ``input_fingerprint`` is recorded as it is.
    DataError for files that ``fetch_sources`` did not record, or that cannot be parsed, and for other counts.
    """
    started = time.monotonic()
    inputs = _read_record(source_folder, data)
    fraction = held_out(data.dataset, data.test_fraction)
    content = read_source(data, source_folder)
    check_expected(count_content(content, fraction), data.expected)
    meta = write_prepared(prepared_folder, content, data.source, inputs, fraction, input_fingerprint)
    counts, group = meta["counts"], DATASETS[data.dataset].group
    groups = f", {counts['groups']} {group}" if group else ""
    _LOGGER.info(
        f"{data.dataset} ({data.source}): {counts['users']} users, {counts['items']} items"
        f"{groups}, mean {counts['mean']:.1f}, std {counts['std']:.1f}, "
        f"{counts['users_after_split']} users left at the split; prepared in {time.monotonic() - started:.1f} s"
    )
    return meta


def read_source(data: DataConfig, folder: Path, decode: bool = True, least_classes: int = 2) -> Content:
    """The content of a source: LEAF's JSON or a table at ``data.path``, or ``folder``; ``decode`` False: for counts.
    ``least_classes`` as of :func:`subjectdp.data.table.read_table`."""
    if data.source == Source.LEAF_JSON:
        content = leaf_json.load(data.dataset, _path_in_place(data))
        return leaf_json.with_people(content, data.subject is not None)
    if data.source == Source.TABLE:
        return table.read_table(_path_in_place(data), data, least_classes)
    options = {"duplicate_first_image_bug": data.duplicate_first_image_bug, "decode": decode}
    spec = DATASETS[data.dataset]
    try:
        reader = import_module(spec.reader).load_upstream
        taken = signature(reader).parameters  # a reader declares those that its data set has
        upstream: Content = reader(folder, **{name: value for name, value in options.items() if name in taken})
    except (SubjectDPError, OSError, MemoryError):
        raise
    except Exception as problem:
        raise mistake(spec.reader, problem, DataError) from problem
    _check_as_listed(upstream, data.dataset, spec)
    return upstream


def _check_as_listed(upstream: object, dataset: str, spec: DatasetSpec) -> None:
    if not isinstance(upstream, Content):
        raise expected(f"what {spec.reader} gives", upstream, "a Content", DataError)
    check_content(upstream)
    pairs = {name: (getattr(upstream, name), getattr(spec, name)) for name in ("kind", "classes", "own_subjects")}
    pairs |= {"dataset": (upstream.dataset, dataset), "shape": (upstream.shape, spec.shape or upstream.shape)}
    pairs["silos"] = (len(upstream.silo_names), spec.silos)
    read, listed = ({name: pair[i] for name, pair in pairs.items() if pair[0] != pair[1]} for i in (0, 1))
    if read:
        raise expected(f"what {spec.reader} gives", read, f"as in the catalogue, {listed}", DataError)
    try:
        json.dumps(dict(upstream.notes))
    except (TypeError, ValueError):
        raise expected(f"the notes of {spec.reader}", dict(upstream.notes), "what JSON holds", DataError) from None


def inspect_source(data: DataConfig) -> dict[str, Any]:
    """Counts of a source without preparing it, JSON-able: those of ``count_content`` and dataset, source, notes, time.

    Of Shakespeare the e-text itself will do (plain, gzip or zip); without ``data.path`` embedded files are generated
    into a temporary folder. FEMNIST's images are hashed but not decoded.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "data", "source")  # hashes go beside the data folders
        if data.path is None and data.source == Source.EMBEDDED:
            fetch_sources(data, folder)
        started = time.monotonic()
        content = read_source(data, folder if data.path is None else Path(data.path), decode=False)
    check_content(content)
    fraction = held_out(data.dataset, data.test_fraction)
    counts = count_content(content, fraction)
    return {
        "dataset": data.dataset,
        "source": data.source,
        "synthetic": data.source == Source.EMBEDDED,
        "kind": content.kind,
        "shape": list(content.features.shape[1:]),
        "own_subjects": content.own_subjects,
        **counts,
        **_beside_known(data, content, counts),
        "test_fraction": fraction,
        "notes": dict(content.notes),
        "seconds": round(time.monotonic() - started, 2),
    }


def _beside_known(data: DataConfig, content: Content, counts: dict[str, Any]) -> dict[str, str]:
    """What is known of the whole data set in this form, and in what the source differs."""
    known = leaf_json.KNOWN.get((str(content.notes.get("form", "LEAF")), content.kind), {})
    if data.dataset not in ("femnist", "shakespeare") or data.source == Source.EMBEDDED:
        return {}
    different = [f"{counts[key] - value:+,} {key}" for key, value in known.items() if counts[key] != value]
    words = ", ".join(f"{value:,} {key}" for key, value in known.items())
    return {"known": words, "differs by": ", ".join(different) or "nothing"}


def _one_file(source: SourceFile, folder: Path, local: Path | None) -> Path:
    unpacked = Path(source.name).stem
    if source.format == "zip" and local is not None and (local / unpacked).is_dir():
        link = folder / unpacked  # an archive that was unpacked beforehand is used where it lies
        link.unlink(missing_ok=True)
        link.symlink_to((local / unpacked).resolve(), target_is_directory=True)
        return link
    return fetch_file(source, folder, _beside(folder, LOCK), local)


def _path_in_place(data: DataConfig) -> Path:
    if data.path is None or not Path(data.path).exists():
        raise expected("data.path", data.path, "an existing file or folder", DataError)
    return Path(data.path)


def _beside(folder: Path, name: str) -> Path:
    """A file beside the data folders, shared by all of them."""
    return folder.parent.parent / name


def _read_record(folder: Path, data: DataConfig) -> list[dict[str, Any]]:
    """The recorded inputs, checked to be those that are there now."""
    path = folder / RECORD
    try:
        record = json.loads(path.read_text())
        inputs: list[dict[str, Any]] = record["inputs"]
        files = [_path_in_place(data) if data.source.in_place else folder / str(item["file"]) for item in inputs]
        kind = (record["dataset"], record["source"])
    except (OSError, json.JSONDecodeError, KeyError, TypeError):
        raise DataError(f"{path} is missing or damaged: fetch the source again.") from None
    if kind != (data.dataset, data.source):
        raise DataError(f"{folder} holds {kind[0]} from {kind[1]}, not {data.dataset} from {data.source}.")
    for file, item in zip(files, inputs, strict=True):
        if not file.exists() or describe(file, _beside(folder, HASHES)) != item:
            raise DataError(f"{file} is not the file that was fetched (missing or changed): fetch it again.")
    return inputs
