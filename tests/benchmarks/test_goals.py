"""Goals: the numbers they read from tables, and the verdicts on them."""

import pytest

from benchmarks import goals
from benchmarks.tables import Table
from benchmarks.timing import Interval, Outcome


def goal(limit: float, direction: str) -> goals.Goal:
    names = {"workload": "cnn", "batch": "64", "measure": "ratio", "method": "vmap", "base": "sgd"}
    return {"goal": "g", **names, "direction": direction, "limit": str(limit)}


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
    ],
)
def test_the_whole_interval_decides(direction: str, low: float, high: float, verdict: str) -> None:
    assert goals.verdict(Interval((low + high) / 2, low, high), 2.0, direction == "at most") == verdict


@pytest.mark.parametrize(
    ("limit", "direction", "reached", "missed"),
    [(1.2, "at most", 1.2, 0), (1.2, "at most", 1.5, 0.25), (2, "at least", 2, 0), (2, "at least", 1.5, 0.25)],
)
def test_goals_are_missed_by_a_part_of_their_limit(table, limit, direction, reached, missed):
    (found,) = goals.judge([goal(limit, direction)], [table("cnn", 64, vmap=reached)])
    assert found["missed_by"] == pytest.approx(missed)
    assert found["verdict"] == (goals.MISSED if missed else goals.MET)


def test_a_wide_interval_leaves_a_goal_undecided_unless_the_median_decides():
    times = {"sgd": [1.0] * 4, "vmap": [1.0, 1.1, 1.5, 2.0]}
    measured = [Table("cnn", 64, "sgd", {name: Outcome(cpu=cpu, wall=cpu) for name, cpu in times.items()})]
    for by_median, verdict in ((False, goals.UNDECIDED), (True, goals.MISSED)):
        (found,) = goals.judge([goal(1.2, "at most")], measured, by_median=by_median)
        assert found["verdict"] == verdict


def test_goals_read_the_tables_and_the_best_opacus_mode(table):
    factors = {"subjectdp_item": 1.5, "opacus_hooks": 7.5, "opacus_ghost": 3.0, "subjectdp_higrad": 1.8}
    tables = [table("cnn", 64, **factors), table("calibration", 4, subjectdp_pld=0.25)]
    found = {goal["goal"]: goal for goal in goals.judge(goals.read_goals("full"), tables)}
    assert found["CNN, B=64: private step over plain SGD"]["value"] == pytest.approx(1.5)
    assert found["CNN, B=64: times faster than Opacus' best"]["value"] == pytest.approx(2.0)
    assert found["CNN, B=64: HiGradAvgDP over item clipping"]["value"] == pytest.approx(1.2)
    assert found["CNN, B=64: peak memory over plain SGD"]["value"] == pytest.approx(1.5)
    seconds = found["ε=4: CPU seconds to calibrate σ"]
    assert (seconds["value"], seconds["low"], seconds["high"]) == (0.5, 0.25, 1.0)
    assert found["LSTM, B=100: private step over plain SGD"]["verdict"] == goals.NOT_RUN
