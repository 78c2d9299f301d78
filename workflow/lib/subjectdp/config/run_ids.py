"""Ids of prepared data, partitions and runs: a readable prefix and ten hex digits of a hash.

An id is made from what differs from the defaults, once those that depend on other keys are filled in and what nothing
reads is at its default. Writing a default out, or changing a value that the algorithm, source or optimiser does not
read, gives the same id; so does a new key, as long as it is at its default. Left out:

- ``performance`` (speed and memory only) and ``data.expected`` (a check, not an input);
- the location of the data. Of ``data.path`` only the last component counts for ``leaf_json`` and ``table`` (moved
  data keep their results, another file beside them gets its own), and nothing for ``upstream`` (the content is
  verified by hash). The sha256 of the content is recorded with the prepared data and in every run's manifest.

``data.subjects``, ``data.validation_fraction`` and the seed belong to the partition, so that many partitions share one
download and one preparation.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath
from typing import Any

from subjectdp.config.resolve import resolve_data, resolve_defaults, resolve_partition
from subjectdp.config.sections import DataConfig, RunSections

ID_VERSION = 2
"""Part of every hash; raised when a default or the meaning of a key changes."""

_HASH_DIGITS = 10


def data_key(data: DataConfig) -> str:
    """Id of the prepared data, e.g. ``femnist-embedded-3f09a1c2d4``."""
    return f"{data.dataset}-{data.source}-{_digest(_data(data, 'subjects', 'validation_fraction'))}"


def partition_id(run: RunSections) -> str:
    """Id of the partition (data, split, silos and seed), e.g. ``femnist-uniform-16-s0-3f09a1c2d4``."""
    partition = resolve_partition(run.partition)
    shape = str(partition.distribution) + (
        f"{partition.alpha:g}" if partition.distribution == "power" else ""
    )
    digest = _digest([run.seed, _data(run.data), partition.model_dump(exclude_defaults=True)])
    return f"{run.data.dataset}-{shape}-{partition.silos}-s{run.seed}-{digest}"


def run_id(run: RunSections) -> str:
    """Id of the run, e.g. ``femnist-higrad_avg_dp-v1-s0-3f09a1c2d4``; the same for any way to write it."""
    return resolved_run_id(resolve_defaults(run))


def resolved_run_id(resolved: RunSections) -> str:
    """:func:`run_id` of a run whose defaults are filled in already."""
    algorithm = resolved.algorithm
    name = algorithm.name if algorithm.variant is None else f"{algorithm.name}-{algorithm.variant}"
    others = resolved.model_dump(exclude_defaults=True, exclude={"data", "performance"})
    return f"{resolved.data.dataset}-{name}-s{resolved.seed}-{_digest([_data(resolved.data), others])}"


def _data(data: DataConfig, *left_out: str) -> dict[str, Any]:
    """What differs from the defaults, without the data's place and without ``left_out``."""
    data = resolve_data(data)
    found: dict[str, Any] = data.model_dump(exclude_defaults=True, exclude={"path", "expected", *left_out})
    if data.source.in_place and data.path is not None:
        found["name"] = PurePath(data.path).name
    return found


def _digest(ingredients: Any) -> str:
    text = json.dumps([ID_VERSION, ingredients], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
