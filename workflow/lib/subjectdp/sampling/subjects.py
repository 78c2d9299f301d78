"""Which subjects take part in a round or step, and which of their items.

A coin is a subject's own: it is tossed in the order of the federation's subjects, whatever they hold. Where a release
of all silos is accounted as one, the coin is the same at every silo (the silos share a key that the observer has not);
else each silo and step has coins of its own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subjectdp.errors import PrivacyError, expected
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.plan.subject_settings import SubjectSettings


def subjects_of_round(
    subjects: int, settings: SubjectSettings, probability: float, seed: int, round_: int, *place: int
) -> NDArray[np.bool_]:
    """(subjects,) who takes part: those whose turn it is, each by an independent coin.

    Turns come every ``settings.every`` rounds from a start that is uniform and independent for each subject.

    Args:
        subjects: of the whole federation.
        settings: turns.
        probability: q_s of the plan, in (0, 1].
        seed, round_: key of the coins.
        place: silo and step, where each has coins of its own.

    Raises:
        PrivacyError: a probability outside (0, 1], or turns less than a round apart.
    """
    if not (math.isfinite(probability) and 0.0 < probability <= 1.0):
        raise expected("sampling probability of subjects", probability, "in (0, 1]", PrivacyError)
    if settings.every < 1:
        raise expected("rounds between a subject's turns", settings.every, "at least 1", PrivacyError)
    chosen = np.ones(subjects, np.bool_)
    if probability < 1.0:
        coins = numpy_generator(seed, Purpose.SUBJECT_SAMPLING, round_, *place)
        chosen &= coins.random(subjects) < probability
    if settings.every > 1:
        starts = numpy_generator(seed, Purpose.SUBJECT_SAMPLING, "turns").integers(
            settings.every, size=subjects
        )
        chosen &= starts == (round_ - 1) % settings.every
    return chosen


def items_of_subjects(
    owners: NDArray[np.integer[Any]],
    chosen: NDArray[np.bool_],
    most: int | None,
    seed: int,
    round_: int,
    silo: int,
    step: int,
) -> NDArray[np.int64]:
    """Positions, ascending, of the chosen subjects' items at a silo: all, or ``most`` of each subject's at random.

    Args:
        owners: (items,) the subject of each of the silo's items.
        chosen: (subjects,) who takes part.
        most: G; None: all items. The draw is uniform without replacement for each subject.

    Raises:
        PrivacyError: ``most`` below 1.
    """
    positions = np.flatnonzero(chosen[owners]).astype(np.int64, copy=False)
    if most is None:
        return positions
    if most < 1:
        raise expected("items of a sampled subject", most, "at least 1", PrivacyError)
    generator = numpy_generator(seed, Purpose.ITEM_SAMPLING, round_, silo, step)
    numbers = generator.random(len(owners))[positions]
    order = np.lexsort((numbers, owners[positions]))
    sorted_owners = owners[positions][order]
    first = np.flatnonzero(np.append(True, sorted_owners[1:] != sorted_owners[:-1])) if len(order) else order
    rank = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return np.sort(positions[order[rank < most]])
