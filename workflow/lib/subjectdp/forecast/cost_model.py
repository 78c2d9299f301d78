"""The work of a run from its configuration alone: items, steps, operations, core-seconds.

It chooses the time limit of a job before anything has been fetched, with a margin: operations are those of the
model's default parameters, and the pace is that of one CPU core. Counts of data that have not been prepared are those
of the files at hand, LEAF's, or those of ``data.expected`` and ``data.embedded``. Imports nothing heavy: the Snakefile
reads it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from subjectdp.algorithms.registry import algorithm
from subjectdp.config.resolve import mechanism_of, plan_settings
from subjectdp.data.catalogue import DATASETS
from subjectdp.data.sizes import leaf_sizes, table_sizes
from subjectdp.models.catalogue import MODELS
from subjectdp.plan.rules import executed_rounds, expected_batch, round_steps

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.config.sections import DataConfig

RATE = 50e9  # floating point operations a second that one CPU core is assumed to train with
STEP_SECONDS = 0.01  # cost of a local step on one CPU core, whatever its size
START_SECONDS = 10.0  # imports, accounting and loading, before the first step
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
    subjects, mean = expected_sizes(run.data)
    test = float(run.data.test_fraction or 0.0)
    rest, validation = subjects * mean * (1 - test), run.data.validation_fraction
    train = rest * (1 - validation)
    cap = run.partition.max_items_per_subject
    if cap is not None:
        train = min(train, float(cap) * subjects * run.partition.silos)
    train_items = max(run.partition.silos, round(train))
    return Items(subjects, train_items, round(rest * validation), round(subjects * mean * test))


def expected_sizes(data: DataConfig) -> tuple[int, float]:
    """Subjects of a run on these data and the mean number of their items, by the configuration."""
    facts, counted = DATASETS[data.dataset], data.expected
    if data.source == "embedded":
        subjects, mean = data.embedded.subjects, float(data.embedded.items_per_subject)
        if data.own_subjects:
            subjects, mean = subjects * data.embedded.items_per_subject, 1.0
    elif sizes := sizes_at_hand(data):
        subjects, mean = counted.get("users_after_split", len(sizes)), sum(sizes) / len(sizes)
    else:
        users, items = counted.get("users"), counted.get("items")
        subjects, mean = counted.get("users_after_split") or users or facts.subjects, facts.items_per_subject
        if data.own_subjects:
            mean = 1.0
        elif facts.kind != "text" and users is not None and items is not None:
            mean = items / users
    return (subjects if data.subjects is None else min(subjects, data.subjects)), mean


def sizes_at_hand(data: DataConfig) -> tuple[int, ...] | None:
    """Items of each subject of LEAF's JSON or of a table at ``data.path``; None for others, or without the files."""
    if data.source == "table" and data.path is not None:
        return table_sizes(data.path, data.subject)
    if data.source != "leaf_json" or data.path is None or data.own_subjects:
        return None
    return leaf_sizes(data.path)


def work_of(
    run: RunConfig, silo_items: Sequence[int] | None = None, evaluated: int | None = None, rounds: int | None = None
) -> Work:
    """The work of a run, with the operations of its model's default parameters.

    ``silo_items``: train items of each silo (None: equal parts of the expected ones). ``evaluated``: validation and
    test items (None: the expected ones). ``rounds``: executed ones (None: those of the configuration).
    """
    items, training, silos, subject = expected_items(run), run.training, run.partition.silos, run.subject
    held = [items.train // silos] * silos if silo_items is None else list(silo_items)
    executed = training.rounds if rounds is None else rounds
    taking_part = silos if training.silos_per_round is None else training.silos_per_round
    silo_rounds = executed * taking_part / len(held)  # how often each silo takes part
    known, local = algorithm(run.algorithm.name), training.local_steps or 1
    if known.samples_subjects:
        most = math.inf if subject.items is None else float(subject.items) * items.subjects
        steps = len(held) * silo_rounds * (1 if known.one_step_per_round else local)
        trained = sum(min(count, most) for count in held) * silo_rounds * subject.sampling_probability * local
    else:
        by_silo = [round_steps(training, count) * silo_rounds for count in held]
        steps = sum(by_silo)
        trained = sum(expected_batch(training, n) * number for n, number in zip(held, by_silo, strict=True))
    pooled = items.validation + items.test if evaluated is None else evaluated
    if training.evaluation_items is not None:
        pooled = min(pooled, 2 * training.evaluation_items)
    tested = pooled * math.ceil(executed / training.evaluate_every)
    # a backward pass costs as much as two forward passes
    operations = float(MODELS[str(run.model.name)].forward_flops) * (3 * trained + tested)
    return Work(round(steps), trained, tested, operations)


def size_class(run: RunConfig) -> SizeClass:
    """The class of time and memory of a run."""
    seconds = forecast_seconds(run)
    return next(name for name, most in SIZES.items() if seconds <= most)


def forecast_seconds(run: RunConfig) -> float:
    """Core-seconds of a run, by its configuration."""
    rounds = executed_rounds(mechanism_of(run), plan_settings(run), run.partition.silos)
    return work_of(run, rounds=rounds).core_seconds
