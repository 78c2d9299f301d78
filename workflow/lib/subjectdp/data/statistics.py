"""Mini-batch statistics at the papers' full scale, from sampling alone: no image, no text, no training.

What a mini-batch holds (distinct subjects, largest group Z) depends only on how many items of each subject
each silo has. So the papers' figures of mini-batches by group size and by distinct subjects can be made
exactly as large as theirs: FEMNIST 3,500 subjects of 145 train items, Shakespeare 660 subjects, 16 silos.

The item counts are the train items after both splits of the papers (80 % of LEAF's train part): FEMNIST
226.83 x 0.8 x 0.8 = 145, Shakespeare 3,678,452 x 0.8 / 660 = 4,458.7 a subject. Shakespeare's counts are
very uneven; they are read from a prepared data set where there is one (:func:`train_counts`), and are
otherwise the quantiles of a lognormal distribution (:func:`shakespeare_counts`). The papers do not state the
spread of FEMNIST's: the settings use the counts of real writers, and two other spreads stand beside them
where the papers print a number (:func:`comparison_settings`).
"""

from __future__ import annotations

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
from subjectdp.data.splits import Integers, split_items
from subjectdp.data.spread import POWER, UNIFORM, PartitionSettings, SpreadSettings, spread_items
from subjectdp.data.store import load_prepared
from subjectdp.data.writer_sizes import SubjectSizes, resampled_writers
from subjectdp.errors import expected
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.sampling.batches import batch_statistics, fixed_positions, poisson_positions

FEMNIST_SUBJECTS = 3500
FEMNIST_ITEMS = 145
FEMNIST_VARIATION = 88.94 / 226.83  # standard deviation / mean of a writer's images, as LEAF publishes them
SMALL_FEMNIST_SUBJECTS = 350
SHAKESPEARE_SUBJECTS = 660
SHAKESPEARE_MEAN = 4458.7
SHAKESPEARE_VARIATION = 1.16  # standard deviation / mean of the 660 subjects' items
SILOS = 16
ALPHAS = (1.0, 2.0, 4.0, 8.0, 16.0)


class Draw(StrEnum):
    """How the simulated mini-batches are drawn from a silo's items."""

    FIXED_BATCH_SIZE = "fixed_batch_size"  # uniform without replacement: hypergeometric counts
    POISSON = "poisson"  # each item independently with probability batch size / items
    WITH_REPLACEMENT = "with_replacement"  # multinomial counts: one item may come twice


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
    femnist = "v1, section 4.1, Figure 1"
    settings = [
        Setting("shakespeare", "shakespeare", SHAKESPEARE_SUBJECTS, 1.0, 100, 1, Published(86, 3, femnist)),
        Setting(
            "small_femnist",
            "femnist",
            SMALL_FEMNIST_SUBJECTS,
            1.0,
            256,
            25,
            Published(None, 4, "v1, section 4.3, Figure 3"),
        ),
    ]
    sweep = "v1, section 4.2"
    published = {
        1.0: Published(475, 3, femnist),
        2.0: Published(None, 3, sweep),
        16.0: Published(310, 6, sweep),
    }
    for alpha in ALPHAS:
        name = "femnist" if alpha == 1 else f"femnist_alpha_{alpha:g}"
        found = published.get(alpha, Published())
        settings.append(Setting(name, "femnist", FEMNIST_SUBJECTS, alpha, 512, 25, found))
    return settings


def comparison_settings() -> list[Setting]:
    """FEMNIST's settings of a printed number, under the other spreads of sizes, over fewer rounds."""
    printed = [s for s in paper_settings() if s.dataset == "femnist" and s.published != Published()]
    others = [sizes for sizes in SubjectSizes if sizes is not SubjectSizes.REAL_WRITERS]
    return [
        replace(s, name=f"{s.name}_{sizes}", rounds=min(s.rounds, 5), sizes=sizes) for sizes in others for s in printed
    ]


def all_settings() -> list[Setting]:
    """The papers' settings, then those with other sizes."""
    return [*paper_settings(), *comparison_settings()]


def femnist_counts(subjects: int, sizes: SubjectSizes) -> Integers:
    """Train items of each of FEMNIST's subjects, int64 (subjects,), of mean 145."""
    if sizes is SubjectSizes.EQUAL:
        return np.full(subjects, FEMNIST_ITEMS, dtype=np.int64)
    if sizes is SubjectSizes.LEAF_SPREAD:
        return shakespeare_counts(subjects, FEMNIST_ITEMS, FEMNIST_VARIATION)
    return resampled_writers(subjects, FEMNIST_ITEMS)


def shakespeare_counts(
    subjects: int = SHAKESPEARE_SUBJECTS,
    mean: float = SHAKESPEARE_MEAN,
    variation: float = SHAKESPEARE_VARIATION,
) -> Integers:
    """A model of Shakespeare's items of each subject: quantiles of a lognormal law, int64 (subjects,).

    The real counts cannot be shipped. The quantiles (i + 1/2) / subjects are scaled to the given mean, and
    the shape is solved for so that they have the given variation (standard deviation / mean). Both follow
    from aggregates: the 1,130 characters have 3,740 windows on average with deviation 6,210 (LEAF publishes
    3,743 and 6,212); the 660 that survive the 0.9 split hold 3,678,452 / 0.9 of the windows, the others 296
    each; so the 660 have mean 6,193 and deviation 7,180, whose ratio the further splits leave as it is.
    """
    normal = NormalDist()
    z = np.array([normal.inv_cdf((i + 0.5) / subjects) for i in range(subjects)])
    low, high = 0.0, 5.0
    for _ in range(60):  # the variation grows with the shape: bisection
        shape = (low + high) / 2
        values = np.exp(shape * z)
        low, high = (shape, high) if values.std() / values.mean() < variation else (low, shape)
    scaled: Integers = np.maximum(1, np.rint(values * mean / values.mean())).astype(np.int64)
    return scaled


def train_counts(
    prepared_folder: Path | str,
    seed: int = 0,
    test_fraction: float | None = None,
    validation_fraction: float = 0.2,
) -> Integers:
    """The train items of each subject of a prepared data set after both splits, int64 (subjects,)."""
    prepared = load_prepared(prepared_folder)
    fraction = DATASETS[prepared.dataset].test_fraction if test_fraction is None else test_fraction
    splits = split_items(prepared, seed, fraction, validation_fraction)
    return np.unique(splits.train_subjects, return_counts=True)[1].astype(np.int64)


def silo_counts(seed: int, items: Integers, settings: PartitionSettings) -> Integers:
    """Items of each subject at each silo, int64 (silos, subjects), by the partition's own law."""
    subjects = len(items)
    silos = spread_items(seed, [f"subject-{index}" for index in range(subjects)], items, settings)
    cell = silos.astype(np.int64) * subjects + np.repeat(np.arange(subjects), items)
    return np.bincount(cell, minlength=settings.silos * subjects).reshape(settings.silos, subjects)


def simulate_batches(
    seed: int,
    counts: Integers,
    batch_size: int,
    rounds: int = 1,
    draw: Draw = Draw.FIXED_BATCH_SIZE,
    setting: str = "",
) -> pd.DataFrame:
    """Draws the mini-batches of ``rounds`` epochs of every silo and counts what they hold.

    ``counts`` is int (silos, subjects): items of each subject at each silo. An epoch of a silo is
    ceil(items / batch_size) mini-batches. Returns one row per mini-batch: setting (category), silo, step
    (counted on over the rounds), items, subjects (distinct) and largest_group (Z).

    Raises:
        ConfigError: a batch larger than a silo.
    """
    smallest = int(counts.sum(axis=1).min())
    if not 1 <= batch_size <= smallest:
        raise expected("batch_size", batch_size, f"1 to {smallest}, the items of the smallest silo")
    if rounds < 1:
        raise expected("rounds", rounds, "at least 1")
    blocks = []
    for silo, row in enumerate(counts):
        owner = np.repeat(np.arange(len(row), dtype=np.int32), row)
        generator = numpy_generator(seed, Purpose.STATISTICS, setting, draw.value, silo)
        steps = rounds * math.ceil(len(owner) / batch_size)
        found = [batch_statistics(owner[_draw(generator, len(owner), batch_size, draw)]) for _ in range(steps)]
        blocks.append(_frame(silo, np.array(found, dtype=np.int32)))
    frame = pd.concat(blocks, ignore_index=True)
    frame.insert(0, "setting", pd.Series([setting] * len(frame), dtype="category"))
    return frame


def _draw(generator: np.random.Generator, items: int, batch_size: int, draw: Draw) -> NDArray[np.int64]:
    if draw is Draw.POISSON:
        return poisson_positions(generator, items, batch_size / items)
    if draw is Draw.WITH_REPLACEMENT:
        return generator.integers(0, items, batch_size)
    return fixed_positions(generator, items, batch_size)


def _frame(silo: int, found: NDArray[np.int32]) -> pd.DataFrame:
    columns: dict[str, Any] = {
        "silo": np.full(len(found), silo, dtype=np.int32),
        "step": np.arange(len(found), dtype=np.int32),
        "items": found[:, 0],
        "subjects": found[:, 1],
        "largest_group": found[:, 2],
    }
    return pd.DataFrame(columns)


def simulate_setting(
    seed: int, setting: Setting, items: Integers | None = None, draw: Draw = Draw.FIXED_BATCH_SIZE
) -> pd.DataFrame:
    """The mini-batches of one of the papers' settings; ``items`` replaces the modelled items a subject."""
    if items is None:
        shakespeare = setting.dataset == "shakespeare"
        femnist = femnist_counts(setting.subjects, setting.sizes)
        items = shakespeare_counts(setting.subjects) if shakespeare else femnist
    spread = SpreadSettings(SILOS, UNIFORM if setting.alpha == 1 else POWER, setting.alpha)
    counts = silo_counts(seed, items, spread)
    return simulate_batches(seed, counts, setting.batch_size, setting.rounds, draw, setting.name)


def paper_scale_statistics(
    seed: int, shakespeare_items: Integers | None = None, draw: Draw = Draw.FIXED_BATCH_SIZE
) -> pd.DataFrame:
    """The mini-batches of all of the papers' settings: setting, silo, step, items, subjects, largest_group.

    ``shakespeare_items``: the real items of each subject (:func:`train_counts`), where they are at hand.
    """
    settings = all_settings()
    override = {"shakespeare": shakespeare_items}
    frames = [simulate_setting(seed, setting, override.get(setting.name), draw) for setting in settings]
    names = [setting.name for setting in settings]
    for frame in frames:
        frame["setting"] = frame["setting"].cat.set_categories(names)
    return pd.concat(frames, ignore_index=True)


def summary_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per setting of ``frame``: means with standard errors, shares of Z, and the papers' numbers.

    Columns: setting, dataset, sizes, alpha, batch_size, mini_batches, items_mean, subjects_mean,
    subjects_standard_error, subjects_published, largest_group_mean, largest_group_standard_error,
    largest_group_mode, largest_group_published, share_of_group_1 .. share_of_group_8 (of all mini-batches),
    source. A published number is NaN where the papers give none.
    """
    rows = []
    for setting in all_settings():
        part = frame[frame["setting"] == setting.name]
        if len(part) > 0:
            rows.append(_summary_row(setting, part))
    return pd.DataFrame(rows)


def _summary_row(setting: Setting, part: pd.DataFrame) -> dict[str, Any]:
    root = math.sqrt(len(part))
    group = part["largest_group"]
    published = setting.published
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
