"""Which items a silo's mini-batch holds and which silos take part in a round.

The draws are keyed by (root seed, round, silo, step) and by nothing else: not by the algorithm, so that
all algorithms of one seed see the same mini-batches if their sampling probability and silo are the same.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subjectdp.errors import PrivacyError, expected
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.plan.plan import PlanSettings, SamplingMethod, SiloChoice, SiloSchedule


class StepKey(NamedTuple):
    """The local step that a draw belongs to."""

    seed: int
    round_: int
    silo: int
    step: int


class BatchStatistics(NamedTuple):
    """What is recorded of a mini-batch: all 0 for an empty one."""

    items: int
    subjects: int  # distinct subjects
    largest_group: int  # Z: the most items of one subject


def poisson_positions(generator: np.random.Generator, n_items: int, probability: float) -> NDArray[np.int64]:
    """Sorted positions in 0..n_items-1, each included independently with ``probability`` (Poisson sampling).

    A size K ~ Binomial(n, q), then a uniform K-subset: a given set of k positions has probability C(n,k) q^k
    (1-q)^(n-k) / C(n,k) = q^k (1-q)^(n-k), as by n coins, from O(K) random numbers.
    """
    size = int(generator.binomial(n_items, probability))
    return fixed_positions(generator, n_items, size)


def fixed_positions(generator: np.random.Generator, n_items: int, size: int) -> NDArray[np.int64]:
    """Sorted positions in 0..n_items-1, exactly ``size`` of them, uniform without replacement."""
    chosen = generator.choice(n_items, size=size, replace=False, shuffle=False).astype(np.int64, copy=False)
    chosen.sort()
    return chosen


def sample_items(
    n_items: int, plan_silo: SiloSchedule, method: SamplingMethod, batch_size: int, key: StepKey
) -> NDArray[np.int64]:
    """The mini-batch of one step: int64 positions into the silo's items, ascending, without repeats.

    Poisson takes each item independently with the plan's sampling probability; fixed-size takes exactly ``batch_size``.
    Raises PrivacyError for a silo without the plan's number of items or a probability outside (0, 1], ConfigError for a
    fixed batch larger than the silo.
    """
    if n_items != plan_silo.items:
        raise expected(f"items of silo {key.silo}", n_items, f"the plan's {plan_silo.items}", PrivacyError)
    generator = numpy_generator(key.seed, Purpose.ITEM_SAMPLING, key.round_, key.silo, key.step)
    if method is SamplingMethod.FIXED_BATCH_SIZE:
        if not 1 <= batch_size <= n_items:
            raise expected("training.batch_size", batch_size, f"1 to {n_items}, the items of silo {key.silo}")
        return fixed_positions(generator, n_items, batch_size)
    probability = plan_silo.sampling_probability
    if not 0.0 < probability <= 1.0:
        raise expected(f"sampling probability of silo {key.silo}", probability, "in (0, 1]", PrivacyError)
    return poisson_positions(generator, n_items, probability)


def sample_silos(n: int, s: int | None, seed: int, round_: int) -> NDArray[np.int64]:
    """The ``s`` (None: all) of ``n`` silos that take part in a round, ascending, uniform; ConfigError for s not in
    1..n."""
    if s is None:
        return np.arange(n, dtype=np.int64)
    if not 1 <= s <= n:
        raise expected("training.silos_per_round", s, f"1 to {n}, the number of silos (partition.silos)")
    return fixed_positions(numpy_generator(seed, Purpose.SILO_SAMPLING, round_), n, s)


def silos_of_round(n: int, settings: PlanSettings, seed: int, round_: int) -> NDArray[np.int64]:
    """The silos, ascending, that take part in a round (counted from 1): in turn, drawn, or all ``n`` of them."""
    s = settings.silos_per_round
    if s is None or s >= n or settings.silo_choice is SiloChoice.RANDOM:
        return sample_silos(n, s, seed, round_)
    return np.sort((np.arange(s, dtype=np.int64) + (round_ - 1) * s) % n)


def batch_statistics(subjects_of_batch: NDArray[np.integer[Any]]) -> BatchStatistics:
    """Items, distinct subjects and largest group of a mini-batch, from the subject of each of its items."""
    sizes = np.bincount(subjects_of_batch, minlength=1)
    return BatchStatistics(len(subjects_of_batch), int(np.count_nonzero(sizes)), int(sizes.max()))


def subjects_of_round(subjects: int, probability: float, seed: int, round_: int, *place: int) -> NDArray[np.bool_]:
    """(subjects,) bool: who takes part, each by its own coin of probability q_s (PrivacyError outside (0, 1]).
    ``place``: silo and step, if each draws its own coins."""
    if not 0.0 < probability <= 1.0:
        raise expected("sampling probability of subjects", probability, "in (0, 1]", PrivacyError)
    return numpy_generator(seed, Purpose.SUBJECT_SAMPLING, round_, *place).random(subjects) < probability


def items_of_subjects(
    owners: NDArray[np.integer[Any]], chosen: NDArray[np.bool_], most: int | None, key: StepKey
) -> NDArray[np.int64]:
    """Positions, ascending, of the chosen subjects' items at a silo: all, or at most ``most`` of each subject's.

    ``owners`` (items,) are the items' subjects, ``chosen`` (subjects,) says who takes part. ``most`` are drawn
    uniformly without replacement; PrivacyError below 1.
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
