"""Tasks of a worker process: gate and times of the methods of one case, and their peak memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks import gate, memory
from benchmarks.methods import METHODS, Method
from benchmarks.problem import Case, Problem, make_problem
from benchmarks.timing import Samples, interleave

_PART_OF_MEMORY = 0.5  # of what is free: as much may per-item gradients take


@dataclass
class Outcome:
    """The result of one method in a task.

    Attributes:
        status: ``ok``, ``FAIL`` (the gate refused it) or ``skipped``.
        note: the reason, or the gate's errors.
        samples: its times, None unless ``ok``.
        memory: peak bytes of its steps, None if not measured.
        value: σ of a calibration, else None.
    """

    status: str
    note: str = ""
    samples: Samples | None = None
    memory: int | None = None
    value: float | None = None


def time_steps(case: Case, names: Sequence[str], rounds: int, gated: bool) -> dict[str, Outcome]:
    """Gate (if ``gated``) and times of methods on one case."""
    problem, methods = make_problem(case), [METHODS[name] for name in names]
    outcomes = {method.name: _fits(method, problem) for method in methods}
    if gated:
        outcomes |= _gated([m for m in methods if outcomes[m.name].status == "ok"], problem)
    steps: dict[str, Callable[[], object]] = {}
    for method in methods:
        if outcomes[method.name].status == "ok":
            try:
                steps[method.name] = method.build(problem).step
            except Exception as error:  # a peer's own failure must not end the table
                outcomes[method.name] = _refused(method, error)
    _log(case, f"timing {', '.join(steps)}")
    for name, samples in interleave(steps, rounds).items():
        outcomes[name].samples = samples
    return outcomes


def measure_memory(case: Case, names: Sequence[str]) -> dict[str, Outcome]:
    """Peak memory of methods on one case."""
    outcomes, reason = {}, memory.unmeasurable()
    for name in names:
        if reason is not None:
            outcomes[name] = Outcome("skipped", reason)
            continue
        _log(case, f"memory of {name}")
        try:
            outcomes[name] = Outcome("ok", memory=memory.peak_bytes(METHODS[name], case))
        except RuntimeError as error:
            outcomes[name] = Outcome("skipped", f"memory not measured: {error}")
    return outcomes


def _gated(methods: Sequence[Method], problem: Problem) -> dict[str, Outcome]:
    _log(problem.case, f"gate of {', '.join(method.name for method in methods)}")
    tested = gate.gate_problem(problem)
    references = gate.references(tested, {method.target for method in methods})
    return {method.name: _verdict(method, tested, references[method.target]) for method in methods}


def _verdict(method: Method, problem: Problem, reference: gate.Reference) -> Outcome:
    try:
        errors = gate.check(method, problem, reference)
    except Exception as error:  # a peer's own failure must not end the table
        return _refused(method, error)
    text = f"error of the sum {errors.of_sum:.1e}"
    if errors.of_norms is not None:
        text += f", of the norms {errors.of_norms:.1e}"
    tolerance = gate.TOLERANCE if method.ours else gate.PEER_TOLERANCE
    return Outcome("ok" if errors.within(tolerance) else "FAIL", text)


def _refused(method: Method, error: Exception) -> Outcome:
    if method.ours:
        raise error
    first = (str(error).splitlines() or [""])[0]
    return Outcome("skipped", f"{type(error).__name__}: {first[:160]}")


def _fits(method: Method, problem: Problem) -> Outcome:
    size = sum(p.numel() for p in problem.initial.parameters())
    needed = method.copies * problem.case.batch * size * 4
    if needed > _PART_OF_MEMORY * _available_bytes():
        return Outcome("skipped", f"its per-item gradients need about {needed / 1e9:.1f} GB of memory")
    return Outcome("ok")


def _available_bytes() -> float:
    """Free memory, or all memory where the system does not report it."""
    try:
        with open("/proc/meminfo") as stream:
            found = [line.split()[1] for line in stream if line.startswith("MemAvailable:")]
        return int(found[0]) * 1024.0
    except (OSError, IndexError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _log(case: Case, text: str) -> None:
    print(f"{case.workload} B={case.batch}: {text}", file=sys.stderr, flush=True)
