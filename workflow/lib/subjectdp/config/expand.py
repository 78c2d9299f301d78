"""From a scenario to its runs: merge, validate, resolve, name; fast enough for thousands at parse time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from subjectdp.config.messages import config_error, join_errors
from subjectdp.config.models import DataConfig, RunConfig
from subjectdp.config.overrides import merge, normalised, set_dotted
from subjectdp.config.resolve import resolve_defaults
from subjectdp.config.rules import VARIANTS_OF_ALGORITHM
from subjectdp.errors import ConfigError, expected

if TYPE_CHECKING:
    from subjectdp.config.scenario import Scenario

LARGEST_SWEEP = 100_000
"""Runs of the largest scenario."""

_MOST_LINES = 40


def expand(scenario: Scenario) -> dict[str, RunConfig]:
    """Run id -> resolved run, in the order of the sweep; raises ConfigError with each problem once."""
    _check_size(scenario.sweep)
    builder = _Builder(scenario)
    runs: dict[str, RunConfig] = {}
    data: dict[str, DataConfig] = {}
    problems: dict[str, None] = {}
    for assignment in _assignments(scenario.sweep):
        try:
            run = build_run(builder.content(assignment))
            _require_one_source(run.data, data)
        except ConfigError as problem:
            problems.update(dict.fromkeys(str(problem).split("\n")))
            if len(problems) > _MOST_LINES:
                break
            continue
        runs.setdefault(run.run_id, run)
    if problems:
        raise join_errors(problems)
    return runs


def build_run(content: Mapping[str, Any], prefix: str = "") -> RunConfig:
    """A validated and resolved run of a nested mapping; raises ConfigError."""
    try:
        run = RunConfig.model_validate(content)
    except ValidationError as problem:
        raise config_error(problem, RunConfig, prefix) from None
    return resolve_defaults(run)


def _require_one_source(data: DataConfig, found: dict[str, DataConfig]) -> None:
    """Refuses a run that shares its data key with another one, but not path and expected counts."""
    first = found.setdefault(data.data_key, data)
    if first.path != data.path:
        raise expected("data.path", data.path, f"the same as that of the other runs ({first.path!r})")
    if first.expected != data.expected:
        value, other = (each.expected.model_dump(exclude_none=True) for each in (data, first))
        raise expected("data.expected", value, f"the same as that of the other runs ({other})")


class _Builder:
    """Builds the mapping of each run; what runs of one data set and algorithm share is merged once."""

    def __init__(self, scenario: Scenario) -> None:
        self._run = normalised(scenario.run)
        self._datasets = scenario.datasets
        self._algorithms = scenario.algorithms
        self._bases: dict[tuple[Any, Any, Any], dict[str, Any]] = {}

    def content(self, assignment: Mapping[str, Any]) -> dict[str, Any]:
        """The nested mapping of the run at one place of the sweep."""
        content = self._base(self._choices(assignment))
        for key, value in assignment.items():
            content = set_dotted(content, key, value)
        return content

    def _choices(self, assignment: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """(data set, algorithm, variant) that the overrides are chosen by, unchecked."""
        chosen = {
            key: self._run[key] for key in ("data", "algorithm") if isinstance(self._run.get(key), Mapping)
        }
        for key, value in assignment.items():
            if key.partition(".")[0] in ("data", "algorithm"):
                chosen = set_dotted(chosen, key, value)
        algorithm = chosen.get("algorithm")
        algorithm = algorithm if isinstance(algorithm, Mapping) else {}
        data = chosen.get("data")
        dataset = data.get("dataset", "femnist") if isinstance(data, Mapping) else "femnist"
        name, variant = algorithm.get("name", "fed_avg"), algorithm.get("variant")
        if variant is None and isinstance(name, str):
            variant = next(iter(VARIANTS_OF_ALGORITHM.get(name, ())), None)
        return str(dataset), str(name), variant if isinstance(variant, str) else None

    def _base(self, choices: tuple[Any, Any, Any]) -> dict[str, Any]:
        """``run`` with the overrides of a data set and an algorithm."""
        if choices not in self._bases:
            content = self._run
            for partial in self._overrides(*choices):
                content = merge(content, normalised(partial))
            self._bases[choices] = content
        return self._bases[choices]

    def _overrides(self, dataset: str, name: str, variant: str | None) -> Iterator[Mapping[str, Any]]:
        yield self._datasets.get(dataset) or {}
        for key in (name, f"{name}:{variant}"):
            partial = dict(self._algorithms.get(key) or {})
            nested = partial.pop("datasets", {})
            yield partial
            yield nested.get(dataset) or {}


def _assignments(sweep: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of every block, as dotted key -> value."""
    for block in sweep or [{}]:
        axes = [(key, _values(value)) for key, value in block.items() if key != "name"]
        keys = [key for key, _ in axes]
        for values in itertools.product(*(values for _, values in axes)):
            yield dict(zip(keys, values, strict=True))


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _check_size(sweep: list[dict[str, Any]]) -> None:
    total = sum(math.prod(len(_values(value)) for value in block.values()) for block in sweep)
    if total > LARGEST_SWEEP:
        raise expected("number of runs in sweep", total, f"at most {LARGEST_SWEEP}")
