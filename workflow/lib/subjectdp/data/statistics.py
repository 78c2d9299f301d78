"""Mini-batch statistics at the papers' full scale, from sampling alone: no image, no text, no training.

What a mini-batch holds (distinct subjects, largest group Z) depends only on how many items of each subject each silo
has, so the papers' figures can be made exactly as large as theirs. Item counts are the train items after both splits
(80 % of LEAF's train part): FEMNIST 226.83 x 0.8 x 0.8 = 145, Shakespeare 3,678,452 x 0.8 / 660 = 4,458.7 a subject.
Shakespeare's are read from a prepared data set where there is one (:func:`train_counts`), else modelled
(:func:`shakespeare_counts`). The papers do not state the spread of FEMNIST's: the settings use the counts of real
writers, and two other spreads stand beside them where the papers print a number (:func:`comparison_settings`).
"""

import itertools
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectdp.data.catalogue import DATASETS
from subjectdp.data.content import Integers, split_items
from subjectdp.data.partition import spread_items
from subjectdp.data.store import load_prepared
from subjectdp.errors import expected
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.sampling import batch_statistics, fixed_positions

FEMNIST_SUBJECTS = 3500
FEMNIST_ITEMS = 145
FEMNIST_VARIATION = 88.94 / 226.83  # standard deviation / mean of a writer's images, as LEAF publishes them
SMALL_FEMNIST_SUBJECTS = 350
SHAKESPEARE_SUBJECTS = 660
SHAKESPEARE_MEAN = 4458.7
SHAKESPEARE_VARIATION = 1.16  # standard deviation / mean of the 660 subjects' items
SILOS = 16

# fmt: off
IMAGES_OF_WRITERS = (
    5, 5, 8, 8, 21, 27, 32, 42, 51, 69, 70, 70, 77, 92, 95, 98, 103, 103, 106, 108, 110, 120, 121, 122,
    126, 126, 129, 129, 131, 133, 136, 137, 137, 138, 140, 140, 142, 142, 143, 143, 147, 148, 148, 149,
    150, 151, 151, 151, 152, 152, 153, 153, 153, 154, 154, 154, 154, 155, 155, 155, 156, 156, 157, 158,
    159, 159, 160, 160, 161, 161, 162, 162, 162, 162, 162, 163, 163, 164, 164, 165, 165, 165, 166, 166,
    166, 166, 166, 167, 167, 167, 168, 168, 168, 168, 168, 169, 169, 169, 170, 170, 170, 170, 170, 171,
    171, 171, 171, 171, 171, 172, 172, 172, 172, 172, 173, 173, 173, 173, 173, 173, 173, 173, 173, 174,
    174, 174, 174, 174, 174, 174, 175, 175, 175, 175, 175, 175, 175, 176, 176, 177, 177, 177, 177, 177,
    177, 177, 178, 178, 178, 178, 178, 178, 178, 178, 179, 179, 179, 179, 179, 180, 180, 180, 181, 181,
    181, 181, 181, 182, 182, 182, 182, 182, 183, 183, 183, 183, 183, 183, 183, 316,
)
# fmt: on
"""Images of the 180 writers of a public LEAF output (27,696 images), ascending: numbers only, no image and no name."""


class SubjectSizes(StrEnum):
    """How the items of FEMNIST's subjects are distributed; the mean is the papers' in each case."""

    REAL_WRITERS = "real_writers"  # the 180 counts, resampled evenly: nearest to real data, verdicts use it
    EQUAL = "equal"  # every subject has the mean
    LEAF_SPREAD = "leaf_spread"  # lognormal with the deviation that LEAF publishes for all 3,550 writers


@dataclass(frozen=True)
class Published:
    """What the papers report of a setting; None where they are silent."""

    subjects: float | None = None  # mean distinct subjects in a mini-batch
    largest_group: float | None = None  # mean (or dominant) largest group in a mini-batch
    source: str = ""


@dataclass(frozen=True)
class Setting:
    """A federation and a mini-batch size whose statistics the papers show."""

    name: str
    dataset: str
    subjects: int
    alpha: float
    batch_size: int
    rounds: int  # simulated epochs of every silo
    published: Published = Published()
    sizes: SubjectSizes = SubjectSizes.REAL_WRITERS  # of FEMNIST; Shakespeare has its own model


def paper_settings() -> list[Setting]:
    """The settings of Figures 1-3 of the first full version (v1; v3 Figures 2 and 3).

    FEMNIST runs over the 25 rounds that the papers execute at subject level (100 over the square root of 16
    silos). Shakespeare takes one round: 16 silos of about 1,840 mini-batches give the shares to 0.3 %.
    """
    first, sweep = "v1, section 4.1, Figure 1", "v1, section 4.2"
    small = Published(None, 4, "v1, section 4.3, Figure 3")
    published = {1.0: Published(475, 3, first), 2.0: Published(None, 3, sweep), 16.0: Published(310, 6, sweep)}
    settings = [
        Setting("shakespeare", "shakespeare", SHAKESPEARE_SUBJECTS, 1.0, 100, 1, Published(86, 3, first)),
        Setting("small_femnist", "femnist", SMALL_FEMNIST_SUBJECTS, 1.0, 256, 25, small),
    ]
    for alpha in (1.0, 2.0, 4.0, 8.0, 16.0):
        name = "femnist" if alpha == 1 else f"femnist_alpha_{alpha:g}"
        settings.append(Setting(name, "femnist", FEMNIST_SUBJECTS, alpha, 512, 25, published.get(alpha, Published())))
    return settings


def comparison_settings() -> list[Setting]:
    """FEMNIST's settings of a printed number, under the other spreads of sizes, over fewer rounds."""
    printed = [s for s in paper_settings() if s.dataset == "femnist" and s.published != Published()]
    others = [sizes for sizes in SubjectSizes if sizes is not SubjectSizes.REAL_WRITERS]
    pairs = itertools.product(others, printed)
    return [replace(s, name=f"{s.name}_{sizes}", rounds=min(s.rounds, 5), sizes=sizes) for sizes, s in pairs]


def all_settings() -> list[Setting]:
    """The papers' settings, then those with other sizes."""
    return [*paper_settings(), *comparison_settings()]


def femnist_counts(subjects: int, sizes: SubjectSizes) -> Integers:
    """Train items of each of FEMNIST's subjects, int64 (subjects,), of mean 145."""
    if sizes is SubjectSizes.EQUAL:
        return np.full(subjects, FEMNIST_ITEMS, dtype=np.int64)
    if sizes is SubjectSizes.LEAF_SPREAD:
        return shakespeare_counts(subjects, FEMNIST_ITEMS, FEMNIST_VARIATION)
    places = ((np.arange(subjects) + 0.5) / subjects * len(IMAGES_OF_WRITERS)).astype(np.int64)
    return _scaled(np.asarray(IMAGES_OF_WRITERS, dtype=np.float64)[places], FEMNIST_ITEMS)


def shakespeare_counts(
    subjects: int = SHAKESPEARE_SUBJECTS, mean: float = SHAKESPEARE_MEAN, variation: float = SHAKESPEARE_VARIATION
) -> Integers:
    """A model of Shakespeare's items of each subject: quantiles of a lognormal law, int64 (subjects,).

    The quantiles (i + 1/2) / subjects are scaled to the given mean, and the shape is solved for so that they have the
    given variation (standard deviation / mean). Both follow from aggregates: the 1,130 characters have 3,740 windows on
    average with deviation 6,210 (LEAF publishes 3,743 and 6,212); the 660 that survive the 0.9 split hold 3,678,452 /
    0.9 of the windows, the others 296 each; so the 660 have mean 6,193 and deviation 7,180, a ratio that splits keep.
    """
    normal = NormalDist()
    z = np.array([normal.inv_cdf((i + 0.5) / subjects) for i in range(subjects)])
    low, high = 0.0, 5.0
    for _ in range(60):  # the variation grows with the shape: bisection
        shape = (low + high) / 2
        values = np.exp(shape * z)
        low, high = (shape, high) if values.std() / values.mean() < variation else (low, shape)
    return _scaled(values, mean)


def _scaled(values: NDArray[np.float64], mean: float) -> Integers:
    """Whole numbers, at least 1, in proportion to the values and of that mean."""
    scaled: Integers = np.maximum(1, np.rint(values * mean / values.mean())).astype(np.int64)
    return scaled


def train_counts(prepared_folder: Path | str) -> Integers:
    """The train items of each subject of a prepared data set after both splits, int64 (subjects,)."""
    prepared = load_prepared(prepared_folder)
    splits = split_items(prepared, 0, DATASETS[prepared.dataset].test_fraction, 0.2)
    return np.unique(splits.train_subjects, return_counts=True)[1].astype(np.int64)


def silo_counts(seed: int, items: Integers, silos: int = SILOS, alpha: float = 1.0) -> Integers:
    """Items of each subject at each silo, int64 (silos, subjects), by the partition's own law."""
    subjects = len(items)
    places = spread_items(seed, [f"subject-{index}" for index in range(subjects)], items, silos, alpha)
    cell = places.astype(np.int64) * subjects + np.repeat(np.arange(subjects), items)
    return np.bincount(cell, minlength=silos * subjects).reshape(silos, subjects)


def simulate_batches(seed: int, counts: Integers, batch_size: int, rounds: int = 1, setting: str = "") -> pd.DataFrame:
    """Draws mini-batches of fixed size for ``rounds`` epochs of every silo and counts what they hold.

    ``counts``: int (silos, subjects), items of each. One row per mini-batch: setting (category), silo, step (counted on
    over the rounds), items, subjects (distinct), largest_group (Z). ConfigError for a batch larger than a silo.
    """
    smallest = int(counts.sum(axis=1).min())
    if not 1 <= batch_size <= smallest:
        raise expected("batch_size", batch_size, f"1 to {smallest}, the items of the smallest silo")
    if rounds < 1:
        raise expected("rounds", rounds, "at least 1")
    blocks = []
    for silo, row in enumerate(counts):
        owner = np.repeat(np.arange(len(row), dtype=np.int32), row)
        generator = numpy_generator(seed, Purpose.STATISTICS, setting, "fixed_batch_size", silo)
        steps = rounds * math.ceil(len(owner) / batch_size)
        found = [batch_statistics(owner[fixed_positions(generator, len(owner), batch_size)]) for _ in range(steps)]
        block = pd.DataFrame(np.array(found, dtype=np.int32), columns=["items", "subjects", "largest_group"])
        block.insert(0, "silo", np.int32(silo))
        block.insert(1, "step", np.arange(steps, dtype=np.int32))
        blocks.append(block)
    frame = pd.concat(blocks, ignore_index=True)
    frame.insert(0, "setting", pd.Series([setting] * len(frame), dtype="category"))
    return frame


def simulate_setting(seed: int, setting: Setting, items: Integers | None = None) -> pd.DataFrame:
    """The mini-batches of one of the papers' settings; ``items`` replaces the modelled items a subject."""
    if items is None and setting.dataset == "shakespeare":
        items = shakespeare_counts(setting.subjects)
    elif items is None:
        items = femnist_counts(setting.subjects, setting.sizes)
    counts = silo_counts(seed, items, SILOS, setting.alpha)
    return simulate_batches(seed, counts, setting.batch_size, setting.rounds, setting.name)


def paper_scale_statistics(seed: int, shakespeare_items: Integers | None = None) -> pd.DataFrame:
    """The mini-batches of all settings, with ``shakespeare_items`` (:func:`train_counts`) where they are at hand."""
    override = {"shakespeare": shakespeare_items}
    frames = {each.name: simulate_setting(seed, each, override.get(each.name)) for each in all_settings()}
    for frame in frames.values():
        frame["setting"] = frame["setting"].cat.set_categories(list(frames))
    return pd.concat(list(frames.values()), ignore_index=True)


def summary_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per setting of ``frame``: means with standard errors, shares of Z, and the papers' numbers.

    ``share_of_group_1`` to ``_8`` are of all mini-batches; a published number is NaN where the papers give none.
    """
    parts = ((setting, frame[frame["setting"] == setting.name]) for setting in all_settings())
    return pd.DataFrame([_summary_row(setting, part) for setting, part in parts if len(part) > 0])


def _summary_row(setting: Setting, part: pd.DataFrame) -> dict[str, Any]:
    root, group, published = math.sqrt(len(part)), part["largest_group"], setting.published
    return {
        "setting": setting.name,
        "dataset": setting.dataset,
        "sizes": setting.sizes.value if setting.dataset == "femnist" else "lognormal",
        "alpha": setting.alpha,
        "batch_size": setting.batch_size,
        "mini_batches": len(part),
        "items_mean": float(part["items"].mean()),
        "subjects_mean": float(part["subjects"].mean()),
        "subjects_standard_error": float(part["subjects"].std()) / root,
        "subjects_published": math.nan if published.subjects is None else published.subjects,
        "largest_group_mean": float(group.mean()),
        "largest_group_standard_error": float(group.std()) / root,
        "largest_group_mode": int(group.mode().iloc[0]),
        "largest_group_published": math.nan if published.largest_group is None else published.largest_group,
        **{f"share_of_group_{size}": float((group == size).mean()) for size in range(1, 9)},
        "source": published.source,
    }
