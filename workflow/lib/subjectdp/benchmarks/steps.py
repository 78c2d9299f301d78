"""Tasks of a worker process: one table of steps, and the peak memory of its methods."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from subjectdp.benchmarks import gate, memory
from subjectdp.benchmarks.cases import Case, Problem, make_problem
from subjectdp.benchmarks.harness import Samples, interleave
from subjectdp.benchmarks.methods import METHODS, Method, Target

_ROOM = 0.5  # of the available memory: methods that hold per-item gradients may take so much of it


@dataclass
class Outcome:
    """What a task says of one method.

    Attributes:
        status: ``ok``, ``FAIL`` (the gate refused it) or ``skipped``.
        note: why, or the gate's errors.
        samples: its times, None unless ``ok``.
        memory: peak bytes of its steps, None where not measured.
        value: a result that the method computed (σ of a calibration), None where it has none.
    """

    status: str
    note: str = ""
    samples: Samples | None = None
    memory: int | None = None
    value: float | None = None


def time_steps(task: dict[str, Any]) -> dict[str, Outcome]:
    """Gate and timing of one case: ``case``, ``methods``, ``rounds``, ``gate`` (False: it has been through)."""
    problem = make_problem(Case(**task["case"]))
    methods = [METHODS[name] for name in task["methods"]]
    outcomes = {method.name: _can_run(method, problem) for method in methods}
    ready = [method for method in methods if outcomes[method.name].status == "ok"]
    if task["gate"]:
        outcomes |= _gated(ready, problem)
        ready = [method for method in ready if outcomes[method.name].status == "ok"]
    steppers: dict[str, Callable[[], object]] = {}
    for method in ready:
        try:
            steppers[method.name] = method.build(problem).step
        except Exception as error:  # a peer's own failure must not end the table
            outcomes[method.name] = _refused(method, error)
    _tell(f"{problem.case.workload} B={problem.case.batch}: timing {', '.join(steppers)}")
    for name, samples in interleave(steppers, task["rounds"]).items():
        outcomes[name] = replace(outcomes[name], samples=samples)
    return outcomes


def measure_memory(task: dict[str, Any]) -> dict[str, Outcome]:
    """Peak memory of the methods of one case."""
    case, outcomes = Case(**task["case"]), {}
    reason = memory.unmeasurable()
    for name in task["methods"]:
        if reason is not None:
            outcomes[name] = Outcome("skipped", reason)
            continue
        _tell(f"{case.workload} B={case.batch}: memory of {name}")
        try:
            outcomes[name] = Outcome("ok", memory=memory.peak_bytes(METHODS[name], case))
        except RuntimeError as error:
            outcomes[name] = Outcome("skipped", f"memory not measured: {error}")
    return outcomes


def _gated(methods: Sequence[Method], problem: Problem) -> dict[str, Outcome]:
    tested = gate.gate_problem(problem)
    _tell(f"{problem.case.workload} B={problem.case.batch}: float64 loop")
    references = gate.references(tested, {method.target for method in methods})
    _tell(f"{problem.case.workload} B={problem.case.batch}: gate of {', '.join(m.name for m in methods)}")
    return {method.name: _verdict(method, tested, references) for method in methods}


def _verdict(method: Method, problem: Problem, references: dict[Target, gate.Reference]) -> Outcome:
    try:
        verdict = gate.check(method, problem, references[method.target])
    except Exception as error:  # a peer's own failure must not end the table
        return _refused(method, error)
    text = f"error of the sum {verdict.sum_error:.1e}"
    if verdict.norm_error is not None:
        text += f", of the norms {verdict.norm_error:.1e}"
    tolerance = gate.TOLERANCE if method.ours else gate.PEER_TOLERANCE
    return Outcome("ok" if verdict.within(tolerance) else "FAIL", text)


def _refused(method: Method, error: Exception) -> Outcome:
    if method.ours:
        raise error
    first = (str(error).splitlines() or [""])[0]
    return Outcome("skipped", f"{type(error).__name__}: {first[:160]}")


def _can_run(method: Method, problem: Problem) -> Outcome:
    reason = method.unavailable()
    if reason is not None:
        return Outcome("skipped", reason)
    size = sum(p.numel() for p in problem.initial.parameters())
    needed = method.copies * problem.case.batch * size * 4
    if needed > _ROOM * _available_bytes():
        return Outcome("skipped", f"its per-item gradients need about {needed / 1e9:.1f} GB of memory")
    return Outcome("ok")


def _available_bytes() -> float:
    """Free memory of the machine, as far as the system tells."""
    try:
        with open("/proc/meminfo") as stream:
            found = [line.split()[1] for line in stream if line.startswith("MemAvailable:")]
        return int(found[0]) * 1024.0
    except (OSError, IndexError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def set_threads(threads: int) -> None:
    """The worker's threads for torch's own kernels."""
    torch.set_num_threads(threads)
