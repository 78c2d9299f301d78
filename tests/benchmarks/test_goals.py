"""Goals: the numbers they read from tables, and the verdicts on them."""

from __future__ import annotations

import pytest

from benchmarks import goals
from benchmarks.goals import Goal
from benchmarks.results import Measured, Table, measured
from benchmarks.steps import Outcome
from benchmarks.timing import Samples
from subjectdp.scorecard.thresholds import Direction, Threshold, Verdict


def part(workload: str, batch: int, malloc: str = "tuned", **factors: float) -> Measured:
    """A table whose methods take these multiples of plain SGD, which varies from round to round."""
    base = [1.0, 2.0, 4.0, 3.0, 1.5]
    outcomes = {
        name: Outcome("ok", "fine", Samples([f * b for b in base], [2 * f * b for b in base]), 300)
        for name, f in {"sgd": 1.0, **factors}.items()
    }
    outcomes["sgd"].memory = 200
    return measured(Table(workload, batch, 1, malloc, "sgd", "cpu"), outcomes)


@pytest.mark.parametrize(
    ("limit", "direction", "reached", "missed"),
    [
        (1.2, "at most", 1.2, 0.0),
        (1.2, "at most", 1.5, 0.25),
        (2.0, "at least", 2.0, 0.0),
        (2.0, "at least", 1.5, 0.25),
        (2, "at least", 9, 0),
    ],
)
def test_goals_are_missed_by_a_part_of_their_limit(limit, direction, reached, missed):
    threshold = Threshold(limit, Direction(direction))
    goal = Goal("g", "cnn", 64, "ratio", "vmap", "sgd", threshold)
    (found,) = goals.judge([goal], [part("cnn", 64, vmap=reached)])
    assert found.missed_by == pytest.approx(missed)
    assert found.met is (missed == 0.0)


def test_a_wide_interval_leaves_a_goal_undecided_unless_the_median_decides():
    outcomes = {
        "sgd": Outcome("ok", samples=Samples([1.0] * 4, [1.0] * 4)),
        "vmap": Outcome("ok", samples=Samples([1.0, 1.1, 1.5, 2.0], [1.0] * 4)),
    }
    table = measured(Table("cnn", 64, 1, "tuned", "sgd", "cpu"), outcomes)
    goal = Goal("g", "cnn", 64, "ratio", "vmap", "sgd", Threshold(1.2, Direction.AT_MOST))
    (found,) = goals.judge([goal], [table])
    assert (found.verdict, found.met) == (Verdict.UNDECIDED, False)
    (found,) = goals.judge([goal], [table], by_median=True)
    assert found.verdict is Verdict.MISSED


def test_goals_read_the_tuned_tables_and_the_best_opacus_mode():
    tuned = {"subjectdp_item": 1.5, "opacus_hooks": 7.5, "opacus_ghost": 3.0, "subjectdp_higrad": 1.8}
    parts = [
        part("cnn", 64, "default", subjectdp_item=1.0, opacus_hooks=20.0),
        part("cnn", 64, "tuned", **tuned),
        part("calibration", 4, subjectdp_pld=0.25),
    ]
    found = {goal.goal: goal for goal in goals.judge(goals.read_goals("full"), parts)}
    assert found["CNN, B=64: private step over plain SGD"].reached == pytest.approx(1.5)
    assert found["CNN, B=64: times faster than Opacus' best"].reached == pytest.approx(2.0)
    assert found["CNN, B=64: HiGradAvgDP over item clipping"].reached == pytest.approx(1.2)
    assert found["CNN, B=64: peak memory over plain SGD"].reached == pytest.approx(1.5)
    seconds = found["ε=4: CPU seconds to calibrate σ"]
    assert (seconds.reached, seconds.low, seconds.high) == (0.5, 0.25, 1.0)
    lstm = found["LSTM, B=100: private step over plain SGD"]
    assert lstm.reached is None and lstm.verdict is Verdict.NOT_RUN


def test_the_limits_are_as_they_were_set():
    full = {goal.name: goal.threshold for goal in goals.read_goals("full")}
    assert len(full) == 26
    for batch, limit in ((512, 1.15), (256, 1.20), (64, 1.35)):
        assert full[f"CNN, B={batch}: private step over plain SGD"] == Threshold(limit, Direction.AT_MOST)
    assert full["LSTM, B=100: private step over plain SGD"] == Threshold(1.3, Direction.AT_MOST)
    assert full["LSTM, B=100: times faster than Opacus' best"] == Threshold(7.0, Direction.AT_LEAST)
    for batch in (32, 64, 256, 512):
        fastest = full[f"CNN, B={batch}: times faster than Opacus' best"]
        assert fastest == Threshold(2.0, Direction.AT_LEAST)
    assert full["CNN, B=64: round loop over bare steps"] == Threshold(1.05, Direction.AT_MOST)
    quick = {goal.name: goal.threshold.limit for goal in goals.read_goals("quick")}
    assert list(quick.values()) == [1.7, 1.5, 1.3, 1.8, 3.5, 3, 2]
