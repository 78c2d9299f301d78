"""Timing: who runs when, and what the ratios are."""

import itertools

import pytest

from benchmarks.dry_runs import time_dry_runs
from benchmarks.scale import time_scale
from benchmarks.timing import Interval, interleave, ratio
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
