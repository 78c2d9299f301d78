"""Modular sums as secure aggregation computes them, in a ring that is large enough for the whole update.

Silos add integers modulo m; the server learns only the sum modulo m (the protocol is simulated as an ideal
functionality). The summands are updates of a round: the signal and noise of S local steps of N silos (arXiv
2407.19286, section 4, last paragraph). The ring is chosen from public numbers before training, for a stated
probability that any sum of the run overflows. Wrap-around is post-processing: it costs accuracy, never privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subjectdp.errors import ConfigError, DataError, expected

Integers = NDArray[np.int64]

LARGEST_BITS = 62
"""The sum of two residues of a larger ring may overflow 64 bits."""

WRAP_PROBABILITY = 1e-9
"""Probability that any sum of a run leaves its ring."""


@dataclass(frozen=True)
class Ring:
    """The integers modulo m. Residues 0..m-1 represent the m integers nearest to 0, -(m//2) .. (m-1)//2."""

    modulus: int

    def __post_init__(self) -> None:
        if not 2 <= self.modulus <= 2**LARGEST_BITS:
            raise expected("modulus of the ring", self.modulus, f"between 2 and 2^{LARGEST_BITS}", ConfigError)

    @classmethod
    def of_bits(cls, bits: int) -> Ring:
        """The ring of 2^bits elements."""
        if not 1 <= bits <= LARGEST_BITS:
            raise expected("bits of the ring", bits, f"between 1 and {LARGEST_BITS}", ConfigError)
        return cls(2**bits)

    @property
    def bits(self) -> int:
        """Bits that one residue takes on the wire."""
        return (self.modulus - 1).bit_length()

    @property
    def lowest(self) -> int:
        """The smallest integer that the ring represents."""
        return -(self.modulus // 2)

    @property
    def highest(self) -> int:
        """The largest integer that the ring represents."""
        return (self.modulus - 1) // 2

    def holds(self, bound: int) -> bool:
        """Whether the ring represents all integers of absolute value at most ``bound``."""
        return bound <= self.highest

    def residues(self, integers: Integers) -> Integers:
        """The residues that a silo sends: each integer modulo m, in 0..m-1."""
        return np.mod(integers, self.modulus)

    def integers(self, residues: Integers) -> Integers:
        """The integers that the server reads: the representative nearest to 0 of each residue."""
        return np.where(residues > self.highest, residues - self.modulus, residues)

    def sum(self, parts: Iterable[Integers]) -> Integers:
        """The sum of at least one vector of integers modulo m, as the integers nearest to 0. Wraps around silently."""
        total: Integers | None = None
        for part in parts:
            residues = self.residues(part)
            total = residues if total is None else np.mod(total + residues, self.modulus)
        if total is None:
            raise expected("vectors to sum", 0, "at least one", DataError)
        return self.integers(total)


def checked_sum(parts: Iterable[Integers], ring: Ring) -> Integers:
    """The modular sum, if it equals the integer sum (which a simulation can check, a server cannot).

    Raises:
        DataError: a sum that wrapped around.
    """
    exact: list[Integers] = []

    def followed() -> Iterator[Integers]:
        for part in parts:
            exact[:] = [part.copy() if not exact else exact[0] + part]
            yield part

    total = ring.sum(followed())
    wrapped = int(np.count_nonzero(total != exact[0]))
    if wrapped:
        raise DataError(
            f"Expected sums between {ring.lowest} and {ring.highest}, the integers of a ring of {ring.bits} bits: "
            f"{wrapped} of {len(total)} entries wrapped around (largest {int(np.abs(exact[0]).max())})."
        )
    return total


@dataclass(frozen=True)
class SiloBound:
    """Public numbers that bound one silo's contribution to a round's sum."""

    items: int  # of the silo
    sampling_probability: float  # of an item in a step; 1 for a known number of items
    steps: int  # local steps a round
    largest_entry: int  # of one rounded gradient
    noise_variance: float  # of one step's noise, in squared integers


def skellam_tail(variance: float, probability: float) -> int:
    """Smallest t with P(|Z| > t) ≤ ``probability`` by Chernoff, Z Skellam of that variance.

    log E exp(λZ) = μ(cosh λ - 1), best at sinh λ = t/μ: P(Z > t) ≤ exp(√(t² + μ²) - μ - t asinh(t/μ)).
    """
    if variance == 0.0:
        return 0
    target = math.log(probability / 2.0)

    def exponent(t: float) -> float:
        # √(t²+μ²) - μ without cancellation
        return t * t / (math.hypot(t, variance) + variance) - t * math.asinh(t / variance)

    high = 1.0
    while exponent(high) > target:
        high *= 2.0
    low = high / 2.0 if high > 1.0 else 0.0
    while high - low > max(0.5, 1e-6 * high):
        middle = (low + high) / 2.0
        low, high = (middle, high) if exponent(middle) > target else (low, middle)
    return math.ceil(high)


def largest_sum(
    silos: Sequence[SiloBound], silos_per_round: int, rounds: int, dimension: int, failure_probability: float
) -> int:
    """A bound on all entries of all rounds' sums that fails with at most ``failure_probability`` over the whole run.

    Half of that probability covers mini-batches larger than a binomial quantile (if the sampling probability is below
    1), half covers the noise, each by a union bound. A step adds at most ``largest_entry`` for each sampled item. The
    ``silos_per_round`` silos with the largest contributions count.
    """
    from scipy import stats  # not at the top: loading it takes longer than most commands

    batches = rounds * sum(silo.steps for silo in silos)
    signals = []
    for silo in silos:
        items = silo.items
        if silo.sampling_probability < 1.0:
            quantile = stats.binom.isf(failure_probability / (2.0 * batches), items, silo.sampling_probability)
            items = min(items, int(quantile))
        signals.append(silo.steps * items * silo.largest_entry)
    variances = sorted((silo.steps * silo.noise_variance for silo in silos), reverse=True)
    noise = skellam_tail(sum(variances[:silos_per_round]), failure_probability / (2.0 * rounds * dimension))
    return sum(sorted(signals, reverse=True)[:silos_per_round]) + noise


def ring_for(bound: int) -> Ring:
    """The smallest ring that represents ``bound``. Raises ConfigError for one that needs more than 62 bits."""
    needed = bound.bit_length() + 1
    if needed > LARGEST_BITS:
        raise ConfigError(
            f"Expected a round's update to fit a ring of at most {LARGEST_BITS} bits, it needs {needed} (entries up "
            f"to {bound}). Lower joint.bits, training.local_steps or training.batch_size."
        )
    return Ring.of_bits(needed)
