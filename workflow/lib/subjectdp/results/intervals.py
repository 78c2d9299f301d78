"""Means over seeds with Student-t intervals, and paired differences between algorithms with the same seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from subjectdp.errors import DataError, expected

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over ``count`` seeds with its interval; ``low`` and ``high`` are NaN for a single seed."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def half_width(self) -> float:
        """Half the length of the interval, NaN for a single seed."""
        return (self.high - self.low) / 2


def t_half_width(deviation: ArrayLike, count: ArrayLike) -> NDArray[np.float64]:
    """Half widths of t-intervals: t_{0.975, n-1} · s / √n, NaN where n < 2.

    ``deviation`` is the sample standard deviation (divisor n-1); arrays broadcast.
    """
    size = np.asarray(count, dtype=np.float64)
    enough = size >= 2
    safe = np.where(enough, size, 2.0)
    quantile = stdtrit(safe - 1, (1 + LEVEL) / 2)
    return np.where(enough, quantile * np.asarray(deviation, dtype=np.float64) / np.sqrt(safe), np.nan)


def mean_interval(values: ArrayLike) -> Estimate:
    """Mean and t-interval of one value per seed; nonfinite values are left out.

    Raises DataError if no finite value is left.
    """
    array = np.asarray(values, dtype=np.float64).ravel()
    array = array[np.isfinite(array)]
    if array.size == 0:
        raise expected("values", values, "at least one finite number", DataError)
    mean = float(array.mean())
    deviation = float(array.std(ddof=1)) if array.size > 1 else float("nan")
    half = float(t_half_width(deviation, array.size))
    return Estimate(mean, mean - half, mean + half, int(array.size))


def paired_difference(first: ArrayLike, second: ArrayLike) -> Estimate:
    """Mean of first - second over the same seeds, with the t-interval of the pairs' differences.

    Sharper than two separate intervals, because algorithms with the same seed share partition and sampling. Raises
    DataError if the lengths differ.
    """
    one, two = np.asarray(first, dtype=np.float64).ravel(), np.asarray(second, dtype=np.float64).ravel()
    if one.shape != two.shape:
        raise expected("paired values", (one.size, two.size), "of the same length", DataError)
    return mean_interval(one - two)


def largest_of(values: ArrayLike) -> float:
    """The largest value over the seeds, which holds for each of them; NaN if one seed has none."""
    return float(np.max(np.asarray(values, dtype=np.float64)))


def bands(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Mean and t-interval of ``value`` for each group of ``by``: columns ``by`` + mean, low, high, seeds.

    ``low`` and ``high`` are NaN for groups of one seed; groups without a finite value are dropped. Raises
    DataError for an empty frame.
    """
    finite = frame.loc[np.isfinite(frame[value].to_numpy(dtype=np.float64)), [*by, value]]
    if finite.empty:
        raise expected(value, "no finite value", "finite in at least one row", DataError)
    groups = finite.groupby(list(by), sort=True, observed=True)[value]
    table = groups.agg(["mean", "std", "count"]).reset_index()
    half = t_half_width(table["std"].to_numpy(), table["count"].to_numpy())
    table["low"], table["high"] = table["mean"] - half, table["mean"] + half
    table = table.rename(columns={"count": "seeds"})
    ordered: pd.DataFrame = table[[*by, "mean", "low", "high", "seeds"]]
    return ordered
