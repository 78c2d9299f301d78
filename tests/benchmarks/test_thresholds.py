"""The rule by which all goals are judged, at and around its limits."""

from __future__ import annotations

import math

import pytest

from benchmarks.thresholds import Direction, Interval, Threshold


@pytest.mark.parametrize(
    ("direction", "low", "high", "verdict"),
    [
        ("at least", 2.0, 3.0, "met"),
        ("at least", 1.9, 3.0, "undecided"),
        ("at least", 1.0, 2.0, "undecided"),
        ("at least", 1.0, 1.9, "missed"),
        ("at most", 1.0, 2.0, "met"),
        ("at most", 1.0, 2.1, "undecided"),
        ("at most", 2.0, 3.0, "undecided"),
        ("at most", 2.1, 3.0, "missed"),
        ("more than", 2.0, 3.0, "undecided"),
        ("more than", 2.1, 3.0, "met"),
        ("more than", 1.0, 1.9, "missed"),
        ("at most", math.nan, math.nan, "undecided"),
    ],
)
def test_the_whole_interval_decides(direction: str, low: float, high: float, verdict: str) -> None:
    measured = Interval((low + high) / 2, low, high)
    assert Threshold(2.0, Direction(direction)).judge(measured)[0] == verdict


@pytest.mark.parametrize(
    ("direction", "value", "shortfall"),
    [("at most", 2.5, 0.25), ("at most", 1.0, 0.0), ("at least", 1.5, 0.25), ("at least", 3.0, 0.0)],
)
def test_a_shortfall_is_a_part_of_the_limit(direction: str, value: float, shortfall: float) -> None:
    assert Threshold(2.0, Direction(direction)).shortfall(value) == pytest.approx(shortfall)
