"""A worker process: reads one task as JSON from standard input, runs it, writes its outcomes to standard output.

Processes of their own let a task have the environment variables of its malloc and threads from the start.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib import import_module
from typing import Any

from subjectdp.benchmarks.harness import Samples
from subjectdp.benchmarks.steps import Outcome
from subjectdp.errors import SubjectDPError
from subjectdp.places import LIBRARY

TASKS = {
    "steps": ("steps", "time_steps"),
    "memory": ("steps", "measure_memory"),
    "round": ("rounds", "time_round"),
    "calibration": ("calibrations", "time_calibration"),
}
"""Task -> module of this package and function from the task to its outcomes by method."""

TUNED = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""glibc's malloc keeps large freed blocks instead of giving them back to the kernel, and so to page faults."""


class WorkerError(SubjectDPError):
    """A task that ended without its outcomes; its own message is on standard error."""


class WorkerKilled(WorkerError):
    """A task that the system killed, as it does where memory runs out."""


def run_task(task: Mapping[str, Any], malloc: str, threads: int) -> dict[str, Outcome]:
    """Runs a task in a process of its own; WorkerError where that fails, WorkerKilled where it was killed."""
    done = subprocess.run(
        [sys.executable, "-m", "subjectdp.benchmarks.worker"],
        input=json.dumps({**task, "threads": threads}),
        env=environment(malloc, threads),
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode == -signal.SIGKILL:
        raise WorkerKilled(f"The worker of task {task['task']!r} was killed, perhaps for want of memory.")
    if done.returncode != 0:
        raise WorkerError(f"The worker of task {task['task']!r} ended with code {done.returncode}.")
    outcomes = json.loads(done.stdout.splitlines()[-1])
    return {name: _outcome(content) for name, content in outcomes.items()}


def environment(malloc: str, threads: int) -> dict[str, str]:
    """The variables of a worker: ``default`` drops all settings of glibc's malloc, ``tuned`` makes ours."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    numbers = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    paths = [str(LIBRARY), *filter(None, [inherited.get("PYTHONPATH")])]
    return {
        **inherited,
        **numbers,
        **(TUNED if malloc == "tuned" else {}),
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(paths),
        "JAX_PLATFORMS": "cpu",
    }


def main() -> None:
    """Runs the task on standard input."""
    task = json.load(sys.stdin)
    # JAX takes its threads from the processors that it may use
    if task.get("pinned") and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task["threads"]])
    # what a library prints must not mix with the outcomes
    results, sys.stdout = sys.stdout, sys.stderr
    module, function = TASKS[task["task"]]
    import_module("subjectdp.benchmarks.steps").set_threads(task["threads"])
    run: Callable[[dict[str, Any]], dict[str, Outcome]] = getattr(
        import_module(f"subjectdp.benchmarks.{module}"), function
    )
    outcomes = run(task)
    print(json.dumps({name: asdict(outcome) for name, outcome in outcomes.items()}), file=results, flush=True)


def _outcome(content: dict[str, Any]) -> Outcome:
    samples = content.pop("samples")
    return Outcome(**content, samples=None if samples is None else Samples(**samples))


if __name__ == "__main__":
    main()
