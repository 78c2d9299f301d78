"""Interleaved timing: every round runs every method once, in random order; ratios are taken within a round.

Other load hits all methods of a round alike, so a ratio of two times of one round is far steadier than a ratio of two
separate runs. With one thread, CPU time is the cost of a step whatever else runs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A measured number with its bounds."""

    value: float
    low: float
    high: float


@dataclass
class Outcome:
    """The result of one method.

    Attributes:
        status: ``ok``, ``FAIL`` (the result is wrong) or ``skipped``.
        note: the reason, or the gate's errors.
        cpu, wall: seconds by round.
        memory: peak bytes of its steps, None if not measured.
    """

    status: str = "ok"
    note: str = ""
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    memory: int | None = None


def ratio(times: list[float], base: list[float]) -> Interval:
    """Median and quartiles of times[r] / base[r] over the rounds (at least one)."""
    low, median, high = np.quantile(np.divide(times, base), [0.25, 0.5, 0.75]).tolist()
    return Interval(median, low, high)


def interleave(
    methods: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm_up: int = 1,
    seconds_per_sample: float = 0.0,
    cpu_clock: Callable[[], float] = time.process_time,
) -> dict[str, Outcome]:
    """Times every method once a round, each round in a random order, after ``warm_up`` untimed calls of each.

    A method so fast that other methods' leavings in the caches would count is called as often in a row as fits
    ``seconds_per_sample``; its times are those of one call.
    """
    calls = dict.fromkeys(methods, 1)
    for name, method in methods.items() if warm_up else ():
        started = time.perf_counter()
        for _ in range(warm_up):
            method()
        each = (time.perf_counter() - started) / warm_up
        calls[name] = max(1, int(seconds_per_sample / max(each, 1e-9)))
    shuffler, timed = random.Random(0), {name: Outcome() for name in methods}
    for _ in range(rounds):
        order = list(methods)
        shuffler.shuffle(order)
        for name in order:
            cpu, wall = cpu_clock(), time.perf_counter()
            for _ in range(calls[name]):
                methods[name]()
            timed[name].wall.append((time.perf_counter() - wall) / calls[name])
            timed[name].cpu.append((cpu_clock() - cpu) / calls[name])
    return timed
