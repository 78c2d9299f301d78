"""The canonical form of a run, its ids, and what the privacy plan takes from it.

Resolving fills in defaults that depend on other keys, and sets keys that nothing reads back to their defaults: two ways
to write the same run resolve to the same object, hence to the same run id and the same ``config.json``.

Ids of prepared data, partitions and runs are a readable prefix and ten hex digits of a hash of what differs from the
defaults in the resolved run: a new key at its default changes none. Left out are ``performance`` (speed and memory
only), ``data.expected`` (a check) and the location of the data. Of ``data.path`` the last component counts for
``leaf_json`` and ``table`` (moved data keep their results), nothing for ``upstream`` (verified by hash). The sha256 of
the content is recorded with the prepared data and in every run's manifest.

``data.subjects``, ``data.validation_fraction`` and the seed belong to the partition, so that many partitions share one
download and one preparation.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import PurePath
from typing import Any, TypeVar

from subjectdp.algorithms.registry import algorithm
from subjectdp.config.sections import DataConfig, RunSections, Section, TrainingConfig
from subjectdp.data.catalogue import DATASETS, held_out
from subjectdp.errors import expected
from subjectdp.models.catalogue import model_names
from subjectdp.plan.plan import Accountant, Mechanism, NoiseDistribution, PlanSettings, SamplingMethod, SubjectSettings

VARIABLES = ("HOME", "USER", "LOGNAME", "PWD", "TMPDIR", "SLURM_TMPDIR", "SCRATCH", "WORK", "PROJECT", "DATA")
"""Variables that data.path may name beside ``SUBJECTDP_*``. Paths are written into records and messages, so that they
must not carry other parts of the environment (tokens, passwords)."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

_Section = TypeVar("_Section", bound=Section)
_Run = TypeVar("_Run", bound=RunSections)


def resolve_defaults(run: _Run) -> _Run:
    """The canonical form of ``run``; raises ConfigError where ``data.path`` names an unset variable."""
    run = without_unread_keys(run)
    chosen, partition, data = run.algorithm, run.partition, run.data
    held = partition.silos if partition.silos_per_subject is None else partition.silos_per_subject
    variant = algorithm(chosen.name).variants[0] if chosen.variant is None else chosen.variant
    path = None if data.path is None else _resolve_path(data.path, data.source)
    return _with_keys(
        run,
        {
            "data": {"test_fraction": held_out(data.dataset, data.test_fraction), "path": path},
            "partition": {"distribution": distribution_of(run), "silos_per_subject": held},
            "algorithm": {"variant": variant},
            "joint": {} if any(count > 1 for count in run.joint.fused_steps) else {"fused_steps": ()},
            "training": _of_training(run),
            "model": {"name": model_of(run)},
        },
    )


def without_unread_keys(run: _Run) -> _Run:
    """``run`` with the keys that its algorithm does not read at their defaults."""
    return _with_keys(run, unread_keys(run.algorithm.name))


@cache
def unread_keys(algorithm_name: str) -> dict[str, dict[str, Any]]:
    """Section -> key -> default, of keys that the algorithm does not read."""
    known, unread = algorithm(algorithm_name), {}
    for name in ("privacy", "joint", "subject"):
        idle = name == "privacy" and not known.is_private
        defaults = dict(RunSections.model_fields[name].default)
        unread[name] = {k: v for k, v in defaults.items() if idle or not known.reads_key(f"{name}.{k}")}
    return unread


def distribution_of(run: RunSections) -> str:
    """How a subject's items are distributed over the silos: a column of silos is used unless another way is chosen."""
    chosen = "distribution" in run.partition.model_fields_set
    return "inherent" if run.data.silo is not None and not chosen else run.partition.distribution


def model_of(run: RunSections) -> str:
    """The model's name; LEAF's for the kind of data where none is given."""
    usual: str = model_names(DATASETS[run.data.dataset].kind)[0]
    return usual if run.model.name is None else run.model.name


def _resolve_path(path: str, source: str) -> str | None:
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
            allowed = f"a path with no variables but SUBJECTDP_* and {', '.join(VARIABLES)} (${name} is not read)"
            raise expected("data.path", path, allowed)
        value = os.environ.get(name)
        if default is not None:
            return value if value else default
        if value is None:
            raise expected("data.path", path, f"a path whose variables are set (${name} is not)")
        return value

    return os.path.expanduser(_VARIABLE.sub(value_of, path))


def _of_training(run: RunSections) -> dict[str, Any]:
    training, known = run.training, algorithm(run.algorithm.name)
    changes: dict[str, Any] = {}
    if training.silos_per_round is None:
        changes["silos_per_round"] = run.partition.silos
    if training.silos_per_round in (None, run.partition.silos):
        changes["silo_choice"] = TrainingConfig.model_fields["silo_choice"].default
    if known.one_step_per_round and training.local_steps is None:
        changes["local_steps"] = 1
    if known.samples_subjects or training.sampling_fraction is not None:
        changes["batch_size"] = TrainingConfig.model_fields["batch_size"].default
    return changes


def _with(section: _Section, changes: Mapping[str, Any]) -> _Section:
    differing = {key: value for key, value in changes.items() if getattr(section, key) != value}
    return section.model_copy(update=differing) if differing else section


def _with_keys(run: _Run, changes: Mapping[str, Mapping[str, Any]]) -> _Run:
    return _with(run, {name: _with(getattr(run, name), values) for name, values in changes.items()})


ID_VERSION = 2  # part of every hash; raised when a default or the meaning of a key changes


def data_key(data: DataConfig) -> str:
    """Id of the prepared data, e.g. ``femnist-embedded-3f09a1c2d4``."""
    return f"{data.dataset}-{data.source}-{id_digest(data_content(data, 'subjects', 'validation_fraction'))}"


def data_content(data: DataConfig, *left_out: str) -> dict[str, Any]:
    """What of the data enters an id."""
    content: dict[str, Any] = data.model_dump(exclude_defaults=True, exclude={"path", "expected", *left_out})
    if data.source.in_place and data.path is not None:
        content["name"] = PurePath(data.path).name
    return content


def id_digest(ingredients: Any) -> str:
    text = json.dumps([ID_VERSION, ingredients], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def mechanism_of(run: RunSections) -> Mechanism:
    """What the run's algorithm does in its mode, with the run's clipping and trust model."""
    known = algorithm(run.algorithm.name, run.algorithm.variant)
    chosen = known.mechanism(run.algorithm.variant, run.privacy.mode)
    if run.joint.clipping == "update" and known.of_updates is not None:
        chosen = known.of_updates
    return replace(chosen, trust=run.subject.trust) if known.reads_key("subject.trust") else chosen


def plan_settings(run: RunSections) -> PlanSettings:
    """The privacy and schedule settings of a resolved run: keys of the same name and meaning, others translated."""
    joint, training, accountant = run.joint, run.training, run.privacy.accountant
    integers = joint.noise == NoiseDistribution.SKELLAM and accountant == Accountant.RDP
    steps = 1 if training.local_steps is None else training.local_steps
    settings = {
        **_same_names(PlanSettings, joint, training, run.privacy),
        "accountant": Accountant.RDP_INTEGER if integers else accountant,
        "linear_updates": training.optimizer.name != "adam",
        "noise_distribution": joint.noise,
        "gradient_bits": joint.bits,
        "subject": SubjectSettings(**_same_names(SubjectSettings, run.subject), local_steps=steps),
    }
    if training.sampling == SamplingMethod.POISSON and algorithm(run.algorithm.name).samples_subjects:
        settings["sampling"] = SamplingMethod.POISSON_SUBJECTS
    return PlanSettings(**settings)


def _same_names(settings: type[Any], *sections: Section) -> dict[str, Any]:
    names = {field.name for field in fields(settings)}
    return {key: getattr(each, key) for each in sections for key in type(each).model_fields if key in names}
