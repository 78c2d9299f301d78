"""What a mini-batch contains of one canary subject and of the other subjects, drawn for many runs at once.

The canary owns k items of the silo; the other subjects own the rest, as evenly as whole numbers allow (as in the plan's
facts). Under Poisson sampling the canary's count and the others' counts are independent.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import SamplingMethod, SiloSchedule

Array = NDArray[np.float64]

_TABLE = 1 << 16  # resolution of the quantile table of the number of other subjects


class MinibatchDistribution:
    """One silo's mini-batches under Poisson sampling with ``schedule``'s probability.

    Attributes:
        canary_items: items of the canary subject at this silo: k, or 0 if it is absent.
        other_sizes: items per subject -> number of other subjects of that size, the same with and without the canary
            (unless ``replaced``: then an absent canary's items belong to the others).
    """

    def __init__(
        self,
        schedule: SiloSchedule,
        method: SamplingMethod,
        canary_items: int,
        present: bool = True,
        replaced: bool = False,
    ) -> None:
        if method is not SamplingMethod.POISSON:
            raise expected(
                "sampling of an audited plan", method.value, SamplingMethod.POISSON.value, PrivacyError
            )
        if not 0 <= canary_items <= schedule.items:
            raise expected("items of the canary", canary_items, f"0 to {schedule.items}", PrivacyError)
        self.probability = schedule.sampling_probability
        self.canary_items = canary_items if present else 0
        self.other_items = schedule.items - (canary_items if present or not replaced else 0)
        self.other_sizes = _even_sizes(self.other_items, max(1, schedule.subjects - int(canary_items > 0)))

    def canary_count(self, runs: int, generator: torch.Generator) -> Tensor:
        """(runs,) float32: the canary's items in the mini-batch, Binomial(k, q)."""
        if self.canary_items == 0:
            return torch.zeros(runs)
        return _draw(self._canary_limits, runs, generator).float()

    def largest_other_group(self, runs: int, generator: torch.Generator) -> Tensor:
        """(runs,) int64: the most items of one other subject."""
        return _draw(self._group_limits, runs, generator)

    def other_subjects(self, runs: int, generator: torch.Generator) -> Tensor:
        """(runs,) float32: number of distinct other subjects (probabilities to within 2^-16)."""
        places = torch.randint(_TABLE, (runs,), generator=generator, dtype=torch.int32)
        return self._subject_quantiles.index_select(0, places)

    def others_present(self, runs: int, generator: torch.Generator) -> Tensor:
        """(runs,) bool: whether any other item is in the mini-batch."""
        empty = float(np.exp(self.other_items * np.log1p(-self.probability)))
        return torch.rand(runs, generator=generator) >= empty

    @cached_property
    def _canary_limits(self) -> Tensor:
        return _limits(stats.binom.cdf(np.arange(self.canary_items), self.canary_items, self.probability))

    @cached_property
    def _group_limits(self) -> Tensor:
        return _limits(self.largest_group_cdf()[:-1])

    @cached_property
    def _subject_quantiles(self) -> Tensor:
        cumulative = np.cumsum(self.subject_count_probabilities())
        middles = (np.arange(_TABLE) + 0.5) / _TABLE
        return torch.from_numpy(np.searchsorted(cumulative, middles).astype(np.float32))

    def largest_group_cdf(self) -> Array:
        """P(largest other group ≤ z) for z = 0, 1, ... up to the largest size."""
        sizes = np.arange(max(self.other_sizes) + 1)
        logs = [
            count * stats.binom.logcdf(sizes, size, self.probability)
            for size, count in self.other_sizes.items()
        ]
        return np.asarray(np.exp(np.sum(logs, axis=0)))

    def subject_count_probabilities(self) -> Array:
        """P(m other subjects are in the mini-batch) for m = 0, 1, ..."""
        total = np.ones(1)
        for size, count in self.other_sizes.items():
            inside = 1.0 - (1.0 - self.probability) ** size
            total = np.convolve(total, stats.binom.pmf(np.arange(count + 1), count, inside))
        return np.asarray(total / total.sum())


def _even_sizes(items: int, subjects: int) -> dict[int, int]:
    small, larger = divmod(items, subjects)
    sizes = {small: subjects - larger, small + 1: larger}
    return {size: count for size, count in sizes.items() if count > 0}


def _limits(cumulative: Array) -> Tensor:
    """Upper ends of all but the last value, without those that a 24-bit uniform number cannot tell from 1."""
    kept = cumulative[cumulative < 1.0 - 2.0**-24]
    return torch.from_numpy(np.asarray(kept, dtype=np.float32))


def _draw(limits: Tensor, runs: int, generator: torch.Generator) -> Tensor:
    return torch.bucketize(torch.rand(runs, generator=generator), limits, right=True)
