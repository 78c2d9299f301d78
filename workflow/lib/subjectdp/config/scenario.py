"""Scenario files: a name, partial run configurations, axes to sweep and the figures to draw.

A run is built by merging, later over earlier: the defaults, ``run``, ``datasets.<data set>``, ``algorithms.<name>``,
``algorithms.<name:variant>`` (each with its own ``datasets.<data set>`` right after it) and the values of its place in
the sweep.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.config.messages import MOST_LINES, config_error, join_errors, unknown_key
from subjectdp.config.overrides import (
    RUN_KEYS,
    check_overrides,
    merge,
    normalised,
    set_dotted,
)
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.sections import DataConfig, Section
from subjectdp.errors import ConfigError, expected
from subjectdp.io.yaml_files import check_tree, read_yaml
from subjectdp.plan.ranges import NaturalNumber

Figure = Literal[
    "figure1",
    "figure2",
    "figure3",
    "figure1_v3",
    "figure2_v3",
    "figure3_v3",
    "privacy",
    "accuracy_privacy",
    "epsilon_over_rounds",
    "excess_loss",
    "cost",
    "audit",
    "joint_noise",
    "joint_counterexample",
    "beyond_epsilon",
    "beyond_subjects",
    "beyond_noise",
    "beyond_rounds",
    "beyond_spread",
    "group_sizes_paper_scale",
    "subjects_per_batch_paper_scale",
    "partition",
]
"""Names in ``subjectdp.figures.catalogue`` (a test holds the two together)."""

LARGEST_SWEEP = 100_000
"""Runs of the largest scenario."""

RESERVED_NAMES = ("bench", "benchmarks", "cache", "data", "logs", "partitions", "runs")
"""Folders under ``results`` that no scenario may be called."""


class AuditConfig(Section):
    """How the algorithms are audited (rule ``audit``)."""

    size: Literal["small", "full"] = Field(
        default="full",
        description="full: the papers' number of steps, minutes; small: few steps and runs, under a minute.",
    )
    seed: NaturalNumber = Field(default=0, description="Root seed of the audits.")


class Scenario(Section):
    """A checked scenario; its runs are resolved, in a stable order, each once."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")] = Field(
        description="Name of the folder under results; lower case letters, digits, - and _."
    )
    description: Annotated[str, Field(max_length=2000)] = Field(
        default="", description="What the scenario is for."
    )
    synthetic_note: Annotated[str, Field(max_length=2000)] | None = Field(
        default=None, description="Text shown beside results that rest on generated data."
    )
    run: dict[str, Any] = Field(default={}, description="Partial run configuration, over the defaults.")
    datasets: dict[str, Any] = Field(
        default={}, description="Per data set: partial run configuration, over run."
    )
    algorithms: dict[str, Any] = Field(
        default={},
        description="Per algorithm (name or name:variant): partial run configuration, over datasets; may "
        "hold datasets again, for one algorithm on one data set.",
    )
    sweep: list[dict[str, Any]] = Field(
        default=[],
        description="Blocks; the runs of a block are all combinations of its axes (dotted key: value or list "
        "of values). A block's name is a label only. No block: one run.",
    )
    figures: list[Figure] = Field(default=[], description="Figures that the scenario draws.")
    selections: dict[Figure, dict[str, Any]] = Field(
        default={},
        description="Per figure: the runs it shows, as dotted key: value (or list of values); null selects "
        "what is null. A figure without an entry shows all runs; an entry of a figure that is not drawn does nothing.",
    )

    audit: AuditConfig = Field(
        default=AuditConfig(), description="The audits of the algorithms, made where a figure wants them."
    )

    @cached_property
    def runs(self) -> tuple[RunConfig, ...]:
        """All runs, resolved, each once; raises ConfigError with a line for each problem."""
        return tuple(self.runs_by_id.values())

    @cached_property
    def runs_by_id(self) -> dict[str, RunConfig]:
        """Run id -> run, in the order of the sweep."""
        total = sum(math.prod(len(_values(value)) for value in block.values()) for block in self.sweep)
        if total > LARGEST_SWEEP:
            raise expected("number of runs in sweep", total, f"at most {LARGEST_SWEEP}")
        return _expanded(self)

    def runs_of_figure(self, figure: str) -> tuple[RunConfig, ...]:
        """The runs that ``figure`` shows, by the scenario's selections; all runs without a selection."""
        selections: dict[str, dict[str, Any]] = {str(name): value for name, value in self.selections.items()}
        return tuple(run for run in self.runs if _fits(run, selections.get(figure, {})))

    @cached_property
    def datasets_by_key(self) -> dict[str, DataConfig]:
        """Data key -> data section of the first run that uses it, in the order of the runs."""
        found: dict[str, DataConfig] = {}
        for run in self.runs:
            found.setdefault(run.data_key, run.data)
        return found

    @cached_property
    def partitions_by_id(self) -> dict[str, RunConfig]:
        """Partition id -> the first run that trains on it; its seed, data and partition determine the partition."""
        partitions: dict[str, RunConfig] = {}
        for run in self.runs:
            partitions.setdefault(run.partition_id, run)
        return partitions


def load_scenario(paths: Sequence[Path | str] | Path | str) -> Scenario:
    """Reads scenario files as overlays (mappings merge, anything else replaces), checks and expands them."""
    files = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not files:
        raise ConfigError("Expected at least one scenario file.")
    content: dict[str, Any] = {}
    for file in files:
        content = merge(content, read_yaml(file))
    return load_scenario_from_mapping(content)


def load_scenario_from_mapping(content: Mapping[str, Any]) -> Scenario:
    """Checks and expands a scenario that has been read already (Snakemake's ``config``).

    Raises ConfigError with a line for each problem in any run of the sweep: unknown keys, values out of range,
    combinations that do not fit.
    """
    if not isinstance(content, Mapping):
        raise expected("the scenario", type(content).__name__, "a mapping (key: value)")
    content = dict(content)
    check_tree(content, "the scenario")
    try:
        scenario = Scenario.model_validate(content)
    except ValidationError as problem:
        raise config_error(problem, Scenario) from None
    if scenario.name in RESERVED_NAMES:
        raise expected("name", scenario.name, f"none of {', '.join(RESERVED_NAMES)}")
    check_overrides(scenario.run, scenario.datasets, scenario.algorithms, scenario.sweep)
    _ = scenario.datasets_by_key, scenario.partitions_by_id
    _check_selections(scenario)
    return scenario


def expand_runs(scenario: Scenario) -> list[RunConfig]:
    """The resolved runs of a scenario in stable order, duplicates merged."""
    return list(scenario.runs)


def _expanded(scenario: Scenario) -> dict[str, RunConfig]:
    """Run id -> resolved run, in the order of the sweep; raises ConfigError with each problem once."""
    builder = _Builder(scenario)
    runs: dict[str, RunConfig] = {}
    sources: dict[str, DataConfig] = {}
    problems: dict[str, None] = {}
    for assignment in _assignments(scenario.sweep):
        try:
            run = load_run(builder.content(assignment))
            _require_one_source(run, sources)
        except ConfigError as problem:
            problems.update(dict.fromkeys(str(problem).split("\n")))
            if len(problems) > MOST_LINES:
                break
            continue
        runs.setdefault(run.run_id, run)
    if problems:
        raise join_errors(problems)
    return runs


def _assignments(sweep: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of every block, as dotted key -> value."""
    for block in sweep or [{}]:
        axes = {key: _values(value) for key, value in block.items() if key != "name"}
        for values in itertools.product(*axes.values()):
            yield dict(zip(axes, values, strict=True))


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _require_one_source(run: RunConfig, sources: dict[str, DataConfig]) -> None:
    """Refuses a run that shares its data key with another one, but not path and expected counts."""
    data, first = run.data, sources.setdefault(run.data_key, run.data)
    if first.path != data.path:
        raise expected("data.path", data.path, f"the same as that of the other runs ({first.path!r})")
    if first.expected != data.expected:
        value, other = (each.expected.model_dump(exclude_none=True) for each in (data, first))
        raise expected("data.expected", value, f"the same as that of the other runs ({other})")


class _Builder:
    """Builds the mapping of each run. Runs of one data set and algorithm share what is merged for these."""

    def __init__(self, scenario: Scenario) -> None:
        self._run = normalised(scenario.run)
        self._datasets = scenario.datasets
        self._algorithms = scenario.algorithms
        self._bases: dict[tuple[str, str, str | None], dict[str, Any]] = {}

    def content(self, assignment: Mapping[str, Any]) -> dict[str, Any]:
        """The nested mapping of the run at one place of the sweep."""
        content = self._base(self._choices(assignment))
        for key, value in assignment.items():
            content = set_dotted(content, key, value)
        return content

    def _choices(self, assignment: Mapping[str, Any]) -> tuple[str, str, str | None]:
        """(data set, algorithm, variant) that the overrides are chosen by; the values are not checked yet."""
        sections = ("data", "algorithm")
        chosen = {key: self._run[key] for key in sections if isinstance(self._run.get(key), Mapping)}
        for key, value in assignment.items():
            if key.partition(".")[0] in sections:
                chosen = set_dotted(chosen, key, value)
        data, found = (value if isinstance(value := chosen.get(key), Mapping) else {} for key in sections)
        name, variant = found.get("name", "fed_avg"), found.get("variant")
        if variant is None and isinstance(name, str) and name in ALGORITHMS:
            variant = algorithm(name).variants[0]
        return str(data.get("dataset", "femnist")), str(name), variant if isinstance(variant, str) else None

    def _base(self, choices: tuple[str, str, str | None]) -> dict[str, Any]:
        """``run`` with the overrides of a data set and an algorithm."""
        if choices not in self._bases:
            content = self._run
            for override in self._overrides(*choices):
                content = merge(content, normalised(override))
            self._bases[choices] = content
        return self._bases[choices]

    def _overrides(self, dataset: str, name: str, variant: str | None) -> Iterator[Mapping[str, Any]]:
        yield self._datasets.get(dataset) or {}
        for key in (name, f"{name}:{variant}"):
            override = dict(self._algorithms.get(key) or {})
            nested = override.pop("datasets", {})
            yield override
            yield nested.get(dataset) or {}


def _check_selections(scenario: Scenario) -> None:
    """Refuses selections by unknown keys, and those of drawn figures that fit no run.

    A selection of a figure that is not drawn has no effect, since an overlay may draw fewer figures than the scenario
    below it.
    """
    problems: list[str] = []
    for figure, selection in scenario.selections.items():
        prefix = f"selections.{figure}"
        wrong = [str(unknown_key(f"{prefix}.{key}", RUN_KEYS)) for key in selection if key not in RUN_KEYS]
        problems.extend(wrong)
        if figure in scenario.figures and not wrong and not scenario.runs_of_figure(figure):
            problems.append(str(expected(prefix, dict(selection), "a selection that fits at least one run")))
    if problems:
        raise join_errors(problems)


def _fits(run: RunConfig, selection: Mapping[str, Any]) -> bool:
    """Whether each dotted key of ``selection`` has (one of) its values in the resolved ``run``."""
    return all(_value(run, key) in _accepted(key, wanted) for key, wanted in selection.items())


def _accepted(key: str, wanted: Any) -> list[Any]:
    values = _values(wanted)
    return [tuple(str(value).split(":")) for value in values] if key == "algorithm" else values


def _value(run: RunConfig, key: str) -> Any:
    """The value of ``key``; an algorithm is compared by name, with its variant where it has one."""
    if key == "algorithm":
        parts = (run.algorithm.name, run.algorithm.variant)
        return tuple(part for part in parts if part is not None)
    value: Any = run
    for part in key.split("."):
        value = getattr(value, part)
    return value
