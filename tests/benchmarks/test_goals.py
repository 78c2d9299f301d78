"""Goals: the numbers they read from tables, and the verdicts on them."""

from __future__ import annotations

import pytest

from benchmarks import goals
from benchmarks.tables import Table
from benchmarks.thresholds import Direction, Threshold, Verdict
from benchmarks.timing import Outcome


def goal(limit: float, direction: str) -> goals.Goal:
    names = {"workload": "cnn", "batch": "64", "measure": "ratio", "method": "vmap", "base": "sgd"}
    return {"goal": "g", **names, "direction": direction, "limit": str(limit)}


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
def test_goals_are_missed_by_a_part_of_their_limit(table, limit, direction, reached, missed):
    (found,) = goals.judge([goal(limit, direction)], [table("cnn", 64, vmap=reached)])
    assert found["missed_by"] == pytest.approx(missed)
    assert found["met"] is (missed == 0.0)


def test_a_wide_interval_leaves_a_goal_undecided_unless_the_median_decides():
    outcomes = {
        "sgd": Outcome(cpu=[1.0] * 4, wall=[1.0] * 4),
        "vmap": Outcome(cpu=[1.0, 1.1, 1.5, 2.0], wall=[1.0] * 4),
    }
    measured = [Table("cnn", 64, "sgd", outcomes)]
    (found,) = goals.judge([goal(1.2, "at most")], measured)
    assert (found["verdict"], found["met"]) == (Verdict.UNDECIDED, False)
    (found,) = goals.judge([goal(1.2, "at most")], measured, by_median=True)
    assert found["verdict"] is Verdict.MISSED


def test_goals_read_the_tuned_tables_and_the_best_opacus_mode(table):
    tuned = {"subjectdp_item": 1.5, "opacus_hooks": 7.5, "opacus_ghost": 3.0, "subjectdp_higrad": 1.8}
    tables = [
        table("cnn", 64, "default", subjectdp_item=1.0, opacus_hooks=20.0),
        table("cnn", 64, "tuned", **tuned),
        table("calibration", 4, subjectdp_pld=0.25),
    ]
    found = {goal["goal"]: goal for goal in goals.judge(goals.read_goals("full"), tables)}
    assert found["CNN, B=64: private step over plain SGD"]["reached"] == pytest.approx(1.5)
    assert found["CNN, B=64: times faster than Opacus' best"]["reached"] == pytest.approx(2.0)
    assert found["CNN, B=64: HiGradAvgDP over item clipping"]["reached"] == pytest.approx(1.2)
    assert found["CNN, B=64: peak memory over plain SGD"]["reached"] == pytest.approx(1.5)
    seconds = found["ε=4: CPU seconds to calibrate σ"]
    assert (seconds["reached"], seconds["low"], seconds["high"]) == (0.5, 0.25, 1.0)
    lstm = found["LSTM, B=100: private step over plain SGD"]
    assert lstm["reached"] is None and lstm["verdict"] is Verdict.NOT_RUN


def test_the_limits_are_as_they_were_set():
    full = {goal["goal"]: goals.threshold(goal) for goal in goals.read_goals("full")}
    assert len(full) == 33
    assert full["linear head, B=512: CPU seconds of a private step"] == Threshold(0.0006, Direction.AT_MOST)
    peer = full["linear head, B=512: a round, times faster than a plain loop with Opacus"]
    assert peer == Threshold(5.0, Direction.AT_LEAST)
    for simulator in ("Flower with Opacus", "pfl-research with Opacus"):
        faster = full[f"linear head, B=512: a round, times faster than {simulator}"]
        assert faster == Threshold(5.0, Direction.AT_LEAST)
    for batch, limit in ((512, 1.15), (256, 1.20), (64, 1.35)):
        assert full[f"CNN, B={batch}: private step over plain SGD"] == Threshold(limit, Direction.AT_MOST)
    assert full["LSTM, B=100: private step over plain SGD"] == Threshold(1.3, Direction.AT_MOST)
    assert full["LSTM, B=100: times faster than Opacus' best"] == Threshold(7.0, Direction.AT_LEAST)
    for batch in (32, 64, 256, 512):
        fastest = full[f"CNN, B={batch}: times faster than Opacus' best"]
        assert fastest == Threshold(2.0, Direction.AT_LEAST)
    assert full["CNN, B=64: round loop over bare steps"] == Threshold(1.05, Direction.AT_MOST)
    quick = {goal["goal"]: goals.threshold(goal).limit for goal in goals.read_goals("quick")}
    assert list(quick.values()) == [1.7, 1.5, 1.3, 1.8, 4.5, 3, 2]
