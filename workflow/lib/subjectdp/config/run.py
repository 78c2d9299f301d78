"""The configuration of one run: a constructed ``RunConfig`` is valid and knows its ids.

Rules between keys are checked before anything is computed, and all reported at once. Those of the privacy plan are in
:mod:`subjectdp.plan.rules`, where ``make_plan`` checks them too.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Self

from pydantic import model_validator

from subjectdp.algorithms.registry import ALGORITHMS, algorithm, check_labels, is_private
from subjectdp.config import resolve
from subjectdp.config.messages import raise_all, unknown_key, validated
from subjectdp.config.sections import DataConfig, EmbeddedConfig, RunSections
from subjectdp.data.catalogue import DATASETS, Source
from subjectdp.errors import ConfigError, SubjectDPError, expected, unknown
from subjectdp.io.printing import flattened
from subjectdp.models.catalogue import MODELS, model_names, model_parameters
from subjectdp.plan import rules as plan_rules
from subjectdp.plan.plan import AccountingMode, Horizontal, NoiseDistribution, PrivacyUnit


class RunConfig(RunSections):
    """One training run, in canonical form (:mod:`config.resolve`).

    Ranges are checked by field, combinations by :func:`check_run`; then defaults that depend on other keys are filled
    in, once and for all.
    """

    @model_validator(mode="after")
    def _check_and_resolve(self) -> Self:
        check_run(self)
        resolved = resolve.resolve_defaults(self)
        self.__dict__.update({name: getattr(resolved, name) for name in type(self).model_fields})
        return self

    @property
    def run_id(self) -> str:
        """Id of the run, e.g. ``femnist-higrad_avg_dp-v1-s0-3f09a1c2d4``; the same for any way to write it."""
        name = "-".join(filter(None, (self.algorithm.name, self.algorithm.variant)))
        others = self.model_dump(exclude_defaults=True, exclude={"data", "performance"})
        return f"{self.data.dataset}-{name}-s{self.seed}-{resolve.id_digest([resolve.data_content(self.data), others])}"

    @property
    def partition_id(self) -> str:
        """Id of its partition (data, split, silos and seed), e.g. ``femnist-uniform-16-s0-3f09a1c2d4``."""
        partition = self.partition
        shape = str(partition.distribution) + (f"{partition.alpha:g}" if partition.distribution == "power" else "")
        content = [self.seed, resolve.data_content(self.data), partition.model_dump(exclude_defaults=True)]
        return f"{self.data.dataset}-{shape}-{partition.silos}-s{self.seed}-{resolve.id_digest(content)}"

    @property
    def data_key(self) -> str:
        """Id of the prepared data that this run uses."""
        return resolve.data_key(self.data)


def load_run(content: Mapping[str, Any], prefix: str = "") -> RunConfig:
    """The run of a nested mapping such as a ``config.json``. Raises ConfigError as :func:`validated`."""
    return validated(RunConfig, content, prefix)


check_labels()
VARIANTS_OF_ALGORITHM: dict[str, tuple[str, ...]] = {
    name: known for name in ALGORITHMS if (known := tuple(v for v in algorithm(name).variants if v is not None))
}
"""Variants of the algorithms that have any; the first is the default."""

WITHOUT_EFFECT = ("privacy.horizontal",)
"""Special keys that an algorithm may leave unread: LocalItemDP's items are at one silo each, whatever the rule."""

_USUAL = RunSections()
Rule = tuple[object, str, Any, str]  # whether a rule is broken, the key, its value, and what is allowed


def check_run(run: RunSections) -> None:
    """Raises one ConfigError, a line for each rule that ``run`` breaks."""
    wrong_variant = list(_variant(run))  # without its mechanism no other rule can be checked
    problems = wrong_variant or [*_unread(run), *_problems(resolve.without_unread_keys(run))]
    if problems:
        raise ConfigError("\n".join(str(problem) for problem in problems))


def check_data(data: DataConfig) -> None:
    """As :func:`check_run`, of the rules that the section ``data`` alone can break."""
    run, rules = RunSections(data=data), _broken(_source(data))
    raise_all(str(problem) for problem in (*_left_out(run, _unread_data(data)), *rules))


def _problems(run: RunSections) -> Iterator[SubjectDPError]:
    yield from _broken(itertools.chain(_model(run), _source(run.data), _partition(run), _schedule(run)))
    yield from _model_parameters(run)
    capped = run.partition.max_items_per_subject is not None
    yield from plan_rules.problems(resolve.mechanism_of(run), resolve.plan_settings(run), run.partition.silos, capped)


def _broken(rules: Iterable[Rule]) -> Iterator[SubjectDPError]:
    return (expected(key, value, allowed) for broken, key, value, allowed in rules if broken)


def _variant(run: RunSections) -> Iterator[SubjectDPError]:
    name, variant = run.algorithm.name, run.algorithm.variant
    if variant is None:
        return
    known = VARIANTS_OF_ALGORITHM.get(name, ())
    if not known:
        yield expected("algorithm.variant", variant, f"null ({name} has no variants)")
    elif variant not in known:
        yield unknown(f"algorithm.variant of {name}", variant, known)


def _unread(run: RunSections) -> Iterator[SubjectDPError]:
    # decision 0022; the section privacy has no effect on FedAvg, which claims none
    allowed = {key for key, _ in _idle(run) if key.startswith("privacy.") and not is_private(run.algorithm.name)}
    return _left_out(run, ((key, when) for key, when in _idle(run) if key not in allowed.union(WITHOUT_EFFECT)))


def _idle(run: RunSections) -> Iterator[tuple[str, str]]:
    """The keys that nothing reads in a run, and when."""
    others, when = resolve.unread_keys(run.algorithm.name), f"when algorithm.name is {run.algorithm.name}"
    yield from ((f"{section}.{key}", when) for section, defaults in others.items() for key in defaults)
    yield from itertools.chain(_unread_data(run.data), _unread_choices(run))


def settings_read(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value of a recorded configuration: of keys that its run reads, or all of another version's."""
    settings = dict(flattened(dict(config)))
    try:
        idle = dict(_idle(load_run(config)))
    except ConfigError:
        return settings
    return {key: value for key, value in settings.items() if key not in idle}


def _left_out(run: RunSections, idle: Iterable[tuple[str, str]]) -> Iterator[SubjectDPError]:
    # a line for each key that nothing reads (and when) whose value is not its default
    for key, when in idle:
        value, usual = (attrgetter(key)(each) for each in (run, _USUAL))
        if value != usual:
            shown = {"None": "null", "False": "false", "()": "[]"}.get(str(usual), str(usual))
            yield expected(key, value, f"{shown} {when} (not read)")


def _unread_data(data: DataConfig) -> Iterator[tuple[str, str]]:
    """The keys of ``data`` that its source and data set do not read, and when."""
    bug, when, of_table = "duplicate_first_image_bug", f"when data.source is {data.source}", data.source == Source.TABLE
    keys = [] if data.source == Source.EMBEDDED else [f"embedded.{key}" for key in EmbeddedConfig.model_fields]
    keys += [] if of_table else ["label", "silo", "columns", "drop", "missing", "ranges", "task"]
    keys += [] if of_table or (data.source == Source.LEAF_JSON and data.subject == "none") else ["subject"]
    keys += [bug] if data.source == Source.LEAF_JSON else []
    yield from ((f"data.{key}", when) for key in keys)
    if data.dataset != "femnist":
        yield f"data.{bug}", f"when data.dataset is {data.dataset}"


def _unread_choices(run: RunSections) -> Iterator[tuple[str, str]]:
    """The keys that belong to another choice than the run's, and when."""
    training, optimizer = run.training, run.training.optimizer.name
    name, kind = run.algorithm.name, resolve.distribution_of(run)
    given = run.privacy.noise_multiplier is not None and is_private(name)
    choices = [
        (given, "privacy.epsilon", "when privacy.noise_multiplier is given"),
        (kind != "power", "partition.alpha", "unless partition.distribution is power"),
        (kind != "inherent", "data.silo", f"when partition.distribution is {kind}"),
        (run.joint.noise == NoiseDistribution.GAUSSIAN, "joint.bits", "unless joint.noise is skellam"),
        (training.silos_per_round is None, "training.silo_choice", "unless training.silos_per_round is given"),
        (training.sampling_fraction is not None, "training.batch_size", "when training.sampling_fraction is given"),
        (training.local_steps is not None, "training.local_epochs", "when training.local_steps is given"),
        (algorithm(name).one_step_per_round, "training.local_epochs", f"when algorithm.name is {name}"),
        (optimizer == "sgd", "training.optimizer.momentum", "unless training.optimizer.name is momentum or adam"),
    ]
    return ((key, when) for unread, key, when in choices if unread)


def _model(run: RunSections) -> Iterator[Rule]:
    fitting, name = model_names(DATASETS[run.data.dataset].kind), run.model.name
    allowed = f"{' or '.join(fitting)} when data.dataset is {run.data.dataset}"
    yield name not in (None, *fitting), "model.name", name, allowed


def _model_parameters(run: RunSections) -> Iterator[SubjectDPError]:
    name = resolve.model_of(run)
    facts, given = MODELS[name], run.model.parameters
    for key, value in given.items():
        if key not in facts.parameters:
            yield unknown_key(f"model.parameters.{key}", [f"model.parameters.{one}" for one in facts.parameters])
        elif not facts.parameters[key].allows(value):
            allowed = f"{facts.parameters[key].allowed} when model.name is {name}"
            yield expected(f"model.parameters.{key}", value, allowed)
    chosen = model_parameters(name, given)
    if facts.not_all_zero and not any(chosen[key] for key in facts.not_all_zero):
        first, *others = facts.not_all_zero
        yield expected(f"model.parameters.{first}", 0, f"at least 1 where {' and '.join(others)} is 0")
    if facts.not_both and all(chosen[key] for key in facts.not_both):
        first, other = facts.not_both
        yield expected(f"model.parameters.{first}", chosen[first], f"0 where {other} is not 0")


def _source(data: DataConfig) -> Iterator[Rule]:
    facts, when = DATASETS[data.dataset], f"when data.source is {data.source}"
    of_table, embedded = data.source == Source.TABLE, data.source == Source.EMBEDDED
    sources = f"{' or '.join(facts.sources)} when data.dataset is {data.dataset}"
    yield data.source not in facts.sources, "data.source", data.source, sources
    place = "the CSV or parquet file" if of_table else "the folder or zip of LEAF's JSON"
    yield data.source.in_place and data.path is None, "data.path", None, f"{place} {when}"
    yield of_table and data.label is None, "data.label", None, f"the name of a column {when}"
    for name, (least, largest) in data.ranges.items():
        yield not least < largest, f"data.ranges.{name}", [least, largest], "two numbers, the smaller one first"
    yield embedded and data.path is not None, "data.path", data.path, f"null {when} (did you mean leaf_json?)"
    most = data.embedded.subjects * (data.embedded.items_per_subject if data.own_subjects else 1)
    allowed = f"at most data.embedded.subjects ({most})"
    too_many = data.subjects is not None and data.subjects > most
    yield embedded and too_many, "data.subjects", data.subjects, allowed


def _partition(run: RunSections) -> Iterator[Rule]:
    partition, data, mechanism = run.partition, run.data, resolve.mechanism_of(run)
    held, kind = partition.silos_per_subject, resolve.distribution_of(run)
    key, when = "partition.silos_per_subject", f"when partition.distribution is {kind}"
    yield held is not None and held > partition.silos, key, held, f"at most partition.silos ({partition.silos})"
    yield kind in ("equal", "inherent") and held not in (None, partition.silos), key, held, f"null {when}"
    of_table = data.source == Source.TABLE
    named = kind != "inherent" or DATASETS[data.dataset].silos or data.silo is not None
    wanted = "another, or data.silo" if of_table else "another"
    allowed = f"{wanted} when data.dataset is {data.dataset} (it names no silos)"
    yield not named, "partition.distribution", "inherent", allowed
    anonymous = data.own_subjects and mechanism.claimed_unit is PrivacyUnit.SUBJECT
    reason = f"when algorithm.name is {mechanism.algorithm} (privacy unit: subject)"
    yield anonymous and of_table, "data.subject", None, f"the name of a column {reason}"
    known = ", ".join(name for name, facts in DATASETS.items() if not facts.own_subjects)
    allowed = f"one that names subjects ({known}) {reason}"
    yield anonymous and not of_table, "data.dataset", data.dataset, allowed


def _schedule(run: RunSections) -> Iterator[Rule]:
    training, mechanism, steps = run.training, resolve.mechanism_of(run), run.training.local_steps
    fewer = mechanism.horizontal_composition and run.privacy.mode == AccountingMode.AS_PUBLISHED
    fewer = fewer and run.privacy.horizontal == Horizontal.ROUNDS_OVER_SQRT_S
    limits = (run.partition.silos, run.partition.silos_per_subject, training.silos_per_round)
    involved = min(limit for limit in limits if limit is not None)
    least = math.isqrt(involved - 1) + 1
    allowed = f"at least {least} (rounds_over_sqrt_s executes floor(R/sqrt({involved})) rounds)"
    yield fewer and training.rounds < least, "training.rounds", training.rounds, allowed
    allowed = f"1 or null when algorithm.name is {mechanism.algorithm} (one mini-batch a silo and round)"
    yield mechanism.one_step_alone and steps not in (None, 1), "training.local_steps", steps, allowed
    name, integers = training.optimizer.name, run.joint.noise == NoiseDistribution.SKELLAM
    allowed = "sgd when joint.noise is skellam (updates are sums of noisy integers)"
    yield integers and name != "sgd", "training.optimizer.name", name, allowed
    allowed = "sgd when joint.fused_steps are given (an update is the sum of its steps)"
    yield bool(run.joint.fused_steps) and name != "sgd", "training.optimizer.name", name, allowed


_APART = ("data.dataset", "algorithm.name", "algorithm.variant")
_OF_ALL_SILOS = ("partition.silos_per_subject", "training.silos_per_round")  # null means as many as there are


def settings_apart(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Run id -> the settings in which runs of its data set and algorithm differ, as ``name=value`` with commas.

    Defaults are left out, numbers of silos that are all of them too; so are the seed, which the id shows, and
    ``performance``. ``configs`` are run configurations as manifests hold them, of this version or an older one.
    """
    without = ("seed", "performance")
    kept = {run_id: {key: config[key] for key in config if key not in without} for run_id, config in configs.items()}
    flat = {run_id: dict(flattened(settings)) for run_id, settings in kept.items()}
    usual = dict(flattened(RunConfig().model_dump(mode="json")))
    family = {run_id: tuple(settings.get(key) for key in _APART) for run_id, settings in flat.items()}
    values: dict[tuple[Any, ...], set[str]] = {}
    for run_id, settings in flat.items():
        for key, value in settings.items():
            values.setdefault((family[run_id], key), set()).add(repr(value))

    def differing(run_id: str) -> Iterator[str]:
        defaults = usual | dict.fromkeys(_OF_ALL_SILOS, flat[run_id].get("partition.silos"))
        for key, value in flat[run_id].items():
            if len(values[family[run_id], key]) > 1 and value != defaults.get(key):
                yield f"{key.rpartition('.')[2]}={f'{value:g}' if isinstance(value, float) else value}"

    return {run_id: ", ".join(differing(run_id)) for run_id in flat}
