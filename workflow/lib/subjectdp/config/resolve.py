"""Defaults that depend on other keys, filled in; values that nothing reads, set back to their defaults.

A resolved configuration is the canonical form of a run: two ways to write the same run resolve to the same
object, hence to the same run id and the same ``config.json``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from subjectdp.config.models import (
    AugmentationConfig,
    AveragingConfig,
    DataConfig,
    EmbeddedConfig,
    JointConfig,
    ModelConfig,
    OptimizerConfig,
    PartitionConfig,
    PrivacyConfig,
    RunConfig,
    Section,
    ServerOptimizerConfig,
    SubjectConfig,
    TrainingConfig,
)
from subjectdp.config.rules import MODELS_OF_DATASET, VARIANTS_OF_ALGORITHM
from subjectdp.config.run_ids import SAMPLING_SUBJECTS
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import expected

TEST_FRACTION = {name: facts.test_fraction for name, facts in DATASETS.items()}
"""The papers' test split of each data set."""

VARIABLES = ("HOME", "USER", "LOGNAME", "PWD", "TMPDIR", "SLURM_TMPDIR", "SCRATCH", "WORK", "PROJECT", "DATA")
"""Variables that data.path may name beside ``SUBJECTDP_*``. A path is written into records and messages, so that it
must not be able to carry whatever else the environment holds (tokens, passwords)."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

_EMBEDDED, _PRIVACY, _JOINT, _SUBJECT = EmbeddedConfig(), PrivacyConfig(), JointConfig(), SubjectConfig()
_AUGMENTATION = AugmentationConfig()
_OF_RELEASE = ("trust", "weights", "item_noise", "contribution", "every", "noise_band")
_Section = TypeVar("_Section", bound=Section)


def resolve_defaults(run: RunConfig) -> RunConfig:
    """The canonical form of ``run``; raises ConfigError where ``data.path`` names an unset variable."""
    return _with(
        run,
        {
            "data": resolve_data(run.data),
            "partition": resolve_partition(run.partition),
            "algorithm": _with(run.algorithm, {"variant": resolved_variant(run)}),
            "privacy": _resolve_privacy(run),
            "joint": _resolve_joint(run),
            "subject": _resolve_subject(run),
            "training": _resolve_training(run),
            "model": resolve_model(run),
        },
    )


def resolve_data(data: DataConfig) -> DataConfig:
    """Fills the test fraction and the path's variables; resets what the source does not read."""
    changes: dict[str, Any] = {}
    if data.test_fraction is None:
        changes["test_fraction"] = TEST_FRACTION[data.dataset]
    if data.path is not None:
        changes["path"] = _resolve_path(data.path, data.source)
    if data.source != "embedded":
        changes["embedded"] = _EMBEDDED
    if data.dataset != "femnist":
        changes["duplicate_first_image_bug"] = False
    return _with(data, changes)


def resolve_partition(partition: PartitionConfig) -> PartitionConfig:
    """Fills the number of silos that may hold a subject."""
    if partition.silos_per_subject is not None:
        return partition
    return _with(partition, {"silos_per_subject": partition.silos})


def resolved_variant(run: RunConfig) -> str | None:
    """The algorithm's variant, its first one where none is given; None for an algorithm without variants."""
    known = VARIANTS_OF_ALGORITHM.get(run.algorithm.name)
    if known is None or run.algorithm.variant is not None:
        return run.algorithm.variant
    return known[0]


def resolve_model(run: RunConfig) -> ModelConfig:
    """Fills the model's name by data set."""
    if run.model.name is not None:
        return run.model
    return _with(run.model, {"name": MODELS_OF_DATASET[run.data.dataset][0]})


def _resolve_path(path: str, source: str) -> str | None:
    """The path with its variables replaced; an empty result is no path, which leaf_json cannot do without."""
    expanded = expand_variables(path)
    if not expanded.isprintable():
        raise expected("data.path", expanded, "a path of printable characters")
    if not expanded and source == "leaf_json":
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


def _resolve_privacy(run: RunConfig) -> PrivacyConfig:
    algorithm, privacy = run.algorithm.name, run.privacy
    if algorithm == "fed_avg":
        return _PRIVACY
    changes: dict[str, Any] = {}
    if algorithm == "local_item_dp":
        changes["horizontal"] = _default(PrivacyConfig, "horizontal")
    if algorithm != "central_sub_dp":
        changes["noise_placement"] = _default(PrivacyConfig, "noise_placement")
    if privacy.max_items_per_subject is None:
        changes["max_items_per_subject"] = run.partition.max_items_per_subject
    return _with(privacy, changes)


def _resolve_joint(run: RunConfig) -> JointConfig:
    """Only joint noise reads the section, and only integer noise the grid and the ring; factors of 1 are none."""
    joint = run.joint
    if run.algorithm.name != "joint_noise":
        return _JOINT
    changes: dict[str, Any] = {}
    if joint.noise == "gaussian":
        unread = ("bits", "ring_bits", "wrap_probability")
        changes = {key: _default(JointConfig, key) for key in unread}
    for key in ("clip_norm_factors", "learning_rate_factors", "noise_factors"):
        if all(factor == 1.0 for factor in getattr(joint, key)):
            changes[key] = ()
    return _with(joint, changes)


def _resolve_subject(run: RunConfig) -> SubjectConfig:
    """Only algorithms that sample subjects read the section; only a release once a round has a budget and turns."""
    subject = run.subject
    if run.algorithm.name not in SAMPLING_SUBJECTS:
        return _SUBJECT
    changes: dict[str, Any] = {}
    if run.algorithm.name == "subject_sampling":
        changes = {key: _default(SubjectConfig, key) for key in _OF_RELEASE}
    elif subject.weights != "optimal":
        changes = {"item_noise": _default(SubjectConfig, "item_noise")}
    if subject.noise_band is None and "noise_band" not in changes:
        from subjectdp.noise.correlated_noise import best_band  # numpy: only where it is needed

        changes["noise_band"] = best_band(run.training.rounds, subject.every)
    return _with(subject, changes)


def _resolve_training(run: RunConfig) -> TrainingConfig:
    training = run.training
    changes: dict[str, Any] = {
        "optimizer": _resolve_optimizer(training.optimizer),
        "server_optimizer": _resolve_server(training.server_optimizer),
        "averaging": _resolve_averaging(training.averaging),
    }
    if training.augmentation.name == "none":
        changes["augmentation"] = _AUGMENTATION
    if training.silos_per_round is None:
        changes["silos_per_round"] = run.partition.silos
    if run.algorithm.name in ("central_sub_dp", "subject_release") and training.local_steps is None:
        changes["local_steps"] = 1
    if run.algorithm.name in SAMPLING_SUBJECTS:
        changes["batch_size"] = _default(TrainingConfig, "batch_size")
    return _with(training, changes)


def _resolve_optimizer(optimizer: OptimizerConfig) -> OptimizerConfig:
    unread = {"sgd": ("momentum", "beta2"), "momentum": ("beta2",), "adam": ()}[optimizer.name]
    return _with(optimizer, {key: _default(OptimizerConfig, key) for key in unread})


def _resolve_server(optimizer: ServerOptimizerConfig) -> ServerOptimizerConfig:
    unread = {"none": ("learning_rate", "momentum", "beta2"), "momentum": ("beta2",), "adam": ()}[
        optimizer.name
    ]
    return _with(optimizer, {key: _default(ServerOptimizerConfig, key) for key in unread})


def _resolve_averaging(averaging: AveragingConfig) -> AveragingConfig:
    read = {"none": "", "tail": "fraction", "polynomial": "power", "exponential": "decay"}[averaging.name]
    unread = [key for key in ("fraction", "power", "decay") if key != read]
    return _with(averaging, {key: _default(AveragingConfig, key) for key in unread})


def _default(section: type[Any], key: str) -> Any:
    return section.model_fields[key].default


def _with(section: _Section, changes: Mapping[str, Any]) -> _Section:
    """``section`` with ``changes``; itself where they change nothing: a sweep resolves every run more than once."""
    differing = {key: value for key, value in changes.items() if not _same(getattr(section, key), value)}
    return section.model_copy(update=differing) if differing else section


def _same(one: Any, other: Any) -> bool:
    """The same section, or equal values of one type: 1 and 1.0 are written differently into an id."""
    if one is other or isinstance(one, Section):
        return one is other
    return type(one) is type(other) and bool(one == other)
