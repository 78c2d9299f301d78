"""The distribution of a subject's items over the silos, and the cap on items per subject and silo.

Uniform: each item goes to any silo with equal probability. Power (Marathe and Kanani, "Subject Granular Differential
Privacy in Federated Learning", first version, section 4.2): each item draws x in [0, 1] with density alpha x^(alpha-1)
and goes to the silo of rank floor(S x), in an order of the silos drawn for each subject. (One order for all subjects
would concentrate the items in a few silos and does not give the group sizes that the paper reports.) Uniform is power
with alpha = 1, to the bit. Equal: all items in a random order, dealt in shares that differ by at most one, whoever's
they are (what papers call iid clients). Inherent: each item lies where the source says.

Every draw is keyed by the run's seed and the subject's id. A subject's silos therefore do not depend on the algorithm,
the other subjects or their number, and a cap of 4 keeps a subset of what a cap of 8 keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from subjectdp.data.splits import Integers, Silos
from subjectdp.noise.keys import Purpose, numpy_generator

UNIFORM = "uniform"
POWER = "power"
EQUAL = "equal"
INHERENT = "inherent"


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


def deal_items(seed: int, items: int, silos: int) -> Silos:
    """The silo of each of ``items`` train items: int16, equal shares of a random order."""
    order = numpy_generator(seed, Purpose.PARTITION, "deal").permutation(items)
    dealt = np.empty(items, dtype=np.int16)
    dealt[order] = np.arange(items) % silos
    return dealt


def spread_items(seed: int, subject_ids: Sequence[str], items: Integers, settings: PartitionSettings) -> Silos:
    """The silo of every train item: int16 (sum(items),), ordered by subject.

    ``silos_per_subject`` = m places a subject's items at the first m silos of its own order only (rank floor(m x)).
    The settings are trusted: the configuration checks them.
    """
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
