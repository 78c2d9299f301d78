"""Scenario files: a name, partial run configurations, axes to sweep and the figures to draw.

:mod:`subjectdp.config.layers` builds each run from them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError

from subjectdp.config.layers import RUN_KEYS, Layer, RunBuilder, check_overrides, overlaid
from subjectdp.config.messages import (
    MOST_LINES,
    as_nested,
    config_error,
    error_located_in,
    join_errors,
    unknown_key,
)
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.sections import DataConfig, Section
from subjectdp.errors import ConfigError, expected
from subjectdp.io.yaml_files import check_tree, read_yaml
from subjectdp.places import LIBRARY
from subjectdp.plan.ranges import LARGEST_INTEGER, NaturalNumber

# The list of the figures is a file: this package may not import theirs.
_FIGURES = (LIBRARY / "subjectdp" / "figures" / "figures.csv").read_text(encoding="utf-8").splitlines()[1:]
if TYPE_CHECKING:
    Figure = str
else:
    Figure = Literal[tuple(line.partition(",")[0] for line in _FIGURES)]

LARGEST_SWEEP = 100_000
"""Runs of the largest scenario."""

RESERVED_NAMES = ("bench", "benchmarks", "cache", "data", "logs", "partitions", "runs")
"""Folders under ``results`` that no scenario may be called."""


Combination = tuple[tuple[str, str], ...]
"""The values of a block's axes, as text, at one place of the sweep: (dotted key, value)."""


def values_of_axis(value: Any) -> list[Any]:
    """An axis is a list of values, or one value."""
    return value if isinstance(value, list) else [value]


class _RunMaker:
    def __init__(self, layers: Sequence[Layer]) -> None:
        self._builder = RunBuilder(layers)
        self._known: dict[str, RunConfig] = {}  # by all of an assignment but its seed
        self._sources: dict[str, DataConfig] = {}

    def run(self, assignment: Mapping[str, Any]) -> RunConfig:
        """The run of one combination. Raises ConfigError with a line for each problem."""
        others = repr({key: value for key, value in assignment.items() if key != "seed"})
        seed = assignment.get("seed")
        if others in self._known and type(seed) is int and 0 <= seed <= LARGEST_INTEGER:
            return self._known[others].with_seed(seed)
        run = load_run(self._builder.content(assignment))
        self._require_one_source(run)
        if not self._builder.overrules("seed", assignment):
            self._known[others] = run
        return run

    def _require_one_source(self, run: RunConfig) -> None:
        data, first = run.data, self._sources.setdefault(run.data_key, run.data)
        for key in ("path", "expected"):
            value, other = getattr(data, key), getattr(first, key)
            if value != other:
                raise expected(f"data.{key}", value, f"the same as that of the other runs ({other!r})")


class AuditConfig(Section):
    """How the algorithms are audited (rule ``audit``)."""

    size: Literal["small", "full"] = "full"
    """full: the papers' number of steps, ten minutes; small: few steps and runs, up to four minutes."""
    seed: NaturalNumber = 0
    """Root seed of the audits."""


class Scenario(Section):
    """A checked scenario; its runs are resolved, in a stable order, each once."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
    """Name of the folder under results; lower case letters, digits, - and _."""
    description: Annotated[str, Field(max_length=2000)] = ""
    """What the scenario is for."""
    synthetic_note: Annotated[str, Field(max_length=2000)] | None = None
    """Text shown beside results that rest on generated data."""
    run: dict[str, Any] = {}
    """Partial run configuration, over the defaults."""
    datasets: dict[str, Any] = {}
    """Per data set: partial run configuration, over run."""
    algorithms: dict[str, Any] = {}
    """Per algorithm (name or name:variant): partial run configuration, over datasets; may hold datasets again, for one
    algorithm on one data set."""
    sweep: list[dict[str, Any]] = []
    """Blocks; the runs of a block are all combinations of its axes (dotted key: value or list of values). A block's
    name is a label only. No block: one run."""
    figures: list[Figure] = []
    """Figures that the scenario draws. One that its runs cannot give is refused before anything starts."""
    selections: dict[Figure, dict[str, Any]] = {}
    """Per figure: the runs it shows, as dotted key: value (or list of values); null selects what is null. A figure
    without an entry shows all runs; an entry of a figure that is not drawn does nothing."""

    audit: AuditConfig = AuditConfig()
    """The audits of the algorithms, made where a figure wants them."""
    _layers: tuple[Layer, ...] = PrivateAttr(default=())

    @cached_property
    def runs(self) -> tuple[RunConfig, ...]:
        """All runs, resolved, each once; raises ConfigError with a line for each problem."""
        return tuple(self.runs_by_id.values())

    @cached_property
    def runs_by_id(self) -> dict[str, RunConfig]:
        """Run id -> run, in the order of the sweep."""
        return {run.run_id: run for run in self._combinations.values()}

    @cached_property
    def repetitions(self) -> tuple[str, ...]:
        """A line for each axis that changes nothing for an algorithm, so that combinations of a block are one run."""
        found: dict[tuple[str, str], dict[str, list[Combination]]] = {}
        for (number, values), run in self._combinations.items():
            of_block = found.setdefault((f"sweep[{number}]", run.algorithm.label), {})
            of_block.setdefault(run.run_id, []).append(values)
        lines = []
        for (block, label), by_run in found.items():
            repeated = [same for same in by_run.values() if len(same) > 1]
            pairs = [(one, same[0]) for same in repeated for one in same]
            idle = dict.fromkeys(
                key
                for one, first in pairs
                for (key, value), (_, usual) in zip(one, first, strict=True)
                if value != usual
            )
            if idle:
                runs = f"{len(repeated)} distinct run{'s' if len(repeated) > 1 else ''}"
                lines.append(
                    f"{block}, {label}: {', '.join(idle)} has no effect here: {len(pairs)} combinations, {runs}."
                )
        return tuple(lines)

    @cached_property
    def _combinations(self) -> dict[tuple[int, Combination], RunConfig]:
        blocks = [
            {key: values_of_axis(value) for key, value in block.items() if key != "name"}
            for block in self.sweep or [{}]
        ]
        total = sum(math.prod(map(len, axes.values())) for axes in blocks)
        if total > LARGEST_SWEEP:
            raise expected("number of runs in sweep", total, f"at most {LARGEST_SWEEP}")
        maker, found, problems = _RunMaker(self._layers), dict[Any, RunConfig](), dict[str, None]()
        for number, axes in enumerate(blocks):
            for values in itertools.product(*axes.values()):
                assignment = dict(zip(axes, values, strict=True))
                try:
                    run = maker.run(assignment)
                    found[number, tuple((key, repr(value)) for key, value in assignment.items())] = run
                except ConfigError as problem:
                    problems.update(dict.fromkeys(str(problem).split("\n")))
                if len(problems) > MOST_LINES:
                    break
        if problems:
            raise join_errors(problems)
        return found

    def runs_of_figure(self, figure: str) -> tuple[RunConfig, ...]:
        """The runs that ``figure`` shows, by the scenario's selections; all runs without a selection."""
        selections: dict[str, dict[str, Any]] = {str(name): value for name, value in self.selections.items()}
        return tuple(run for run in self.runs if _fits(run, selections.get(figure, {})))

    def require_figure(self, figure: str) -> None:
        """Raises ConfigError for a figure that the scenario does not draw."""
        if figure not in self.figures:
            drawn = ", ".join(self.figures) or "no figure"
            raise expected(
                "the figure", figure, f"one of the scenario {self.name} ({drawn}), or listed under figures"
            )

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


def load_scenario(
    paths: Sequence[Path | str] | Path | str, given: Mapping[str, Any] | None = None
) -> Scenario:
    """Reads, checks and expands scenario files, each an overlay over those before it; ``given`` is a last overlay.

    Raises ConfigError as :func:`load_scenario_from_layers`, with file and line.
    """
    files = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not files:
        raise ConfigError("Expected at least one scenario file.")
    contents = [read_yaml(file) for file in files]
    with error_located_in(files):
        return load_scenario_from_layers([*contents, given] if given else contents)


def load_scenario_from_mapping(content: Mapping[str, Any]) -> Scenario:
    """As :func:`load_scenario_from_layers`, of one file."""
    return load_scenario_from_layers([content])


def load_scenario_from_layers(contents: Sequence[Mapping[str, Any]]) -> Scenario:
    """Checks and expands scenario files that have been read already, later ones over earlier ones.

    Raises ConfigError with a line for each problem in any run of the sweep: unknown keys, values out of range,
    combinations that do not fit.
    """
    for content in contents:
        if not isinstance(content, Mapping):
            raise expected("the scenario", type(content).__name__, "a mapping (key: value)")
        check_tree(dict(content), "the scenario")
    content = overlaid(contents)
    _check_top_level(content)
    try:
        scenario = Scenario.model_validate(content)
    except ValidationError as problem:
        raise config_error(problem, Scenario) from None
    scenario._layers = tuple(map(Layer.of, contents))
    if scenario.name in RESERVED_NAMES:
        raise expected("name", scenario.name, f"none of {', '.join(RESERVED_NAMES)}")
    check_overrides(scenario.run, scenario.datasets, scenario.algorithms, scenario.sweep)
    _ = scenario.datasets_by_key, scenario.partitions_by_id
    _check_selections(scenario)
    return scenario


def _check_top_level(content: Mapping[str, Any]) -> None:
    problems = []
    for key in content:
        inside = key.removeprefix("run.")
        if inside in RUN_KEYS:
            problems.append(f"Unknown key {key!r}. {as_nested(inside, content[key])}")
        elif key not in Scenario.model_fields:
            problems.append(str(unknown_key(key, Scenario.model_fields, RUN_KEYS)))
    if problems:
        raise join_errors(problems)


def expand_runs(scenario: Scenario) -> list[RunConfig]:
    """The resolved runs of a scenario in stable order, duplicates merged."""
    return list(scenario.runs)


def _check_selections(scenario: Scenario) -> None:
    """Refuses selections by unknown keys, and those of drawn figures that fit no run.

    A selection of a figure that is not drawn has no effect, since an overlay may draw fewer figures than the scenario
    below it.
    """
    problems: list[str] = []
    for figure, selection in scenario.selections.items():
        prefix = f"selections.{figure}"
        wrong = [str(unknown_key(f"{prefix}.{key}", RUN_KEYS)) for key in selection if key not in RUN_KEYS]
        wrong += [
            f"Expected {prefix}.{key} to be values of one key, got a section. Write dotted keys: {key}.KEY: VALUE."
            for key, value in selection.items()
            if isinstance(value, Mapping)
        ]
        problems.extend(wrong)
        if figure in scenario.figures and not wrong and not scenario.runs_of_figure(figure):
            problems.append(str(expected(prefix, dict(selection), "a selection that fits at least one run")))
    if problems:
        raise join_errors(problems)


def _fits(run: RunConfig, selection: Mapping[str, Any]) -> bool:
    return all(_value(run, key) in _accepted(key, wanted) for key, wanted in selection.items())


def _accepted(key: str, wanted: Any) -> list[Any]:
    values = values_of_axis(wanted)
    return [tuple(str(value).split(":")) for value in values] if key == "algorithm" else values


def _value(run: RunConfig, key: str) -> Any:
    if key == "algorithm":
        parts = (run.algorithm.name, run.algorithm.variant)
        return tuple(part for part in parts if part is not None)
    value: Any = run
    for part in key.split("."):
        value = getattr(value, part)
    return value
