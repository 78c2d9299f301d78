"""The block ``private_selection`` of a scenario, and the runs that it draws."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Field

from subjectdp.algorithms.registry import algorithm
from subjectdp.config.expansion import Expansion
from subjectdp.config.layers import Layer, RunBuilder
from subjectdp.config.overrides import RUN_KEYS
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.sections import Section
from subjectdp.errors import ConfigError, expected
from subjectdp.plan.plan import AccountingMode, NoiseSource
from subjectdp.plan.ranges import NaturalNumber, Positive

SEEDS_APART = 1000
"""Repetition j of a run with seed s has the seed 1000 (s + 1) + j: its own split, partition, sampling and noise."""

_CHOSEN = ("privacy.clip_norm", "training.", "model.", "subject.")
"""What may be chosen by results: neither data nor partition, nor what the target of privacy is."""


class RepetitionsConfig(Section):
    """How many repetitions there are."""

    distribution: Literal["poisson", "geometric", "logarithmic"] = Field(
        default="poisson",
        description="Distribution of their number. poisson needs the least noise, and may draw 0: then nothing is "
        "trained or released. The other two draw at least 1, logarithmic mostly 1 and sometimes many.",
    )
    mean: Annotated[float, Field(ge=1.0, le=100.0)] = Field(default=3.0, description="Mean of their number.")


class PrivateSelection(Section):
    """Hyperparameters chosen inside the privacy budget, see :mod:`subjectdp.accounting.private_selection`."""

    candidates: dict[str, list[Any]] = Field(
        default={},
        description="Axes as in sweep, of privacy.clip_norm and keys of training, model and subject: each repetition "
        "draws one of all combinations, each as likely as any other. None: no selection.",
    )
    repetitions: RepetitionsConfig = Field(
        default=RepetitionsConfig(), description="How many repetitions: distribution and mean."
    )
    score_noise_multiplier: Positive = Field(
        default=5.0,
        description="Standard deviation of the noise on a model's score: the sum over subjects of the share of a "
        "subject's validation items that the model knows.",
    )
    epsilon: Positive = Field(
        default=4.0,
        description="ε that the whole selection keeps, at the runs' delta, for the algorithm's unit; nothing is "
        "selected where it does not. privacy.epsilon is that of one run (`subjectdp select` tells the largest).",
    )
    seed: NaturalNumber = Field(
        default=0,
        description="Decides the number of repetitions, their settings and the noise of the scores; to be kept secret.",
    )

    @property
    def wanted(self) -> bool:
        """Whether anything is selected."""
        return bool(self.candidates)


@dataclass(frozen=True)
class SelectionGroup:
    """The repetitions of one run of the sweep, of which the best is released."""

    run: RunConfig
    drawn: tuple[Mapping[str, Any], ...]
    runs: tuple[RunConfig, ...]
    candidates: tuple[RunConfig, ...]
    """A run for each setting that may be drawn, with the seed of the first repetition."""


def selection_groups(
    sweep: Expansion, layers: Sequence[Layer], selection: PrivateSelection
) -> tuple[SelectionGroup, ...]:
    """The repetitions of each run of the sweep; none where 0 were drawn.

    Raises:
        ConfigError: candidates that set other keys than they may, a run that cannot be in a selection, or files that
            give all repetitions one seed.
    """
    check_chosen("private_selection.candidates", selection.candidates)
    builder, axes = RunBuilder(layers), selection.candidates
    settings = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    groups = []
    for run_id, assignment in sweep.assignments.items():
        run = sweep.runs[run_id]
        _check_run(run)
        drawn = _draw(selection, settings, run_id)
        first = (run.seed + 1) * SEEDS_APART
        seeds = range(first, first + max(1, len(drawn)))
        runs = [_made(builder, assignment, *pair) for pair in zip(drawn, seeds, strict=False)]
        candidates = [_made(builder, assignment, given, seeds[0]) for given in settings]
        groups.append(SelectionGroup(run, tuple(drawn), tuple(runs), tuple(candidates)))
    return tuple(groups)


def _made(
    builder: RunBuilder, assignment: Mapping[str, Any], given: Mapping[str, Any], seed: int
) -> RunConfig:
    run = load_run(builder.content({**assignment, **given, "seed": seed}))
    if run.seed != seed:
        raise expected("seed", run.seed, "absent from a file that lies over one with private_selection")
    return run


def check_chosen(block: str, keys: Mapping[str, Any]) -> None:
    """Refuses keys that may not be chosen by results, and those without a value to choose."""
    for key, values in keys.items():
        known = key in RUN_KEYS or key.startswith("model.parameters.")
        if not known or not key.startswith(_CHOSEN):
            allowed = "privacy.clip_norm, training.*, model.*, subject.*"
            raise ConfigError(f"Unknown key '{block}.{key}'. Allowed: {allowed}.")
        if values == []:
            raise expected(f"{block}.{key}", values, "a list with at least one value")


def _check_run(run: RunConfig) -> None:
    """Refuses runs that have no ε of their own to begin with."""
    privacy, why = run.privacy, "in a scenario with private_selection"
    if not algorithm(run.algorithm.name).is_private:
        raise expected("algorithm.name", run.algorithm.name, f"one with noise {why}")
    if privacy.mode is not AccountingMode.SOUND:
        raise expected("privacy.mode", str(privacy.mode), f"sound {why}: a claim cannot be composed")
    if privacy.predicted_subjects is not None:
        raise expected("privacy.predicted_subjects", privacy.predicted_subjects, f"null {why}")
    if privacy.noise_source is NoiseSource.SECURE:
        raise expected(
            "privacy.noise_source", "secure", f"reproducible {why}: the seed draws the repetitions"
        )


def _draw(
    selection: PrivateSelection, settings: Sequence[Mapping[str, Any]], run_id: str
) -> list[Mapping[str, Any]]:
    """The settings of the repetitions of a run, in their order."""
    digest = hashlib.sha256(f"private selection\x1f{selection.seed}\x1f{run_id}".encode()).digest()
    generator = random.Random(int.from_bytes(digest, "little"))
    count = draw_number(selection.repetitions, generator.random())
    if count >= SEEDS_APART:
        raise expected("number of repetitions drawn", count, f"below {SEEDS_APART}: no seeds are left")
    return [generator.choice(settings) for _ in range(count)]


def draw_number(repetitions: RepetitionsConfig, uniform: float) -> int:
    """The number of repetitions at a quantile in [0, 1), by adding up the distribution's probabilities."""
    mean, name = repetitions.mean, repetitions.distribution
    number, chance = (0, math.exp(-mean)) if name == "poisson" else (1, 1.0)
    gamma = 1.0 / mean
    if name == "geometric":
        chance = gamma
    elif name == "logarithmic":
        gamma = _logarithmic_gamma(mean)
        chance = 1.0 if gamma == 1.0 else (1 - gamma) / -math.log(gamma)
    below = chance
    while below <= uniform and chance > 0:
        number += 1
        rise = {
            "poisson": mean / number,
            "geometric": 1 - gamma,
            "logarithmic": (1 - gamma) * (number - 1) / number,
        }
        chance *= rise[name]
        below += chance
    return number


@cache
def _logarithmic_gamma(mean: float) -> float:
    """γ with mean (1/γ - 1)/log(1/γ), which falls from infinity to 1 on (0, 1]."""
    low, high = 1e-12, 1.0
    for _ in range(200):
        middle = math.sqrt(low * high)
        value = 1.0 if middle > 1 - 1e-9 else (1 / middle - 1) / -math.log(middle)
        low, high = (middle, high) if value > mean else (low, middle)
    return 1.0 if mean == 1.0 else high
