"""The suite: the tables of each workload, measured one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.calibrations import time_calibration
from benchmarks.dry_runs import time_dry_runs
from benchmarks.methods import BASE, METHODS, Case
from benchmarks.processes import in_worker
from benchmarks.public_api import TRAINED, measure_public, time_public
from benchmarks.rounds import time_light_round, time_round
from benchmarks.scale import PEOPLE, time_scale
from benchmarks.simulators import time_simulators
from benchmarks.steps import measure_memory, time_steps
from benchmarks.tables import Table

_FEW = 3  # rounds of calibrations and dry runs, which take seconds each
_MODELS = {"lstm": "leaf_lstm", "small_lstm": "small_lstm", "head": "handwriting_head"}
_BATCHES: dict[str, dict[int, int]] = {
    "cnn": {32: 30, 64: 60, 256: 238, 512: 476},
    "lstm": {100: 86},
    "small_lstm": {32: 28},
    "subjects": {64: 16, 256: 32},
    "head": {512: 476},
}
"""Batch sizes of the workloads of steps, with the distinct subjects of the papers' mini-batches of that size."""


@dataclass(frozen=True)
class Options:
    """What to measure of a workload; ``batches``, ``methods``: None for its own; ``memory``: peak memory too."""

    workload: str
    batches: tuple[int, ...] | None = None
    rounds: int = 7
    methods: tuple[str, ...] | None = None
    memory: bool = True


QUICK = (
    Options("cnn", (64,), 5, (BASE, "subjectdp_item", "subjectdp_higrad", "opacus_ghost")),
    Options("small_lstm", (32,), 5, (BASE, "subjectdp_item", "opacus_hooks"), memory=False),
    Options("calibration", (4,), 3, ("subjectdp_pld",)),
)
"""What the quick run measures."""


def measure(options: Options) -> Iterator[Table]:
    """Each table as soon as it is measured; WorkerError if a worker dies."""
    yield from WORKLOADS[options.workload](options)


def _step_tables(options: Options) -> Iterator[Table]:
    workload = options.workload
    names = options.methods or [name for name, method in METHODS.items() if workload in method.workloads]
    for batch in options.batches or _BATCHES[workload]:
        case = Case(workload, _MODELS.get(workload, "leaf_cnn"), batch, _BATCHES[workload][batch])
        outcomes = in_worker(time_steps, case, names, options.rounds)
        timed = [name for name in names if outcomes[name].wall and options.memory]
        for name, found in in_worker(measure_memory, case, timed).items():
            outcomes[name].memory = found.memory
            outcomes[name].note += f"; {found.note}" if found.note else ""
        yield Table(workload, batch, BASE, outcomes)


def _public_tables(options: Options) -> Iterator[Table]:
    workload = options.workload
    outcomes = in_worker(time_public, workload, options.rounds)
    if options.memory:
        for name, peak in in_worker(measure_public, workload).items():
            outcomes[name].memory = peak
    yield Table(workload, TRAINED[workload].batch, BASE, outcomes)


def _round_tables(options: Options) -> Iterator[Table]:
    yield Table("round", 64, "bare_steps", in_worker(time_round, "leaf_cnn", 64, options.rounds))


def _light_round_tables(options: Options) -> Iterator[Table]:
    yield Table("light_round", 512, "subjectdp_round", in_worker(time_light_round, 512, options.rounds))


def _simulator_tables(options: Options) -> Iterator[Table]:
    blocks = min(options.rounds, 5)  # each of which starts anew
    yield Table("simulators", 512, "subjectdp_round", in_worker(time_simulators, 512, blocks), "wall")


def _calibration_tables(options: Options) -> Iterator[Table]:
    for epsilon in options.batches or (1, 4, 8):
        timed = in_worker(time_calibration, float(epsilon), min(options.rounds, _FEW), options.methods)
        yield Table("calibration", epsilon, "subjectdp_pld", timed)


def _dag_tables(options: Options) -> Iterator[Table]:
    for runs in options.batches or (2000,):
        yield Table("dag", runs, "dry_run", {"dry_run": time_dry_runs(runs, min(options.rounds, _FEW))})


def _scale_tables(options: Options) -> Iterator[Table]:
    for people in options.batches or PEOPLE:
        yield Table("scale", people, "10 silos", time_scale(int(people)))


WORKLOADS: dict[str, Callable[[Options], Iterator[Table]]] = {
    **dict.fromkeys(_BATCHES, _step_tables),
    **dict.fromkeys(TRAINED, _public_tables),
    "round": _round_tables,
    "light_round": _light_round_tables,
    "simulators": _simulator_tables,
    "calibration": _calibration_tables,
    "dag": _dag_tables,
    "scale": _scale_tables,
}
"""Workload -> its tables."""
