"""Fills in defaults that depend on other keys, and sets keys that nothing reads back to their defaults.

A resolved configuration is the canonical form of a run: two ways to write the same run resolve to the same object,
hence to the same run id and the same ``config.json``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from subjectdp.algorithms.registry import algorithm
from subjectdp.config.sections import (
    DataConfig,
    JointConfig,
    ModelConfig,
    OptimizerConfig,
    PartitionConfig,
    RunSections,
    Section,
    TrainingConfig,
)
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import expected
from subjectdp.models.catalogue import model_names

VARIABLES = ("HOME", "USER", "LOGNAME", "PWD", "TMPDIR", "SLURM_TMPDIR", "SCRATCH", "WORK", "PROJECT", "DATA")
"""Variables that data.path may name beside ``SUBJECTDP_*``. Paths are written into records and messages, so that they
must not carry other parts of the environment (tokens, passwords)."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

_Section = TypeVar("_Section", bound=Section)
_Run = TypeVar("_Run", bound=RunSections)


def resolve_defaults(run: _Run) -> _Run:
    """The canonical form of ``run``; raises ConfigError where ``data.path`` names an unset variable."""
    run = without_unread_keys(run)
    return _with(
        run,
        {
            "data": resolve_data(run.data),
            "partition": resolve_partition(run.partition),
            "algorithm": _with(run.algorithm, {"variant": resolved_variant(run)}),
            "joint": _with(run.joint, _unread_of_joint(run.joint)),
            "training": _resolve_training(run),
            "model": resolve_model(run),
        },
    )


def without_unread_keys(run: _Run) -> _Run:
    """``run`` with the keys that its algorithm does not read at their defaults."""
    unread = _unread(run.algorithm.name)
    return _with(run, {name: _with(getattr(run, name), values) for name, values in unread.items()})


@cache
def _unread(algorithm_name: str) -> dict[str, dict[str, Any]]:
    """Section -> key -> default, of keys that the algorithm does not read."""
    found = algorithm(algorithm_name)
    result = {}
    for name in ("privacy", "joint", "subject"):
        section = RunSections.model_fields[name].default
        idle = name == "privacy" and not found.is_private
        keys = [key for key in type(section).model_fields if idle or not found.reads_key(f"{name}.{key}")]
        result[name] = {key: getattr(section, key) for key in keys}
    return result


def resolve_data(data: DataConfig) -> DataConfig:
    """Fills the test fraction and the path's variables; resets what the source does not read."""
    changes: dict[str, Any] = {}
    if data.test_fraction is None:
        changes["test_fraction"] = DATASETS[data.dataset].test_fraction
    if data.path is not None:
        changes["path"] = _resolve_path(data.path, data.source)
    if data.source != "embedded":
        changes |= _defaults(DataConfig, ("embedded",))
    if data.dataset != "femnist":
        changes["duplicate_first_image_bug"] = False
    return _with(data, changes)


def resolve_partition(partition: PartitionConfig) -> PartitionConfig:
    """Fills the number of silos that may hold a subject."""
    if partition.silos_per_subject is not None:
        return partition
    return _with(partition, {"silos_per_subject": partition.silos})


def resolved_variant(run: RunSections) -> str | None:
    """The algorithm's variant, its first one where none is given; None for an algorithm without variants."""
    given = run.algorithm.variant
    return algorithm(run.algorithm.name).variants[0] if given is None else given


def resolve_model(run: RunSections) -> ModelConfig:
    """Fills the model's name: LEAF's for the kind of data."""
    if run.model.name is not None:
        return run.model
    return _with(run.model, {"name": model_names(DATASETS[run.data.dataset].kind)[0]})


def _resolve_path(path: str, source: str) -> str | None:
    """The path with its variables replaced; an empty result is no path, which leaf_json cannot do without."""
    expanded = expand_variables(path)
    if not expanded.isprintable():
        raise expected("data.path", expanded, "a path of printable characters")
    if not expanded and source in ("leaf_json", "table"):
        raise expected("data.path", path, "a path that is not empty once its variables are replaced")
    return expanded or None


def expand_variables(path: str) -> str:
    """Replaces ``${NAME}`` and ``${NAME:-default}`` from the environment, and a leading ``~``.

    Raises ConfigError for a variable that is neither called ``SUBJECTDP_*`` nor one of :data:`VARIABLES`, and for one
    that is unset without a default.
    """

    def value_of(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        if not name.startswith("SUBJECTDP_") and name not in VARIABLES:
            allowed = (
                f"a path with no variables but SUBJECTDP_* and {', '.join(VARIABLES)} (${name} is not read)"
            )
            raise expected("data.path", path, allowed)
        value = os.environ.get(name)
        if default is not None:
            return value if value else default
        if value is None:
            raise expected("data.path", path, f"a path whose variables are set (${name} is not)")
        return value

    return os.path.expanduser(_VARIABLE.sub(value_of, path))


def _unread_of_joint(joint: JointConfig) -> dict[str, Any]:
    """Bits are read where noise is of integers; one step for each noise is none."""
    changes = _defaults(JointConfig, ("bits",)) if joint.noise == "gaussian" else {}
    return changes if any(count > 1 for count in joint.fused_steps) else changes | {"fused_steps": ()}


def _resolve_training(run: RunSections) -> TrainingConfig:
    training, found = run.training, algorithm(run.algorithm.name)
    changes: dict[str, Any] = {}
    if training.optimizer.name == "sgd":
        changes["optimizer"] = _with(training.optimizer, _defaults(OptimizerConfig, ("momentum",)))
    if training.silos_per_round is None:
        changes["silos_per_round"] = run.partition.silos
    if training.silos_per_round in (None, run.partition.silos):
        changes |= _defaults(TrainingConfig, ("silo_choice",))
    if found.one_step_per_round and training.local_steps is None:
        changes["local_steps"] = 1
    if found.samples_subjects or training.sampling_fraction is not None:
        changes |= _defaults(TrainingConfig, ("batch_size",))
    return _with(training, changes)


def _defaults(section: type[Section], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: section.model_fields[key].default for key in keys}


def _with(section: _Section, changes: Mapping[str, Any]) -> _Section:
    """``section`` with ``changes``, or itself where they change nothing: sweeps resolve each run more than once."""
    differing = {key: value for key, value in changes.items() if not _same(getattr(section, key), value)}
    return section.model_copy(update=differing) if differing else section


def _same(one: Any, other: Any) -> bool:
    """The same section, or equal values of one type: 1 and 1.0 are written differently into an id."""
    if one is other or isinstance(one, Section):
        return one is other
    return type(one) is type(other) and bool(one == other)
