"""How much work a run is, from its configuration alone: items, steps, operations, core-seconds.

Good enough to choose a time limit before anything has been fetched, and the measure that measured run times are
compared by. Counts of data that are not there yet are LEAF's, or what ``data.expected`` and ``data.embedded`` say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from subjectdp.algorithms.registry import algorithm
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import expected

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.config.sections import DataConfig, ModelConfig

RATE = 50e9
"""Floating point operations a second that one CPU core is taken to train with; measured times correct it."""

STEP_SECONDS = 0.01
"""What a local step costs one CPU core whatever its size."""

START_SECONDS = 10.0
"""Imports, accounting and loading, before the first step."""

LEAF_SUBJECTS = {name: facts.subjects for name, facts in DATASETS.items()}
LEAF_ITEMS_OF_SUBJECT = {name: facts.items_per_subject for name, facts in DATASETS.items()}
"""LEAF's data sets: subjects that have train and test items, and the mean items of such a subject."""

CLASSES = {name: facts.classes for name, facts in DATASETS.items()}

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
    """What a run does over all its rounds."""

    steps: int  # local steps, all silos
    train_items: float  # items that pass through a local step, in expectation
    evaluated_items: int  # validation and test items, over all evaluations
    operations: float  # floating point operations of both

    @property
    def core_seconds(self) -> float:
        """Seconds of one CPU core by :data:`RATE`, :data:`STEP_SECONDS` and :data:`START_SECONDS`."""
        return START_SECONDS + STEP_SECONDS * self.steps + self.operations / RATE


def expected_items(run: RunConfig) -> Items:
    """Items of the run's federation, as far as its configuration tells."""
    subjects = expected_subjects(run.data)
    total = subjects * _items_of_subject(run.data)
    test = run.data.test_fraction
    test = DATASETS[run.data.dataset].test_fraction if test is None else test
    rest, validation = total * (1 - test), run.data.validation_fraction
    train = rest * (1 - validation)
    cap = run.partition.max_items_per_subject
    if cap is not None:
        train = min(train, float(cap) * subjects * run.partition.silos)
    return Items(
        subjects, max(run.partition.silos, round(train)), round(rest * validation), round(total * test)
    )


def expected_subjects(data: DataConfig) -> int:
    """Subjects that a run on these data has, as far as the configuration tells."""
    if data.source == "embedded":
        known = data.embedded.subjects
    else:
        known = data.expected.users_after_split or data.expected.users or LEAF_SUBJECTS[data.dataset]
    return known if data.subjects is None else min(known, data.subjects)


def _items_of_subject(data: DataConfig) -> float:
    if data.source == "embedded":
        return float(data.embedded.items_per_subject)
    users, items = data.expected.users, data.expected.items
    if DATASETS[data.dataset].kind == "image" and users is not None and items is not None:
        return items / users
    return LEAF_ITEMS_OF_SUBJECT[data.dataset]


def work_of(
    run: RunConfig,
    silo_items: Sequence[int] | None = None,
    evaluated: int | None = None,
    rounds: int | None = None,
) -> Work:
    """The work of a resolved run.

    Args:
        run: the configuration.
        silo_items: train items of each silo; None: equal parts of the expected items.
        evaluated: validation and test items; None: the expected ones.
        rounds: executed rounds; None: those of the configuration, before any rule shortens them.
    """
    items, training = expected_items(run), run.training
    silos = run.partition.silos
    held = [items.train // silos] * silos if silo_items is None else list(silo_items)
    executed = training.rounds if rounds is None else rounds
    taking_part = silos if training.silos_per_round is None else training.silos_per_round
    share = taking_part / len(held)
    steps = sum(_local_steps(run, count) for count in held) * executed * share
    pooled = items.validation + items.test if evaluated is None else evaluated
    if training.evaluation_items is not None:
        pooled = min(pooled, 2 * training.evaluation_items)
    evaluations = math.ceil(executed / training.evaluate_every)
    trained = steps * training.batch_size
    if algorithm(run.algorithm.name).samples_subjects:
        trained = _items_of_sampled_subjects(run, held, items.subjects) * executed * share
    size = model_size(run.model, run.data.dataset)
    # a backward pass costs two forward ones; multiply and add are two operations
    views = training.augmentation.seen
    operations = 2.0 * size.multiplications * (3 * views * trained + pooled * evaluations)
    operations += 2.0 * size.once * views * (items.train + items.validation + items.test)
    return Work(round(steps), trained, pooled * evaluations, operations)


def _items_of_sampled_subjects(run: RunConfig, held: Sequence[int], subjects: int) -> float:
    """Items that pass through a model in a round of all silos: those of the subjects that take part."""
    subject, steps = run.subject, run.training.local_steps
    steps = 1 if steps is None else steps
    drawn = [float(count) for count in held]
    if subject.items is not None:
        drawn = [min(count, float(subject.items) * subjects) for count in drawn]
    return sum(drawn) * subject.sampling_probability / subject.every * steps


def _local_steps(run: RunConfig, items: int) -> int:
    found, steps = algorithm(run.algorithm.name), run.training.local_steps
    if found.samples_subjects:
        return 1 if found.one_step_per_round or steps is None else steps
    return math.ceil(items / run.training.batch_size) if steps is None else steps


@dataclass(frozen=True)
class ModelSize:
    """What one item costs in a model: convolutions, recurrent and linear layers; biases and small layers left out."""

    multiplications: int  # of one forward pass
    parameters: int
    values: (
        int  # that a training step keeps for the item: layers' inputs, unfolded for convolutions, and outputs
    )
    once: int = 0  # multiplications for the item's fixed features, once a run
    features: int = 0  # numbers that are kept of the item for the whole run, where features are fixed


def model_size(model: ModelConfig, dataset: str) -> ModelSize:
    """The size of a resolved model. Raises ConfigError for a model that has no name yet."""
    sizes, classes = model.parameters, CLASSES[dataset]
    if model.name == "leaf_cnn":
        return _leaf_cnn(int(sizes.get("hidden", 2048)), classes)
    if model.name == "small_cnn":
        return _small_cnn(int(sizes.get("width", 16)), classes)
    if model.name == "logistic":
        features = (28 // int(sizes.get("pool", 2))) ** 2 + 1
        return ModelSize(features * classes, features * classes, features + classes)
    if model.name == "scattering_head":
        return _scattering_head(int(sizes.get("scales", 2)), int(sizes.get("angles", 8)), classes)
    if model.name == "handwriting_head":
        once = 24**2 * 25 * 32 + 12**2 * 9 * 32 * 64 + 6**2 * 9 * 64 * 96 + 864 * 128
        return ModelSize(128 * classes, 128 * classes, 128 + classes, once, 128)
    if model.name in ("leaf_lstm", "small_lstm"):
        usual = 256 if model.name == "leaf_lstm" else 64
        names = (("hidden", usual), ("dense", usual), ("embedding", 8))
        hidden, dense, embedding = (int(sizes.get(name, value)) for name, value in names)
        return _lstm(hidden, dense, embedding, classes)
    if model.name == "char_ngram":
        singles, pairs = int(sizes.get("singles", 4)), int(sizes.get("pairs", 2))
        summed = (singles + pairs) * classes
        return ModelSize(summed, (singles + pairs * classes) * classes**2, summed)
    raise expected("model.name", model.name, "resolved to a known model")


def _scattering_head(scales: int, angles: int, classes: int) -> ModelSize:
    channels = 1 + scales * angles + scales * (scales - 1) // 2 * angles**2
    features = channels * (28 // 2**scales) ** 2
    # three Fourier transforms of about 36 x 36 complex numbers a channel, four multiplications each butterfly
    transform = 4 * 36**2 * math.ceil(math.log2(36))
    weights, once = features * classes, 3 * channels * transform
    return ModelSize(weights, weights, features + classes, once, features)


def _leaf_cnn(hidden: int, classes: int) -> ModelSize:
    conv1, conv2, linear = 25 * 32, 25 * 32 * 64, 64 * 49 * hidden + hidden * classes
    multiplications = 28**2 * conv1 + 14**2 * conv2 + linear
    values = 28**2 * (25 + 2 * 32) + 14**2 * (25 * 32 + 2 * 64) + 64 * 49 + 2 * hidden
    return ModelSize(multiplications, conv1 + conv2 + linear, values)


def _small_cnn(width: int, classes: int) -> ModelSize:
    conv1, conv2, conv3, linear = 25 * width, 50 * width**2, 36 * width**2, 18 * width * classes
    multiplications = 28**2 * conv1 + 14**2 * conv2 + 7**2 * conv3 + linear
    values = 28**2 * (25 + 3 * width) + 14**2 * (25 * width + 6 * width) + 7**2 * (18 * width + 4 * width)
    return ModelSize(multiplications, conv1 + conv2 + conv3 + linear, values)


def _lstm(hidden: int, dense: int, embedding: int, classes: int) -> ModelSize:
    recurrent = 4 * hidden * (embedding + 3 * hidden)
    linear = hidden * dense + dense * classes
    return ModelSize(
        80 * recurrent + linear,
        recurrent + linear + classes * embedding,
        80 * (embedding + 2 * 7 * hidden) + 2 * dense,
    )


def size_class(run: RunConfig) -> SizeClass:
    """The class of time and memory that a run belongs to, before its rounds are shortened."""
    seconds = work_of(run).core_seconds
    return next(name for name, most in SIZES.items() if seconds <= most)
