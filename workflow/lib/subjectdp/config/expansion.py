"""The runs of a sweep: every combination of every block, each run once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from subjectdp.config.layers import Layer, RunBuilder
from subjectdp.config.messages import MOST_LINES, join_errors
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.sections import DataConfig
from subjectdp.errors import ConfigError, expected
from subjectdp.plan.ranges import LARGEST_INTEGER


@dataclass
class _Repetition:
    """Combinations of a block that are fewer runs."""

    keys: dict[str, None] = field(default_factory=dict)  # that differ, in order
    combinations: int = 0
    runs: set[str] = field(default_factory=set)


@dataclass
class Expansion:
    """The runs of a sweep.

    Attributes:
        runs: run id -> resolved run, in the order of the sweep.
        repeated: (block, algorithm) -> its combinations that are one run, since what differs is not read.
    """

    runs: dict[str, RunConfig] = field(default_factory=dict)
    repeated: dict[tuple[str, str], _Repetition] = field(default_factory=dict)
    _first: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)

    def add(self, block: str, assignment: Mapping[str, Any], run: RunConfig) -> None:
        """Adds the run of one combination."""
        self.runs.setdefault(run.run_id, run)
        first = self._first.setdefault((block, run.run_id), assignment)
        if first is assignment:
            return
        found = self.repeated.setdefault((block, run.algorithm.label), _Repetition())
        found.keys |= dict.fromkeys(key for key, value in assignment.items() if value != first[key])
        found.combinations += 1 if run.run_id in found.runs else 2
        found.runs.add(run.run_id)

    @property
    def assignments(self) -> dict[str, Mapping[str, Any]]:
        """Run id -> the first combination of the sweep that is this run."""
        found: dict[str, Mapping[str, Any]] = {}
        for (_, run_id), assignment in self._first.items():
            found.setdefault(run_id, assignment)
        return found

    def repetitions(self) -> tuple[str, ...]:
        """A line for each block and algorithm of which several combinations are one run."""
        return tuple(
            f"{block}, {label}: {', '.join(found.keys)} changes nothing, {found.combinations} combinations are "
            f"{len(found.runs)} run{'s' if len(found.runs) > 1 else ''}."
            for (block, label), found in self.repeated.items()
        )


def expand(sweep: Sequence[Mapping[str, Any]], layers: Sequence[Layer]) -> Expansion:
    """The resolved runs of a sweep; raises ConfigError with each problem once."""
    runs, result = _Runs(RunBuilder(layers)), Expansion()
    sources: dict[str, DataConfig] = {}
    problems: dict[str, None] = {}
    for block, assignment in _assignments(sweep):
        try:
            run = runs.of(assignment)
            _require_one_source(run, sources)
        except ConfigError as problem:
            problems.update(dict.fromkeys(str(problem).split("\n")))
            if len(problems) > MOST_LINES:
                break
            continue
        result.add(block, assignment, run)
    if problems:
        raise join_errors(problems)
    return result


class _Runs:
    """The checked and resolved runs of a sweep. Seeds of one run share checks and defaults: neither reads the seed."""

    def __init__(self, builder: RunBuilder) -> None:
        self._builder = builder
        self._known: dict[str, RunConfig] = {}  # by all of an assignment but its seed

    def of(self, assignment: Mapping[str, Any]) -> RunConfig:
        """The run of one combination. Raises ConfigError with a line for each problem."""
        others = repr({key: value for key, value in assignment.items() if key != "seed"})
        seed = assignment.get("seed")
        if others in self._known and type(seed) is int and 0 <= seed <= LARGEST_INTEGER:
            return self._known[others].with_seed(seed)
        run = load_run(self._builder.content(assignment))
        if not self._builder.overrules("seed", assignment):
            self._known[others] = run
        return run


def values_of_axis(value: Any) -> list[Any]:
    """An axis is a list of values, or one value."""
    return value if isinstance(value, list) else [value]


def _assignments(sweep: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every combination of every block, as dotted key -> value, with the block's place."""
    for number, block in enumerate(sweep or [{}]):
        axes = {key: values_of_axis(value) for key, value in block.items() if key != "name"}
        for values in itertools.product(*axes.values()):
            yield f"sweep[{number}]", dict(zip(axes, values, strict=True))


def _require_one_source(run: RunConfig, sources: dict[str, DataConfig]) -> None:
    """Refuses a run that shares its data key with another one, but not path and expected counts."""
    data, first = run.data, sources.setdefault(run.data_key, run.data)
    if first.path != data.path:
        raise expected("data.path", data.path, f"the same as that of the other runs ({first.path!r})")
    if first.expected != data.expected:
        raise expected(
            "data.expected", data.expected, f"the same as that of the other runs ({first.expected})"
        )
