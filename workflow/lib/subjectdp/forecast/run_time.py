"""The forecast of a scenario: one row for runs that differ only in their seed."""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from subjectdp.accounting.cache import cached
from subjectdp.accounting.epsilon import load_accountant
from subjectdp.accounting.plan_run import draft_run, plan_run
from subjectdp.accounting.statements import stated_epsilons
from subjectdp.config import paths
from subjectdp.config.fingerprint import fingerprint
from subjectdp.config.run import RunConfig, settings_apart
from subjectdp.config.scenario import Scenario
from subjectdp.data.partition import Partition
from subjectdp.errors import SubjectDPError
from subjectdp.forecast.cost_model import SizeClass, size_class, work_of
from subjectdp.forecast.federations import federation_of
from subjectdp.forecast.noise_to_weight import noise_a_weight, weight_scale
from subjectdp.plan.plan import PrivacyPlan
from subjectdp.results.labels import run_label

_STATING = "subjectdp.accounting.statements"  # the module that states ε


@dataclass(frozen=True)
class Forecast:
    """Privacy and cost of runs that differ only in their seed; ε for the federation of the first seed."""

    runs: int
    finished: int  # of them
    dataset: str
    label: str
    settings: str  # that differ from other runs of the data set and algorithm
    federation: str  # its source
    problem: str | None  # why a run will not start
    rounds: int  # executed
    local_steps: int  # of all silos in all rounds
    epsilon_as_published: float | None
    epsilon_sound_item: float | None
    epsilon_sound_subject_one_silo: float | None
    epsilon_sound_subject: float | None
    size: SizeClass  # class of time and memory on a cluster
    hours_a_run: float
    hours: float  # of the unfinished runs, one after another on one CPU core
    noise_a_weight: float | None  # of all rounds, on the global model; None: not known
    weight_scale: float | None  # of the weights before training


def forecast(
    scenario: Scenario,
    results: str = paths.RESULTS,
    processes: int = 1,
    tell: Callable[[int, int], None] = lambda done, rows: None,
) -> list[Forecast]:
    """One row for each set of runs that differ only in their seed, in the scenario's order.

    Nothing is fetched, prepared or trained. Noise is calibrated and ε computed in so many ``processes``, which takes up
    to seconds for each row. Both are kept in the results' cache: the runs find the noise there, a second forecast both.
    ``tell`` hears of each row that is done. The reason why a run will not
    start is in ``problem``.
    """
    families: dict[str, list[RunConfig]] = {}
    for run in scenario.runs:
        families.setdefault(_without_seed(run), []).append(run)
    described = settings_apart({run.run_id: run.model_dump(mode="json") for run in scenario.runs})
    firsts = [runs[0] for runs in families.values()]

    def rows(all_stated: Iterable[_Stated]) -> Iterator[Forecast]:
        for runs, stated in zip(families.values(), all_stated, strict=True):
            yield _forecast(runs, described[runs[0].run_id], results, stated)

    if processes == 1 or len(firsts) == 1:
        return list(_told(rows(_stated(run, results) for run in firsts), len(firsts), tell))
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    fingerprint(_STATING)  # keeps the graph of imports, which each process would read again
    load_accountant()
    # They use no torch: a forked process would wait for ever for the threads that its parent's torch had started.
    with ProcessPoolExecutor(min(processes, len(firsts)), mp_context=context) as pool:
        return list(_told(rows(pool.map(_stated, firsts, repeat(results))), len(firsts), tell))


def _told(rows: Iterable[Forecast], count: int, tell: Callable[[int, int], None]) -> Iterator[Forecast]:
    for done, row in enumerate(rows, start=1):
        tell(done, count)
        yield row


def _without_seed(run: RunConfig) -> str:
    return json.dumps(
        run.model_dump(mode="json", exclude={"seed": True, "performance": True}), sort_keys=True
    )


def _forecast(runs: list[RunConfig], settings: str, results: str, stated: _Stated) -> Forecast:
    run = runs[0]
    finished = sum(Path(paths.run_file(r.run_id, "manifest.json", results)).is_file() for r in runs)
    work = work_of(run, stated.silo_items, stated.evaluation_items, stated.columns["rounds"])
    hours = work.core_seconds / 3600
    scale = None if stated.columns["noise_a_weight"] is None else weight_scale(run)
    return Forecast(
        runs=len(runs),
        finished=finished,
        dataset=run.data.dataset,
        label=run_label(run.algorithm.label, run.privacy.predicted_subjects),
        settings=settings,
        local_steps=work.steps,
        size=size_class(run),
        hours_a_run=hours,
        hours=hours * (len(runs) - finished),
        weight_scale=scale,
        **stated.columns,
    )


@dataclass(frozen=True)
class _Stated:
    columns: dict[str, Any]  # of its Forecast
    silo_items: list[int] | None
    evaluation_items: int | None  # of all silos


def _stated(run: RunConfig, results: str) -> _Stated:
    partition = None
    row: dict[str, Any] = {
        "federation": "none",
        "problem": None,
        "rounds": run.training.rounds,
        "noise_a_weight": None,
    }
    row |= dict.fromkeys(_EPSILONS)
    try:
        partition, row["federation"] = federation_of(run, results)
        row["rounds"], epsilons, row["noise_a_weight"] = _privacy(run, partition, results)
        row |= epsilons
    except SubjectDPError as error:
        row["problem"] = str(error)
    return _Stated(row, *_held(partition))


_EPSILONS = {  # column: name of the statement
    "epsilon_as_published": "as_published",
    "epsilon_sound_item": "item",
    "epsilon_sound_subject_one_silo": "subject_one_silo",
    "epsilon_sound_subject": "subject",
}


def _held(partition: Partition | None) -> tuple[list[int] | None, int | None]:
    if partition is None:
        return None, None
    return partition.facts["silo_items"], len(partition.validation_items) + len(partition.test_items)


def _privacy(
    run: RunConfig, partition: Partition, results: str
) -> tuple[int, dict[str, float | None], float | None]:
    draft, target = draft_run(run, partition), run.privacy.epsilon
    published = run.privacy.mode == "as_published" and run.privacy.noise_multiplier is None
    if published and draft.mechanism.data_dependence:
        # No noise gives a sound ε, and the table of noise by group size would take minutes.
        return draft.rounds, dict.fromkeys(_EPSILONS) | {"epsilon_as_published": target}, None
    folder = paths.calibration_cache_dir(results)
    plan = plan_run(run, partition, Path(folder))
    stated = _kept_epsilons(plan, folder)
    return (
        plan.rounds,
        {column: stated[name] for column, name in _EPSILONS.items()},
        noise_a_weight(run, plan),
    )


def _kept_epsilons(plan: PrivacyPlan, folder: str) -> dict[str, float | None]:
    facts = plan.to_dict()
    facts["settings"].pop("cache_dir")  # a place, which changes no ε
    inputs = {"plan": facts, "code": fingerprint(_STATING)}
    kept: dict[str, float | None] = cached("stated_epsilons", inputs, folder, lambda: stated_epsilons(plan))
    return kept
