"""The block ``tuning`` of a scenario: a quasi-random search of hyperparameters, and the runs that it tries."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from subjectdp.config.expansion import Expansion
from subjectdp.config.layers import Layer, RunBuilder
from subjectdp.config.private_selection import check_chosen
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.sections import Section
from subjectdp.errors import ConfigError, expected
from subjectdp.plan.ranges import NaturalNumber, OpenFraction, Positive

Objective = Literal["validation_loss", "validation_accuracy"]


class LogRange(Section):
    """Numbers between two ends, searched on a logarithmic scale."""

    low: Positive = Field(description="Smallest value.")
    high: Positive = Field(description="Largest value.")

    @model_validator(mode="after")
    def _is_a_range(self) -> LogRange:
        if self.low >= self.high:
            raise ConfigError(f"Expected high to be larger than low ({self.low:g}), got {self.high:g}.")
        return self

    def at(self, share: float) -> float:
        """The number at this share of the way from low to high, to three digits."""
        value = self.low * (self.high / self.low) ** share
        return float(f"{value:.3g}")


class Tuning(Section):
    """A quasi-random search for each point of the sweep. No ε includes it (compare ``private_selection``)."""

    trials: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=0, description="Settings that are tried for each point of the sweep. 0: no search."
    )
    search: dict[str, LogRange | list[Any]] = Field(
        default={},
        description="Searched keys, of privacy.clip_norm and keys of training, model and subject: each with "
        "{low, high}, spread evenly on a logarithmic scale, or with a list of values.",
    )
    validation_fraction: OpenFraction = Field(
        default=0.3, description="Share of the training items that a trial leaves out and is judged by."
    )
    objective: Objective = Field(
        default="validation_loss", description="What the best trial is best in, after its last round."
    )
    seed: NaturalNumber = Field(default=0, description="Decides which settings are drawn.")

    @property
    def wanted(self) -> bool:
        """Whether anything is searched."""
        return self.trials > 0


@dataclass(frozen=True)
class TuningPoint:
    """Runs of the sweep that differ in seed and searched keys alone, and what is tried for them."""

    settings: Mapping[str, Any]
    seeds: tuple[int, ...]
    """Those that the sweep gives; none where it gives no seed."""
    drawn: tuple[Mapping[str, Any], ...]
    trials: tuple[RunConfig, ...]


def tuning_points(sweep: Expansion, layers: Sequence[Layer], tuning: Tuning) -> tuple[TuningPoint, ...]:
    """The points of a sweep with their trials. A trial has the first seed of its point, hence its test items.

    Raises:
        ConfigError: keys that may not be searched, or a trial that is no possible run.
    """
    if not tuning.search:
        raise expected("tuning.search", {}, "at least one key where tuning.trials is above 0")
    check_chosen("tuning.search", tuning.search)
    builder, points = RunBuilder(layers), []
    for settings, seeds in _grouped(sweep, tuning).values():
        drawn = _draw(tuning, settings)
        apart = {"data.validation_fraction": tuning.validation_fraction}
        first = {"seed": seeds[0]} if seeds else {}
        trials = tuple(load_run(builder.content({**settings, **first, **apart, **each})) for each in drawn)
        points.append(TuningPoint(settings, seeds, drawn, trials))
    return tuple(points)


def _grouped(sweep: Expansion, tuning: Tuning) -> dict[str, tuple[dict[str, Any], tuple[int, ...]]]:
    """Text of a point -> its place in the sweep, and its seeds."""
    points: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {}
    for assignment in sweep.assignments.values():
        settings = {
            key: value for key, value in assignment.items() if key != "seed" and key not in tuning.search
        }
        seeds = (assignment["seed"],) if "seed" in assignment else ()
        name = _name(settings)
        before = points.get(name, (settings, ()))[1]
        points[name] = settings, before + tuple(seed for seed in seeds if seed not in before)
    return points


def _name(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)


def _draw(tuning: Tuning, settings: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Trial i is the same for any number of trials: a search that is made longer keeps what it has."""
    digest = hashlib.sha256(f"tuning\x1f{tuning.seed}\x1f{_name(settings)}".encode()).digest()
    generator = random.Random(int.from_bytes(digest, "little"))
    starts = [generator.random() for _ in tuning.search]
    steps = _steps(len(tuning.search))
    return tuple(
        {
            key: _value(space, (start + trial * step) % 1)
            for (key, space), start, step in zip(tuning.search.items(), starts, steps, strict=True)
        }
        for trial in range(tuning.trials)
    )


def _steps(keys: int) -> list[float]:
    """Steps of Roberts' R_d sequence, which covers a cube of so many dimensions evenly; for one key the golden ratio.

    Source: M. Roberts, *The Unreasonable Effectiveness of Quasirandom Sequences* (2018). Independent draws leave gaps.
    """
    root = 1.5
    for _ in range(60):  # the root of x^(keys + 1) = x + 1
        root = (1 + root) ** (1 / (keys + 1))
    return [root**-power for power in range(1, keys + 1)]


def _value(space: LogRange | list[Any], share: float) -> Any:
    return space.at(share) if isinstance(space, LogRange) else space[int(share * len(space))]
