"""Ids of prepared data, partitions and runs: a readable prefix and ten hex digits of a hash.

An id covers exactly what can change the result, with defaults filled in. Writing a default out, or changing a value
that the algorithm, source or optimiser does not read, gives the same id. Left out:

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

from subjectdp.algorithms.registry import algorithm
from subjectdp.config.resolve import resolve_data, resolve_defaults, resolve_partition
from subjectdp.config.sections import DataConfig, JointConfig, RunSections
from subjectdp.plan.plan import PlanSettings

ID_VERSION = 1
"""Part of every hash; raised when the meaning of a key changes."""

_HASH_DIGITS = 10


def data_key(data: DataConfig) -> str:
    """Id of the prepared data, e.g. ``femnist-embedded-3f09a1c2d4``."""
    return f"{data.dataset}-{data.source}-{_digest(data_ingredients(data))}"


def partition_id(run: RunSections) -> str:
    """Id of the partition (data, split, silos and seed), e.g. ``femnist-uniform-16-s0-3f09a1c2d4``."""
    partition = run.partition
    shape = str(partition.distribution) + (
        f"{partition.alpha:g}" if partition.distribution == "power" else ""
    )
    digest = _digest(partition_ingredients(run))
    return f"{run.data.dataset}-{shape}-{partition.silos}-s{run.seed}-{digest}"


def run_id(run: RunSections) -> str:
    """Id of the run, e.g. ``femnist-higrad_avg_dp-v1-s0-3f09a1c2d4``; the same for any way to write it."""
    return resolved_run_id(resolve_defaults(run))


def resolved_run_id(resolved: RunSections) -> str:
    """:func:`run_id` of a run whose defaults are filled in already."""
    algorithm = resolved.algorithm
    name = algorithm.name if algorithm.variant is None else f"{algorithm.name}-{algorithm.variant}"
    return f"{resolved.data.dataset}-{name}-s{resolved.seed}-{_digest(run_ingredients(resolved))}"


def data_ingredients(data: DataConfig) -> dict[str, Any]:
    """What the prepared data depend on."""
    data = resolve_data(data)
    ingredients: dict[str, Any] = {
        "dataset": data.dataset,
        "source": data.source,
        "test_fraction": data.test_fraction,
        "duplicate_first_image_bug": data.duplicate_first_image_bug,
    }
    if data.source == "embedded":
        ingredients["embedded"] = data.embedded.model_dump()
    if data.source.in_place and data.path is not None:
        ingredients["name"] = PurePath(data.path).name
    if data.source == "table":
        ingredients["columns"] = [data.label, data.subject, data.silo]
    return ingredients


def partition_ingredients(run: RunSections) -> dict[str, Any]:
    """What a partition depends on."""
    return {
        "seed": run.seed,
        "data": data_ingredients(run.data),
        "subjects": run.data.subjects,
        "validation_fraction": run.data.validation_fraction,
        "partition": resolve_partition(run.partition).model_dump(),
    }


def run_ingredients(resolved: RunSections) -> dict[str, Any]:
    """What the result of a resolved run depends on."""
    found = algorithm(resolved.algorithm.name)
    special = {key: getattr(resolved, key) for key in ("joint", "subject") if found.reads_section(key)}
    privacy, training = resolved.privacy.model_dump(), resolved.training.model_dump()
    # Keys that were added later are left out at their defaults: older ids stay as they are.
    if resolved.privacy.predicted_subjects is None:
        del privacy["predicted_subjects"]
    if resolved.privacy.noise_source == PlanSettings.noise_source:
        del privacy["noise_source"]
    if resolved.training.silos_per_round == resolved.partition.silos:
        del training["silo_choice"]
    if resolved.training.sampling_fraction is None:
        del training["sampling_fraction"]
    if resolved.training.augmentation.name == "none":
        del training["augmentation"]
    joint = resolved.joint.model_dump()
    for key in ("step_factors", "fused_steps"):
        if not joint[key]:
            del joint[key]
    if "joint" not in found.reads and resolved.joint == JointConfig():
        special.pop("joint", None)
    return {
        **partition_ingredients(resolved),
        **{key: joint if key == "joint" else section.model_dump() for key, section in special.items()},
        "algorithm": resolved.algorithm.model_dump(),
        "privacy": privacy,
        "training": training,
        "model": resolved.model.model_dump(),
    }


def _digest(ingredients: dict[str, Any]) -> str:
    text = json.dumps(
        {"version": ID_VERSION, **ingredients}, sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
