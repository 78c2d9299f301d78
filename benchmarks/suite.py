"""The suite: the tables of each workload, measured one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks import machine
from benchmarks.calibrations import time_calibration
from benchmarks.dry_runs import time_dry_runs
from benchmarks.methods import BASE, CALIBRATION_METHODS, select
from benchmarks.problem import Case
from benchmarks.results import Measured, Table, measured, print_measured
from benchmarks.round_loop import time_round
from benchmarks.steps import Outcome, measure_memory, time_steps
from benchmarks.worker import in_worker

MALLOCS = ("tuned", "default")
_EPSILONS = (1.0, 4.0, 8.0)
_SWEEPS = (20, 200, 2000)
_SLOW_ROUNDS = 3  # of calibrations and dry runs, which take seconds each
_BATCHES = {
    "cnn": {32: 30, 64: 60, 256: 238, 512: 476},
    "lstm": {100: 86},
    "small_lstm": {32: 28},
    "subjects": {64: 16, 256: 32},
}
"""Batch sizes of the workloads of steps, with the distinct subjects of the papers' mini-batches of that size."""


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


Report = Callable[[Measured], None]


def run_suite(options: Options, report: Report = print_measured) -> list[Measured]:
    """Measures all tables and reports each as soon as it is measured; WorkerError if a worker dies."""
    parts = []
    for workload in options.workloads:
        for part in WORKLOADS[workload](workload, options):
            report(part)
            parts.append(part)
    return parts


def _table(workload: str, batch: float, options: Options, malloc: str, base: str) -> Table:
    clock = "cpu" if options.threads == 1 else "wall"
    return Table(workload, batch, options.threads, malloc, base, clock, load=machine.load())


# ---- steps ----------------------------------------------------------------------------------------------------
def _cases(workload: str, batches: Sequence[int] | None) -> list[Case]:
    """The cases of a workload; other batch sizes than the papers' have as many subjects in proportion."""
    model = {"lstm": "leaf_lstm", "small_lstm": "small_lstm"}.get(workload, "leaf_cnn")
    known = _BATCHES[workload]
    share = next(subjects / batch for batch, subjects in reversed(known.items()))
    return [Case(workload, model, b, known.get(b, max(1, round(share * b)))) for b in batches or known]


def _step_tables(workload: str, options: Options) -> Iterator[Measured]:
    """One table a case and malloc; the gate is passed once, with the first malloc."""
    for case in _cases(workload, options.batches):
        names = [method.name for method in select(workload, options.methods)]
        for number, malloc in enumerate(options.mallocs):
            table = replace(_table(workload, case.batch, options, malloc, BASE), subjects=case.subjects)
            timed = in_worker(malloc, options.threads, time_steps)
            outcomes = timed(case, names, options.rounds, gated=number == 0)
            _add_memory(outcomes, case, options, malloc)
            part = measured(table, outcomes)
            names = [row["method"] for row in part.rows if row["status"] != "FAIL"]
            yield part


def _add_memory(outcomes: dict[str, Outcome], case: Case, options: Options, malloc: str) -> None:
    """Measures the peak memory of the methods that were timed, where it was asked for."""
    names = [name for name, outcome in outcomes.items() if outcome.samples is not None]
    if isinstance(options.memory, tuple):
        names = [name for name in names if name in (BASE, *options.memory)]
    if not options.memory:
        return
    for name, outcome in in_worker(malloc, options.threads, measure_memory)(case, names).items():
        outcomes[name].memory = outcome.memory
        if outcome.memory is None:
            outcomes[name].note += f"; {outcome.note}"


# ---- round loop, calibration, dry runs ------------------------------------------------------------------------
def _round_tables(workload: str, options: Options) -> Iterator[Measured]:
    for batch in options.batches or (64,):
        for malloc in options.mallocs:
            table = _table(workload, batch, options, malloc, "bare_steps")
            timed = in_worker(malloc, options.threads, time_round)
            yield measured(table, timed("leaf_cnn", batch, options.rounds))


def _calibration_tables(workload: str, options: Options) -> Iterator[Measured]:
    base = CALIBRATION_METHODS[0]
    wanted = CALIBRATION_METHODS if options.methods is None else (base, *options.methods)
    names = [name for name in CALIBRATION_METHODS if name in wanted]
    for epsilon in options.batches or _EPSILONS:
        table = _table(workload, epsilon, options, options.mallocs[0], base)
        timed = in_worker(table.malloc, options.threads, time_calibration)
        yield measured(table, timed(float(epsilon), names, min(options.rounds, _SLOW_ROUNDS)))


def _dag_tables(workload: str, options: Options) -> Iterator[Measured]:
    sizes = [int(size) for size in options.batches or _SWEEPS]
    load, base = machine.load(), f"dry_run_{min(sizes)}"
    outcomes = time_dry_runs(sizes, min(options.rounds, _SLOW_ROUNDS))
    for size in sizes:
        table = Table(workload, size, 1, "default", base, "cpu", load=load)
        yield measured(table, {base: outcomes[min(sizes)], "dry_run": outcomes[size]})


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
