"""The work of a run from its configuration alone: items, steps, operations, core-seconds.

It chooses the time limit of a job before anything has been fetched, with a margin: operations are those of the
model's default parameters, and the pace is that of one CPU core. Counts
of data that have not been prepared are those of the files at hand, LEAF's, or those of ``data.expected`` and
``data.embedded``. Imports nothing heavy: the Snakefile reads it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from subjectdp.algorithms.registry import algorithm
from subjectdp.config.resolve import mechanism_of, plan_settings
from subjectdp.data.catalogue import DATASETS
from subjectdp.data.leaf_files import leaf_sizes
from subjectdp.models.catalogue import MODELS
from subjectdp.plan.rounds import executed_rounds, expected_batch, round_steps

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.config.sections import DataConfig

RATE = 50e9
"""Floating point operations a second that one CPU core is assumed to train with."""

STEP_SECONDS = 0.01
"""Cost of a local step on one CPU core, whatever its size."""

START_SECONDS = 10.0
"""Imports, accounting and loading, before the first step."""

SizeClass = Literal["short", "medium", "long"]
SIZES: dict[SizeClass, float] = {"short": 600.0, "medium": 2e5, "long": math.inf}
"""Most core-seconds of a run of each class: ten minutes, and 56 hours (FEMNIST at the papers' scale: 35)."""


@dataclass(frozen=True)
class Items:
    """Items of a federation: of all silos together, and pooled for the evaluation."""

    subjects: int
    train: int
    validation: int
    test: int


@dataclass(frozen=True)
class Work:
    """The work of a run over all its rounds."""

    steps: int  # local steps, all silos
    train_items: float  # items that pass through a local step, in expectation
    evaluated_items: int  # validation and test items, over all evaluations
    operations: float  # floating point operations of both

    @property
    def core_seconds(self) -> float:
        """Seconds of one CPU core by :data:`RATE`, :data:`STEP_SECONDS` and :data:`START_SECONDS`."""
        return START_SECONDS + STEP_SECONDS * self.steps + self.operations / RATE


def expected_items(run: RunConfig) -> Items:
    """Items of the run's federation, by its configuration."""
    subjects = expected_subjects(run.data)
    total = subjects * _items_of_subject(run.data)
    test = test_fraction(run.data)
    rest, validation = total * (1 - test), run.data.validation_fraction
    train = rest * (1 - validation)
    cap = run.partition.max_items_per_subject
    if cap is not None:
        train = min(train, float(cap) * subjects * run.partition.silos)
    return Items(
        subjects, max(run.partition.silos, round(train)), round(rest * validation), round(total * test)
    )


def test_fraction(data: DataConfig) -> float:
    """The test part of each subject's items."""
    return DATASETS[data.dataset].test_fraction if data.test_fraction is None else data.test_fraction


def expected_subjects(data: DataConfig) -> int:
    """Subjects of a run on these data, by the configuration."""
    if data.source == "embedded":
        known = data.embedded.subjects * (data.embedded.items_per_subject if data.own_subjects else 1)
    elif sizes := sizes_at_hand(data):
        known = data.expected.get("users_after_split", len(sizes))
    else:
        found = data.expected
        known = found.get("users_after_split") or found.get("users") or DATASETS[data.dataset].subjects
    return known if data.subjects is None else min(known, data.subjects)


def sizes_at_hand(data: DataConfig) -> tuple[int, ...] | None:
    """Items of each subject of LEAF's JSON that lies at ``data.path``; None for other sources, or without the files."""
    if data.source != "leaf_json" or data.path is None or data.own_subjects:
        return None
    return leaf_sizes(data.path)


def _items_of_subject(data: DataConfig) -> float:
    if sizes := sizes_at_hand(data):
        return sum(sizes) / len(sizes)
    if data.own_subjects:
        return 1.0
    if data.source == "embedded":
        return float(data.embedded.items_per_subject)
    users, items = data.expected.get("users"), data.expected.get("items")
    if DATASETS[data.dataset].kind != "text" and users is not None and items is not None:
        return items / users
    return DATASETS[data.dataset].items_per_subject


def work_of(
    run: RunConfig,
    silo_items: Sequence[int] | None = None,
    evaluated: int | None = None,
    rounds: int | None = None,
) -> Work:
    """The work of a resolved run, with the operations of its model's default parameters.

    Args:
        run: the configuration.
        silo_items: train items of each silo; None: equal parts of the expected items.
        evaluated: validation and test items; None: the expected ones.
        rounds: executed rounds; None: those of the configuration, before any rule shortens them.
    """
    items, training, silos = expected_items(run), run.training, run.partition.silos
    held = [items.train // silos] * silos if silo_items is None else list(silo_items)
    executed = training.rounds if rounds is None else rounds
    taking_part = silos if training.silos_per_round is None else training.silos_per_round
    silo_rounds = executed * taking_part / len(held)  # how often each silo takes part
    steps = [_local_steps(run, count) * silo_rounds for count in held]
    trained = sum(expected_batch(training, count) * number for count, number in zip(held, steps, strict=True))
    if algorithm(run.algorithm.name).samples_subjects:
        trained = _items_of_sampled_subjects(run, held, items.subjects) * silo_rounds
    pooled = items.validation + items.test if evaluated is None else evaluated
    if training.evaluation_items is not None:
        pooled = min(pooled, 2 * training.evaluation_items)
    tested = pooled * math.ceil(executed / training.evaluate_every)
    # a backward pass costs as much as two forward passes
    operations = float(MODELS[str(run.model.name)].forward_flops) * (3 * trained + tested)
    return Work(round(sum(steps)), trained, tested, operations)


def _items_of_sampled_subjects(run: RunConfig, held: Sequence[int], subjects: int) -> float:
    subject, steps = run.subject, run.training.local_steps
    steps = 1 if steps is None else steps
    drawn = [float(count) for count in held]
    if subject.items is not None:
        drawn = [min(count, float(subject.items) * subjects) for count in drawn]
    return sum(drawn) * subject.sampling_probability * steps


def _local_steps(run: RunConfig, items: int) -> int:
    found, steps = algorithm(run.algorithm.name), run.training.local_steps
    if found.samples_subjects:
        return 1 if found.one_step_per_round or steps is None else steps
    return round_steps(run.training, items)


def size_class(run: RunConfig) -> SizeClass:
    """The class of time and memory of a run."""
    seconds = forecast_seconds(run)
    return next(name for name, most in SIZES.items() if seconds <= most)


def forecast_seconds(run: RunConfig) -> float:
    """Core-seconds of a run, by its configuration."""
    rounds = executed_rounds(mechanism_of(run), plan_settings(run), run.partition.silos)
    return work_of(run, rounds=rounds).core_seconds
