"""Tasks of a worker process: gate and times of the methods of one case, and their peak memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from benchmarks import gate
from benchmarks.methods import METHODS, Case, Problem, make_problem, ours
from benchmarks.processes import growth, peak_bytes, unmeasurable
from benchmarks.timing import Outcome, interleave

_SECONDS_PER_SAMPLE = 0.05  # steps follow one another in training
_PART_OF_MEMORY = 0.5  # of what is there: as much may per-item gradients take
_OF_AN_LSTM = (("hidden", 16), ("dense", 16))
_NARROW = {"leaf_cnn": (("hidden", 16),), "leaf_lstm": _OF_AN_LSTM, "small_lstm": _OF_AN_LSTM}  # others are small


def time_steps(case: Case, names: Sequence[str], rounds: int) -> dict[str, Outcome]:
    """Gate and times of methods on one case; a method that is wrong is not timed."""
    problem = make_problem(case)
    outcomes = {name: _fits(name, problem) for name in names}
    _log(case, f"gate of {', '.join(names)}")
    _gate({name: outcome for name, outcome in outcomes.items() if outcome.status == "ok"}, problem)
    steps = {}
    for name, outcome in outcomes.items():
        if outcome.status == "ok":
            with peers_may_fail(name, outcome):
                steps[name] = METHODS[name].build(problem).step
    _log(case, f"timing {', '.join(steps)}")
    for name, timed in interleave(steps, rounds, warm_up=2, seconds_per_sample=_SECONDS_PER_SAMPLE).items():
        outcomes[name].cpu, outcomes[name].wall = timed.cpu, timed.wall
    return outcomes


def measure_memory(case: Case, names: Sequence[str]) -> dict[str, Outcome]:
    """Peak memory of methods on one case, or a note why not."""
    reason = unmeasurable()
    outcomes = {name: Outcome(note=reason or "") for name in names}
    for name, outcome in outcomes.items() if reason is None else ():
        _log(case, f"memory of {name}")
        try:
            outcome.memory = peak_bytes(_peak, name, case)
        except RuntimeError as error:
            outcome.note = f"memory not measured: {error}"
    return outcomes


def _peak(name: str, case: Case) -> int:
    """The method steps on a narrow copy first, so that code pages and the libraries' own tables do not count."""
    build, problem = METHODS[name].build, make_problem(case)
    build(make_problem(replace(case, batch=2, subjects=1, parameters=_NARROW.get(case.model, ())))).step()
    return growth(build(problem).step)


def _gate(outcomes: dict[str, Outcome], problem: Problem) -> None:
    tested = gate.gate_problem(problem)
    references = gate.references(tested, {METHODS[name].target for name in outcomes})
    for name, outcome in outcomes.items():
        with peers_may_fail(name, outcome):
            errors = gate.check(METHODS[name].build(tested), references[METHODS[name].target])
            passed = gate.passes(errors, gate.TOLERANCE if ours(name) else gate.PEER_TOLERANCE)
            outcome.status = "ok" if passed else "FAIL"
            outcome.note = "error of the " + ", of the ".join(f"{k} {e:.1e}" for k, e in errors.items())


@contextmanager
def peers_may_fail(name: str, outcome: Outcome) -> Iterator[None]:
    """A failure of another library's method must not end the table; it is noted."""
    try:
        yield
    except Exception as error:
        if ours(name):
            raise
        outcome.status = "skipped"
        outcome.note = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:160]}"


def _fits(name: str, problem: Problem) -> Outcome:
    size = sum(p.numel() for p in problem.initial.parameters())
    needed = METHODS[name].copies * problem.case.batch * size * 4
    if needed > _PART_OF_MEMORY * _memory():
        return Outcome("skipped", f"its per-item gradients need about {needed / 1e9:.1f} GB of memory")
    return Outcome()


def _memory() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _log(case: Case, text: str) -> None:
    print(f"{case.workload} B={case.batch}: {text}", file=sys.stderr, flush=True)
