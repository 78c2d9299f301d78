"""Scenario files: a name, partial run configurations, axes to sweep and the figures to draw.

A run is built by merging, later over earlier: the defaults, ``run``, ``datasets.<data set>``,
``algorithms.<name>``, ``algorithms.<name:variant>`` (each with its own ``datasets.<data set>`` right after
it) and the values of its place in the sweep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from subjectdp.config import expand, selections
from subjectdp.config.messages import config_error
from subjectdp.config.models import DataConfig, NaturalNumber, RunConfig, Section
from subjectdp.config.overrides import check_partials, merge
from subjectdp.errors import ConfigError, expected
from subjectdp.io.yaml_files import check_tree, read_yaml

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
        """All runs, resolved, duplicates merged; raises ConfigError with a line for each problem."""
        return tuple(self.runs_by_id.values())

    @cached_property
    def runs_by_id(self) -> dict[str, RunConfig]:
        """Run id -> run, in the order of the sweep."""
        return expand.expand(self)

    def runs_of_figure(self, figure: str) -> tuple[RunConfig, ...]:
        """The runs that ``figure`` shows, by the scenario's selections; all runs without a selection."""
        return selections.runs_of_figure(self, figure)

    @cached_property
    def datasets_by_key(self) -> dict[str, DataConfig]:
        """Data key -> data section of the first run that uses it, in the order of the runs."""
        found: dict[str, DataConfig] = {}
        for run in self.runs:
            found.setdefault(run.data_key, run.data)
        return found

    @cached_property
    def partitions_by_id(self) -> dict[str, RunConfig]:
        """Partition id -> the first run that trains on it (its seed, data and partition are what counts)."""
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

    Raises ConfigError with a line for each problem in any run of the sweep: unknown keys, values out of
    range, combinations that do not fit.
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
    check_partials(scenario)
    _ = scenario.datasets_by_key, scenario.partitions_by_id
    selections.check_selections(scenario)
    return scenario


def load_run(content: Mapping[str, Any], prefix: str = "") -> RunConfig:
    """A resolved run from a mapping such as a ``config.json``; raises ConfigError."""
    return expand.build_run(content, prefix)


def expand_runs(scenario: Scenario) -> list[RunConfig]:
    """The resolved runs of a scenario in stable order, duplicates merged."""
    return list(scenario.runs)
