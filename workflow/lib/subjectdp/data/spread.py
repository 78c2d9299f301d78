"""The law by which a subject's items are spread over the silos, and the cap on them.

Uniform: each item of a subject goes to any silo with equal probability. Power (Marathe and Kanani, "Subject
Granular Differential Privacy in Federated Learning", first version, section 4.2): each item draws x in [0, 1]
with density alpha x^(alpha-1) and goes to the silo ranked floor(S x) in an order of the silos that is drawn
anew for each subject. One order for all subjects would pile the items up in a few
silos and does not give the group sizes that the paper reports. Uniform is power with alpha = 1, to the bit.

Every draw is keyed by the run's seed and the subject's id: a subject's items go to the same silos whatever
the algorithm, the other subjects, or the number of subjects taken, and a cap of 4 keeps a subset of what a
cap of 8 keeps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from subjectdp.data.splits import Integers
from subjectdp.errors import expected, unknown
from subjectdp.noise.keys import Purpose, numpy_generator

UNIFORM = "uniform"
POWER = "power"
MOST_SILOS = 2**15 - 1  # a silo number is kept as int16, which sorts by radix

Silos = NDArray[np.int16]


class PartitionSettings(Protocol):
    """The section ``partition`` of a run's configuration."""

    @property
    def silos(self) -> int: ...
    @property
    def distribution(self) -> str: ...
    @property
    def alpha(self) -> float: ...
    @property
    def max_items_per_subject(self) -> int | None: ...
    @property
    def silos_per_subject(self) -> int | None: ...


@dataclass(frozen=True)
class SpreadSettings:
    """A plain :class:`PartitionSettings`, for callers without a run's configuration."""

    silos: int = 16
    distribution: str = UNIFORM
    alpha: float = 1.0
    max_items_per_subject: int | None = None
    silos_per_subject: int | None = None


def check_settings(settings: PartitionSettings) -> None:
    """ConfigError unless every value of the section ``partition`` is in range and fits the others."""
    if not 1 <= settings.silos <= MOST_SILOS:
        raise expected("partition.silos", settings.silos, f"1 to {MOST_SILOS}")
    if settings.distribution not in (UNIFORM, POWER):
        raise unknown("partition.distribution", settings.distribution, (UNIFORM, POWER))
    if not (math.isfinite(settings.alpha) and settings.alpha > 0):
        raise expected("partition.alpha", settings.alpha, "a finite number above 0")
    if settings.distribution == UNIFORM and settings.alpha != 1:
        allowed = "1 with partition.distribution 'uniform' (any above 0 with 'power')"
        raise expected("partition.alpha", settings.alpha, allowed)
    limit = settings.silos_per_subject
    if limit is not None and not 1 <= limit <= settings.silos:
        allowed = f"1 to partition.silos ({settings.silos}), or null for all silos"
        raise expected("partition.silos_per_subject", limit, allowed)
    cap = settings.max_items_per_subject
    if cap is not None and cap < 1:
        raise expected("partition.max_items_per_subject", cap, "at least 1, or null for no cap")


def spread_items(
    seed: int, subject_ids: Sequence[str], items: Integers, settings: PartitionSettings
) -> Silos:
    """The silo of every train item: int16 (sum(items),), subject after subject.

    If ``silos_per_subject`` is set to m, a subject is at the first m silos of its own order only, and the
    density is stretched over those (rank floor(m x)).
    """
    check_settings(settings)
    allowed = settings.silos if settings.silos_per_subject is None else settings.silos_per_subject
    silos = np.empty(int(items.sum()), dtype=np.int16)
    end = 0
    for subject, count in zip(subject_ids, items.tolist(), strict=True):
        start, end = end, end + count
        generator = numpy_generator(seed, Purpose.PARTITION, "spread", subject)
        order = generator.permutation(settings.silos)[:allowed].astype(np.int16)
        x = generator.random(count) ** (1.0 / settings.alpha)  # inverse of the distribution function x^alpha
        rank = np.minimum((allowed * x).astype(np.int64), allowed - 1)  # a large alpha may round x to 1
        silos[start:end] = order[rank]
    return silos


def keep_within_cap(
    seed: int, subject_ids: Sequence[str], items: Integers, silos: Silos, cap: int
) -> NDArray[np.bool_]:
    """Which items stay if a silo may hold at most ``cap`` of a subject: a uniform subset of each group."""
    keep = np.zeros(len(silos), dtype=np.bool_)
    end = 0
    for subject, count in zip(subject_ids, items.tolist(), strict=True):
        start, end = end, end + count
        shuffled = numpy_generator(seed, Purpose.PARTITION, "cap", subject).permutation(count)
        by_silo = shuffled[np.argsort(silos[start:end][shuffled], kind="stable")]
        sizes = np.bincount(silos[start:end])
        rank = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        keep[start + by_silo[rank < cap]] = True
    return keep
