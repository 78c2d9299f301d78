"""The suite: which tables a run of the benchmarks measures, one after another, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from subjectdp.benchmarks import machine
from subjectdp.benchmarks.cases import Case
from subjectdp.benchmarks.methods import BASE, CALIBRATION_METHODS, METHODS, select
from subjectdp.benchmarks.results import Measured, Table, measured, print_measured
from subjectdp.benchmarks.steps import Outcome
from subjectdp.benchmarks.worker import WorkerKilled, run_task

MALLOCS = ("tuned", "default")
_EPSILONS = (1.0, 4.0, 8.0)
_SWEEPS = (20, 200, 2000)
_SLOW_ROUNDS = 3  # of calibrations and dry runs, which take seconds each


@dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes:
        workloads: keys of ``WORKLOADS``.
        batches: batch sizes, None for each workload's own; ε for calibration, runs for dag.
        rounds: timed rounds of every method.
        methods: names, None for each workload's own.
        mallocs: of ``MALLOCS``.
        threads: of a worker.
        memory: whether peak memory is measured, or of which methods.
    """

    workloads: tuple[str, ...]
    batches: tuple[int, ...] | None = None
    rounds: int = 7
    methods: tuple[str, ...] | None = None
    mallocs: tuple[str, ...] = MALLOCS
    threads: int = 1
    memory: bool | tuple[str, ...] = True


Found = Callable[[Measured], None]


def run_suite(options: Options, found: Found = print_measured) -> list[Measured]:
    """Measures all tables; ``found`` is called with each as soon as it is there.

    Raises:
        WorkerError: a worker died.
    """
    parts = []
    for workload in options.workloads:
        for part in WORKLOADS[workload](workload, options):
            found(part)
            parts.append(part)
    return parts


# ---- steps ----------------------------------------------------------------------------------------------------
def _cases(workload: str, batches: Sequence[int] | None) -> list[Case]:
    """The cases of a workload; subjects as many as the papers have in a mini-batch of that size."""
    if workload == "subjects":
        known = {64: 16, 256: 32}
        return [Case(workload, "leaf_cnn", b, known.get(b, max(1, b // 8))) for b in batches or known]
    model, sizes, distinct = {
        "cnn": ("leaf_cnn", (32, 64, 256, 512), 0.93),
        "lstm": ("leaf_lstm", (100,), 0.86),
        "small_lstm": ("small_lstm", (32,), 0.86),
    }[workload]
    return [Case(workload, model, b, max(1, round(distinct * b))) for b in batches or sizes]


def _step_tables(workload: str, options: Options) -> Iterator[Measured]:
    methods = select(workload, options.methods)
    for case in _cases(workload, options.batches):
        refused: dict[str, Outcome] = {}
        for number, malloc in enumerate(options.mallocs):
            names = [method.name for method in methods if method.name not in refused]
            table = Table(workload, case.batch, options.threads, malloc, BASE, "", case.subjects)
            part = _step_table(table, case, names, options, first=number == 0)
            if number == 0:
                refused = _not_ok(part)
            yield part


def _not_ok(part: Measured) -> dict[str, Outcome]:
    return {row.method: Outcome(row.status, row.note) for row in part.rows if row.status == "FAIL"}


def _step_table(table: Table, case: Case, names: list[str], options: Options, first: bool) -> Measured:
    """One table; JAX has threads of its own and runs apart, beside a plain SGD of the same rounds."""
    table = replace(table, clock="cpu" if options.threads == 1 else "wall")
    task = {"task": "steps", "case": asdict(case), "rounds": options.rounds, "gate": first}
    load = machine.load()
    outcomes = _timed(task, [name for name in names if name != "jax"], table)
    apart: dict[str, Outcome] = {}
    if "jax" in names:
        apart = run_task({**task, "methods": [BASE, "jax"], "pinned": True}, table.malloc, options.threads)
    if options.memory:
        chosen = {**apart, **outcomes}
        if isinstance(options.memory, tuple):
            chosen = {name: outcome for name, outcome in chosen.items() if name in (BASE, *options.memory)}
        _add_memory(chosen, case, table)
    part = measured(table, outcomes, load)
    if not apart:
        return part
    apart[BASE].memory = outcomes[BASE].memory
    jax = measured(replace(table, clock="wall"), apart, load)
    return replace(part, rows=(*part.rows, *(row for row in jax.rows if row.method == "jax")))


def _timed(task: dict[str, Any], names: list[str], table: Table) -> dict[str, Outcome]:
    """The task's outcomes; where it runs out of memory, those of the methods that hold no per-item gradients."""
    try:
        return run_task({**task, "methods": names}, table.malloc, table.threads)
    except WorkerKilled as killed:
        light = [name for name in names if METHODS[name].copies == 0]
        if light == names:
            raise
        outcomes = run_task({**task, "methods": light}, table.malloc, table.threads)
        return {name: outcomes.get(name, Outcome("skipped", str(killed))) for name in names}


def _add_memory(outcomes: dict[str, Outcome], case: Case, table: Table) -> None:
    names = [name for name, outcome in outcomes.items() if outcome.samples is not None]
    task = {"task": "memory", "case": asdict(case), "methods": names}
    for name, outcome in run_task(task, table.malloc, table.threads).items():
        outcomes[name].memory = outcome.memory
        if outcome.memory is None:
            outcomes[name].note += f"; {outcome.note}"


# ---- rounds, calibration, planning ----------------------------------------------------------------------------
def _round_tables(workload: str, options: Options) -> Iterator[Measured]:
    for batch in options.batches or (64,):
        for malloc in options.mallocs:
            clock = "cpu" if options.threads == 1 else "wall"
            table = Table(workload, batch, options.threads, malloc, "bare_steps", clock)
            task = {"task": "round", "model": "leaf_cnn", "batch": batch, "rounds": options.rounds}
            load = machine.load()
            yield measured(table, run_task(task, malloc, options.threads), load)


def _calibration_tables(workload: str, options: Options) -> Iterator[Measured]:
    malloc, base = options.mallocs[0], CALIBRATION_METHODS[0]
    wanted = CALIBRATION_METHODS if options.methods is None else (base, *options.methods)
    methods = [name for name in CALIBRATION_METHODS if name in wanted]
    for epsilon in options.batches or _EPSILONS:
        table = Table(workload, epsilon, options.threads, malloc, base, "cpu")
        rounds = min(options.rounds, _SLOW_ROUNDS)
        task = {"task": "calibration", "epsilon": epsilon, "rounds": rounds, "methods": methods}
        load = machine.load()
        yield measured(table, run_task(task, malloc, options.threads), load)


def _dag_tables(workload: str, options: Options) -> Iterator[Measured]:
    from subjectdp.benchmarks.dag import time_dry_runs

    sizes = [int(size) for size in options.batches or _SWEEPS]
    load = machine.load()
    outcomes = time_dry_runs(sizes, min(options.rounds, _SLOW_ROUNDS))
    for size in sizes:
        base = f"dry_run_{min(sizes)}"
        table = Table(workload, size, 1, "default", base, "cpu")
        pair = {base: outcomes[min(sizes)], "dry_run": outcomes[size]}
        yield measured(table, pair, load)


WORKLOADS: dict[str, Callable[[str, Options], Iterator[Measured]]] = {
    "cnn": _step_tables,
    "lstm": _step_tables,
    "subjects": _step_tables,
    "round": _round_tables,
    "calibration": _calibration_tables,
    "dag": _dag_tables,
    "small_lstm": _step_tables,
}
"""Workload -> its tables."""
