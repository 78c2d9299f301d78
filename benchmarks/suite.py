"""The suite: the tables of each workload, measured one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks import machine
from benchmarks.calibrations import CALIBRATIONS, time_calibration
from benchmarks.dry_runs import time_dry_runs
from benchmarks.light_round import time_light_round
from benchmarks.methods import BASE, METHODS
from benchmarks.problem import Case
from benchmarks.round_loop import time_round
from benchmarks.simulators import time_simulators
from benchmarks.steps import measure_memory, time_steps
from benchmarks.tables import Table
from benchmarks.timing import Outcome
from benchmarks.worker import in_worker

MALLOCS = ("tuned", "default")
_EPSILONS = (1.0, 4.0, 8.0)
_SWEEPS = (20, 200, 2000)
_SLOW_ROUNDS = 3  # of calibrations and dry runs, which take seconds each
_BLOCKS = 5  # of simulators, each of which starts anew
_BATCHES = {
    "cnn": {32: 30, 64: 60, 256: 238, 512: 476},
    "lstm": {100: 86},
    "small_lstm": {32: 28},
    "subjects": {64: 16, 256: 32},
    "head": {512: 476},
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
        memory: methods whose peak memory is measured.
    """

    workloads: tuple[str, ...]
    batches: tuple[int, ...] | None = None
    rounds: int = 7
    methods: tuple[str, ...] | None = None
    mallocs: tuple[str, ...] = MALLOCS
    threads: int = 1
    memory: tuple[str, ...] = tuple(METHODS)


def measure(options: Options) -> Iterator[Table]:
    """Each table as soon as it is measured; WorkerError if a worker dies."""
    for workload in options.workloads:
        yield from WORKLOADS[workload](workload, options)


def _cases(workload: str, batches: Sequence[int] | None) -> list[Case]:
    """The cases of a workload; other batch sizes than the papers' have as many subjects in proportion."""
    model = {"lstm": "leaf_lstm", "small_lstm": "small_lstm", "head": "handwriting_head"}.get(workload, "leaf_cnn")
    known = _BATCHES[workload]
    share = next(subjects / batch for batch, subjects in reversed(known.items()))
    return [Case(workload, model, b, known.get(b, max(1, round(share * b)))) for b in batches or known]


def _step_tables(workload: str, options: Options) -> Iterator[Table]:
    """One table a case and malloc; the gate is passed once, with the first malloc."""
    wanted = options.methods
    names = [
        name
        for name, method in METHODS.items()
        if (workload in method.workloads if wanted is None else name in (BASE, *wanted))
    ]
    for case in _cases(workload, options.batches):
        passed = names
        for malloc in options.mallocs:
            load, gated = machine.load(), malloc == options.mallocs[0]
            outcomes = in_worker(malloc, options.threads, time_steps, case, passed, options.rounds, gated)
            _add_memory(outcomes, case, options, malloc)
            passed = [name for name in passed if outcomes[name].status != "FAIL"]
            yield Table(workload, case.batch, BASE, outcomes, malloc, options.threads, case.subjects, load)


def _add_memory(outcomes: dict[str, Outcome], case: Case, options: Options, malloc: str) -> None:
    """Measures the peak memory of the methods that were timed, where it was asked for."""
    wanted = (BASE, *options.memory) if options.memory else ()
    names = [name for name, outcome in outcomes.items() if name in wanted and outcome.wall]
    if not names:
        return
    for name, found in in_worker(malloc, options.threads, measure_memory, case, names).items():
        outcomes[name].memory = found.memory
        outcomes[name].note += f"; {found.note}" if found.note else ""


def _round_tables(workload: str, options: Options) -> Iterator[Table]:
    for batch in options.batches or (64,):
        for malloc in options.mallocs:
            load = machine.load()
            timed = in_worker(malloc, options.threads, time_round, "leaf_cnn", batch, options.rounds)
            yield Table(workload, batch, "bare_steps", timed, malloc, options.threads, load=load)


def _light_round_tables(workload: str, options: Options) -> Iterator[Table]:
    for batch in options.batches or (512,):
        for malloc in options.mallocs:
            load = machine.load()
            timed = in_worker(malloc, options.threads, time_light_round, batch, options.rounds)
            yield Table(workload, batch, "subjectdp_round", timed, malloc, options.threads, load=load)


def _simulator_tables(workload: str, options: Options) -> Iterator[Table]:
    """By wall time: some methods work in other processes."""
    malloc, blocks = options.mallocs[0], min(options.rounds, _BLOCKS)
    for batch in options.batches or (512,):
        load = machine.load()
        timed = in_worker(malloc, 1, time_simulators, batch, blocks)
        yield Table(workload, batch, "subjectdp_round", timed, malloc, load=load, by_wall=True)


def _calibration_tables(workload: str, options: Options) -> Iterator[Table]:
    base, malloc, rounds = next(iter(CALIBRATIONS)), options.mallocs[0], min(options.rounds, _SLOW_ROUNDS)
    names = [name for name in CALIBRATIONS if name in (base, *(options.methods or CALIBRATIONS))]
    for epsilon in options.batches or _EPSILONS:
        load = machine.load()
        timed = in_worker(malloc, options.threads, time_calibration, float(epsilon), names, rounds)
        yield Table(workload, epsilon, base, timed, malloc, options.threads, load=load)


def _dag_tables(workload: str, options: Options) -> Iterator[Table]:
    sizes, load = options.batches or _SWEEPS, machine.load()
    timed = time_dry_runs(sizes, min(options.rounds, _SLOW_ROUNDS))
    base = f"dry_run_{min(sizes)}"
    for size in sizes:
        yield Table(workload, size, base, {base: timed[min(sizes)], "dry_run": timed[size]}, load=load)


WORKLOADS: dict[str, Callable[[str, Options], Iterator[Table]]] = {
    "cnn": _step_tables,
    "lstm": _step_tables,
    "subjects": _step_tables,
    "head": _step_tables,
    "round": _round_tables,
    "light_round": _light_round_tables,
    "simulators": _simulator_tables,
    "calibration": _calibration_tables,
    "dag": _dag_tables,
    "small_lstm": _step_tables,
}
"""Workload -> its tables."""
