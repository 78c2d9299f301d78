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

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from subjectdp.data.splits import Integers, Silos
from subjectdp.noise.keys import Purpose, numpy_generator

EQUAL = "equal"
INHERENT = "inherent"


def deal_items(seed: int, items: int, silos: int) -> Silos:
    """The silo of each of ``items`` train items: int16, equal shares of a random order."""
    order = numpy_generator(seed, Purpose.PARTITION, "deal").permutation(items)
    dealt = np.empty(items, dtype=np.int16)
    dealt[order] = np.arange(items) % silos
    return dealt


def spread_items(
    seed: int,
    subject_ids: Sequence[str],
    items: Integers,
    silos: int,
    alpha: float = 1.0,
    silos_per_subject: int | None = None,
) -> Silos:
    """The silo of every train item by the power law: int16 (sum(items),), ordered by subject.

    ``silos_per_subject`` = m places a subject's items at the first m silos of its own order only (rank floor(m x)).
    The numbers are trusted: the configuration checks them.
    """
    allowed = silos if silos_per_subject is None else silos_per_subject
    found = np.empty(int(items.sum()), dtype=np.int16)
    end = 0
    for subject, count in zip(subject_ids, items.tolist(), strict=True):
        start, end = end, end + count
        generator = numpy_generator(seed, Purpose.PARTITION, "spread", subject)
        order = generator.permutation(silos)[:allowed].astype(np.int16)
        x = generator.random(count) ** (1.0 / alpha)  # inverse of the distribution function x^alpha
        rank = np.minimum((allowed * x).astype(np.int64), allowed - 1)  # a large alpha may round x to 1
        found[start:end] = order[rank]
    return found


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
