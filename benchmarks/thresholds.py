"""The one rule by which goals are judged: an interval against a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    """The side of the limit on which a goal is met."""

    AT_LEAST = "at least"
    AT_MOST = "at most"
    MORE_THAN = "more than"


class Verdict(StrEnum):
    """The verdict on a goal."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Interval:
    """A measured number with its bounds; NaN bounds are unknown."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Threshold:
    """A limit and the side on which a goal is met."""

    limit: float
    direction: Direction

    def judge(self, measured: Interval) -> tuple[Verdict, str]:
        """Met or missed if the whole interval is on one side of the limit, else undecided; and the reason."""
        low, high, limit = measured.low, measured.high, self.limit
        if math.isnan(low) or math.isnan(high):
            return Verdict.UNDECIDED, "one seed gives no interval"
        if self.direction is Direction.AT_MOST:
            low, high, limit = -high, -low, -limit
        if low > limit or (low == limit and self.direction is not Direction.MORE_THAN):
            return Verdict.MET, "the whole interval is on the goal's side"
        if high < limit:
            return Verdict.MISSED, "the whole interval is on the other side"
        return Verdict.UNDECIDED, "the interval holds the limit"

    def shortfall(self, value: float) -> float:
        """How far ``value`` is on the wrong side, as a part of the limit; 0 on the right side."""
        excess = value / self.limit - 1
        return max(0.0, excess if self.direction is Direction.AT_MOST else -excess)
