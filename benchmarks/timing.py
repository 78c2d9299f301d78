"""Interleaved timing: every round runs every method once, in random order; ratios are taken within a round.

Other load hits all methods of a round alike, so a ratio of two times of one round is far steadier than a ratio of two
separate runs. Both wall and CPU time are recorded. With one thread, CPU time is the cost of a step whatever else runs.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

NOISY = 0.25
"""A row is marked noisy if its interquartile range exceeds this part of its median."""

FEWEST_ROUNDS = 3


@dataclass
class Samples:
    """Seconds of one method by round; a slow method has fewer rounds."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def of(self, clock: str) -> list[float]:
        """The times by ``cpu`` or ``wall``."""
        return self.cpu if clock == "cpu" else self.wall


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of same-round ratios."""

    median: float
    low: float
    high: float

    @property
    def noisy(self) -> bool:
        """Whether the spread is too large to trust the median."""
        return (self.high - self.low) / self.median > NOISY


def ratio(times: Sequence[float], base: Sequence[float]) -> Ratio:
    """Median and quartiles of times[r] / base[r] over the rounds that both have (at least one)."""
    shared = [a / b for a, b in zip(times, base, strict=False)]
    if len(shared) == 1:
        return Ratio(shared[0], shared[0], shared[0])
    low, median, high = statistics.quantiles(shared, n=4, method="inclusive")
    return Ratio(median, low, high)


def interleave(
    methods: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm_up: int = 1,
    seconds_per_method: float = 25.0,
    cpu_clock: Callable[[], float] = time.process_time,
) -> dict[str, Samples]:
    """Times every method once a round, each round in a random order.

    Args:
        methods: name -> one step; its return value is dropped.
        rounds: wanted number of rounds, at least 1.
        warm_up: untimed calls of each method before the first round.
        seconds_per_method: a method too slow for all rounds in this time leaves early, after 3 rounds at least.
        cpu_clock: CPU seconds so far; the default counts this process with all its threads.
    """
    allowed = {}
    for name, method in methods.items():
        started = time.perf_counter()
        for _ in range(warm_up):
            method()
        each = (time.perf_counter() - started) / max(warm_up, 1)
        affordable = rounds if each <= 0 else int(seconds_per_method / each)
        allowed[name] = min(rounds, max(FEWEST_ROUNDS, affordable)) if warm_up else rounds
    shuffler, samples = random.Random(0), {name: Samples() for name in methods}
    for round_ in range(rounds):
        order = [name for name in methods if round_ < allowed[name]]
        shuffler.shuffle(order)
        for name in order:
            cpu, wall = cpu_clock(), time.perf_counter()
            methods[name]()
            samples[name].wall.append(time.perf_counter() - wall)
            samples[name].cpu.append(cpu_clock() - cpu)
    return samples
