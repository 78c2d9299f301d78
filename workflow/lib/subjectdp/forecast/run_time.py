"""The forecast of a scenario: one row for runs that differ in nothing but their seed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from subjectdp.config import paths
from subjectdp.config.differences import settings_apart
from subjectdp.config.run import RunConfig
from subjectdp.config.scenario import Scenario
from subjectdp.data.partition import Partition
from subjectdp.errors import SubjectDPError
from subjectdp.forecast.cost_model import SizeClass, expected_items, model_size, size_class, work_of
from subjectdp.forecast.federations import federation_of
from subjectdp.forecast.measured import Paces
from subjectdp.results.labels import run_label

BASE_MEMORY_MB = 450.0
"""Interpreter, torch and the rest of the libraries, before anything is loaded."""

_COPIES = 8  # of the parameters: model, gradient, noise, optimisers, updates of silos
_ROW_BYTES = 40  # of steps.parquet, a row a local step
_MANIFEST_BYTES = 60_000


@dataclass(frozen=True)
class Forecast:
    """What runs that differ in their seed alone will give and cost; ε by the federation of the first seed."""

    runs: int
    finished: int  # of them, those whose results are there
    dataset: str
    label: str
    settings: str  # what tells the runs apart from others of the data set and algorithm
    federation: str  # what the federation was taken from
    problem: str | None  # why a run cannot be planned (and will refuse to start)
    rounds: int  # executed
    local_steps: int  # of all silos in all rounds
    epsilon_as_published: float | None
    epsilon_sound_item: float | None
    epsilon_sound_subject_one_silo: float | None
    epsilon_sound_subject: float | None
    size: SizeClass  # class of time and memory that a cluster is asked for
    hours_a_run: float
    hours: float  # of the runs that are not finished, one after another on one device
    basis: str  # where the hours come from
    memory_mb: float  # of one run
    disk_mb: float  # results of all runs together


def forecast(
    scenario: Scenario,
    results: str = paths.RESULTS,
    paces: Paces | None = None,
) -> list[Forecast]:
    """One row for each set of runs that differ in their seed alone, in the scenario's order.

    Nothing is fetched, prepared or trained; noise is calibrated, which takes seconds for each row and is kept in the
    results' cache for the runs themselves. A run that could not start has its reason in ``problem``.
    """
    families: dict[str, list[RunConfig]] = {}
    for run in scenario.runs:
        families.setdefault(_without_seed(run), []).append(run)
    described = settings_apart({run.run_id: run.model_dump(mode="json") for run in scenario.runs})
    paces = Paces([]) if paces is None else paces
    return [_forecast(runs, described[runs[0].run_id], results, paces) for runs in families.values()]


def _without_seed(run: RunConfig) -> str:
    return json.dumps(
        run.model_dump(mode="json", exclude={"seed": True, "performance": True}), sort_keys=True
    )


def _forecast(runs: list[RunConfig], settings: str, results: str, paces: Paces) -> Forecast:
    run = runs[0]
    finished = sum(Path(paths.run_file(r.run_id, "manifest.json", results)).is_file() for r in runs)
    partition, federation, problem = None, "none", None
    rounds, epsilons = run.training.rounds, dict.fromkeys(_EPSILONS)
    try:
        partition, federation = federation_of(run, results)
        rounds, epsilons = _privacy(run, partition, results)
    except SubjectDPError as error:
        problem = str(error)
    work = work_of(run, *_held(partition), rounds)
    pace = paces.pace(run)
    hours = work.core_seconds * pace.factor / 3600
    size = model_size(run.model, run.data.dataset)
    memory = pace.memory_mb or predicted_memory_mb(run)
    disk = (4 * size.parameters + _ROW_BYTES * work.steps + _MANIFEST_BYTES) / 1e6
    return Forecast(
        runs=len(runs),
        finished=finished,
        dataset=run.data.dataset,
        label=run_label(run.algorithm.label, run.privacy.predicted_subjects),
        settings=settings,
        federation=federation,
        problem=problem,
        rounds=rounds,
        local_steps=work.steps,
        **epsilons,
        size=size_class(run),
        hours_a_run=hours,
        hours=hours * (len(runs) - finished),
        basis=pace.basis,
        memory_mb=memory,
        disk_mb=disk * len(runs),
    )


_EPSILONS = (
    "epsilon_as_published",
    "epsilon_sound_item",
    "epsilon_sound_subject_one_silo",
    "epsilon_sound_subject",
)


def _held(partition: Partition | None) -> tuple[list[int] | None, int | None]:
    """Items of each silo and pooled evaluation items; None where they are not known."""
    if partition is None:
        return None, None
    return partition.facts["silo_items"], len(partition.validation_items) + len(partition.test_items)


def _privacy(run: RunConfig, partition: Partition, results: str) -> tuple[int, dict[str, float | None]]:
    """Executed rounds, and ε by name: those that the run's manifest will state."""
    from subjectdp.accounting.plan_run import draft_run, plan_run
    from subjectdp.accounting.statements import privacy_statements

    draft, target = draft_run(run, partition), run.privacy.epsilon
    published = run.privacy.mode == "as_published" and run.privacy.noise_multiplier is None
    if published and draft.mechanism.data_dependence:
        # No sound ε can be given whatever the noise, whose table (a σ for each group size) would take minutes.
        return draft.rounds, {name: target if name == _EPSILONS[0] else None for name in _EPSILONS}
    plan = plan_run(run, partition, Path(paths.calibration_cache_dir(results)))
    stated = privacy_statements(plan, over_rounds=False)
    found = {"epsilon_as_published": stated["as_published"]["epsilon"]}
    for name, statement in stated["sound"].items():
        found[f"epsilon_sound_{name}"] = statement["epsilon"]
    return plan.rounds, {name: found[name] for name in _EPSILONS}


def predicted_memory_mb(run: RunConfig) -> float:
    """Peak memory of a run in MB: libraries, copies of the parameters, one physical batch, fixed features."""
    size = model_size(run.model, run.data.dataset)
    batch = min(run.training.batch_size, run.performance.items_at_once("cpu"))
    batch = max(batch, run.performance.evaluation_batch_size // 3)  # no gradients: a third is kept at a time
    items = expected_items(run)
    kept = size.features * run.training.augmentation.seen * (items.train + items.validation + items.test)
    return BASE_MEMORY_MB + 4e-6 * (_COPIES * size.parameters + 2 * batch * size.values + kept)
