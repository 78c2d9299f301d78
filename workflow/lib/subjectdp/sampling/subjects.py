"""Which subjects take part in a round or step, and which of their items.

Each subject has its own coin, drawn in the order of the federation's subjects, whatever items they hold. If the
releases of all silos are accounted as one, a subject has the same coin at every silo (the silos share a key that the
observer does not know). Otherwise each silo and step draws new coins.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subjectdp.errors import PrivacyError, expected
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.sampling.batches import StepKey


def subjects_of_round(
    subjects: int, probability: float, seed: int, round_: int, *place: int
) -> NDArray[np.bool_]:
    """(subjects,) bool: who takes part: each subject whose coin says so.

    Args:
        subjects: number of subjects of the whole federation.
        probability: q_s of the plan, in (0, 1].
        place: silo and step, if each draws its own coins.

    Raises:
        PrivacyError: a probability outside (0, 1].
    """
    if not (math.isfinite(probability) and 0.0 < probability <= 1.0):
        raise expected("sampling probability of subjects", probability, "in (0, 1]", PrivacyError)
    if probability == 1.0:
        return np.ones(subjects, np.bool_)
    coins = numpy_generator(seed, Purpose.SUBJECT_SAMPLING, round_, *place)
    return coins.random(subjects) < probability


def items_of_subjects(
    owners: NDArray[np.integer[Any]], chosen: NDArray[np.bool_], most: int | None, key: StepKey
) -> NDArray[np.int64]:
    """Positions, ascending, of the chosen subjects' items at a silo: all, or at most ``most`` of each subject's.

    Args:
        owners: (items,) the subject of each of the silo's items.
        chosen: (subjects,) who takes part.
        most: G, drawn uniformly without replacement for each subject; None: all items.

    Raises:
        PrivacyError: ``most`` below 1.
    """
    positions = np.flatnonzero(chosen[owners]).astype(np.int64, copy=False)
    if most is None:
        return positions
    if most < 1:
        raise expected("items of a sampled subject", most, "at least 1", PrivacyError)
    generator = numpy_generator(key.seed, Purpose.ITEM_SAMPLING, key.round_, key.silo, key.step)
    numbers = generator.random(len(owners))[positions]
    order = np.lexsort((numbers, owners[positions]))
    sorted_owners = owners[positions][order]
    first = np.flatnonzero(np.append(True, sorted_owners[1:] != sorted_owners[:-1])) if len(order) else order
    rank = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return np.sort(positions[order[rank < most]])
