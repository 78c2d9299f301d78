"""Means over seeds with Student-t intervals, and paired differences between algorithms with the same seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from subjectdp.errors import DataError, expected


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
    """Half widths of t-intervals: t_{0.975, n-1} · s / √n, NaN where n < 2; s has the divisor n-1, arrays broadcast."""
    size = np.where(np.asarray(count) >= 2, count, np.nan)
    return np.asarray(stdtrit(size - 1, 0.975) * np.asarray(deviation, dtype=np.float64) / np.sqrt(size))


def mean_interval(values: ArrayLike) -> Estimate:
    """Mean and t-interval of one value per seed, of finite values alone; DataError if none is left."""
    array = np.asarray(values, dtype=np.float64).ravel()
    array = array[np.isfinite(array)]
    if array.size == 0:
        raise expected("values", values, "at least one finite number", DataError)
    mean, deviation = float(array.mean()), array.std(ddof=1) if array.size > 1 else np.nan
    half = float(t_half_width(deviation, array.size))
    return Estimate(mean, mean - half, mean + half, array.size)


def paired_difference(first: ArrayLike, second: ArrayLike) -> Estimate:
    """Mean of first - second over the same seeds, with the t-interval of the pairs' differences.

    Sharper than two separate intervals, because algorithms with the same seed share partition and sampling. Raises
    DataError if the lengths differ.
    """
    one, two = np.ravel(first), np.ravel(second)
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
    ordered: pd.DataFrame = table.rename(columns={"count": "seeds"})[[*by, "mean", "low", "high", "seeds"]]
    return ordered
