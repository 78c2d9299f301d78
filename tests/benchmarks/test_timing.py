"""Timing: who runs when, what the ratios are, and which goals they meet."""

import itertools

import pytest

from benchmarks import goals
from benchmarks.dry_runs import time_dry_runs
from benchmarks.scale import time_scale
from benchmarks.tables import Table
from benchmarks.timing import Interval, Outcome, interleave, ratio
from subjectdp.errors import DataError


class Clock:
    """CPU seconds that only move when a method says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_every_round_runs_every_method_once_in_an_order_of_its_own():
    calls: list[str] = []
    names = ["a", "b", "c", "d"]
    methods = {name: (lambda name=name: calls.append(name)) for name in names}
    samples = interleave(methods, 12, warm_up=2)
    assert sorted(calls[:8]) == sorted(2 * names), "warm-up is not timed"
    rounds = [tuple(calls[start : start + 4]) for start in range(8, len(calls), 4)]
    assert len(rounds) == 12
    assert all(sorted(order) == names for order in rounds)
    assert len(set(rounds)) > 4, "orders differ"
    assert all(len(times.cpu) == len(times.wall) == 12 for times in samples.values())


def test_cpu_time_is_the_clocks_and_ratios_are_of_the_same_round():
    clock, step = Clock(), itertools.count(1)

    def advance(factor: float):
        def method() -> None:
            clock.now += factor * load[len(order) // 2]
            order.append(factor)

        return method

    order: list[float] = []
    load = [next(step) ** 2 for _ in range(6)]  # each round is slower than the last, for all methods alike
    samples = interleave({"base": advance(1.0), "slow": advance(3.0)}, 6, warm_up=0, cpu_clock=clock)
    assert samples["base"].cpu == pytest.approx(load)
    assert samples["slow"].cpu == pytest.approx([3 * each for each in load])
    assert ratio(samples["slow"].cpu, samples["base"].cpu) == Interval(3.0, 3.0, 3.0)


def test_a_fast_method_is_called_in_a_row_and_its_time_is_that_of_one_call(monkeypatch):
    now, calls = Clock(), {"fast": 0, "slow": 0}
    monkeypatch.setattr("benchmarks.timing.time.perf_counter", now)

    def method(name: str, seconds: float):
        def run() -> None:
            now.now += seconds
            calls[name] += 1

        return run

    methods = {"fast": method("fast", 0.125), "slow": method("slow", 2.0)}
    samples = interleave(methods, 4, seconds_per_sample=1.0, cpu_clock=now)
    assert calls == {"fast": 1 + 4 * 8, "slow": 1 + 4}, "one call each for warm-up"
    assert samples["fast"].cpu == samples["fast"].wall == [0.125] * 4
    assert samples["slow"].cpu == [2.0] * 4


@pytest.mark.long
def test_the_account_of_a_small_federation_is_measured_and_a_failure_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = time_scale(20, (10,)).values()
    assert 0 < found.cpu[0] < 60 and found.memory is not None and found.memory > 50 << 20
    monkeypatch.setattr("benchmarks.scale._SCHEDULE", ("--batch-size", "64"))
    with pytest.raises(DataError, match=r"ended with 2: .*--rounds to be given"):
        time_scale(20, (10,))


@pytest.mark.long
def test_a_dry_run_of_twenty_runs_ends_well() -> None:
    assert 0 < time_dry_runs(20, 1).cpu[0] < 60


# --- goals: the numbers they read from tables, and the verdicts on them ---


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
