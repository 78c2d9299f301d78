"""A scenario's plan: what its runs guarantee and cost, as rows, as text, and as files in the scenario's folder."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Any

import pandas as pd

from subjectdp.accounting.calibration import cached
from subjectdp.accounting.plan_run import draft_run, plan_run
from subjectdp.accounting.sound import averaged_noise
from subjectdp.accounting.statements import stated_epsilons
from subjectdp.config import paths
from subjectdp.config.fingerprint import fingerprint
from subjectdp.config.run import RunConfig, settings_apart
from subjectdp.config.scenario import Scenario
from subjectdp.data.catalogue import DATASETS
from subjectdp.data.partition import Partition
from subjectdp.errors import PrivacyError, SubjectDPError
from subjectdp.forecast.before_start import undrawable_figures
from subjectdp.forecast.cost_model import SizeClass, size_class, work_of
from subjectdp.forecast.federations import COUNTS, federation_of
from subjectdp.io.atomic import write_frame, write_text
from subjectdp.io.printing import table_lines
from subjectdp.models.catalogue import SHAPES
from subjectdp.plan.plan import PrivacyPlan, TrustModel
from subjectdp.results.labels import run_label

_HEADER = (
    *("runs", "done", "data", "algorithm", "settings", "rounds", "published ε", "ε item", "ε subject, 1 silo"),
    *("ε subject", "class", "a run", "left"),
)
_EPSILONS = {  # column: name of the statement
    "epsilon_as_published": "as_published",
    "epsilon_sound_item": "item",
    "epsilon_sound_subject_one_silo": "subject_one_silo",
    "epsilon_sound_subject": "subject",
}
_WIDTH = 110

WARN_ABOVE = 1.0
"""Ratio of noise to scale from which on a plan warns."""

LINEAR_SCALE = 5.0
"""Noise a weight that a linear model on inputs of norm 1 stands: the logits of a trained one are of about that size.

On the embedded data lower rates cost accuracy where the noise is 3.5 and 5 (39 to 31 %, 62 to 53 %), and gain it where
it is 5.8 and 8.7 (13 to 16 %, 21 to 36 %).
"""


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
    scenario: Scenario, results: str = paths.RESULTS, on_progress: Callable[[int, int], None] = lambda done, rows: None
) -> list[Forecast]:
    """One row for each set of runs that differ only in their seed, in the scenario's order.

    Nothing is fetched, prepared or trained. Calibrated noise and ε are kept in the results' cache: the runs find the
    noise there, a second forecast both. The reason why a run will not start is in ``problem``.
    ``on_progress``: called after each row with the rows that are done and their number.
    """
    families: dict[str, list[RunConfig]] = {}
    for run in scenario.runs:
        shared = run.model_dump(mode="json", exclude={"seed", "performance"})
        families.setdefault(json.dumps(shared, sort_keys=True), []).append(run)
    described = settings_apart({run.run_id: run.model_dump(mode="json") for run in scenario.runs})
    rows: list[Forecast] = []
    for runs in families.values():
        rows.append(_forecast(runs, described[runs[0].run_id], results))
        on_progress(len(rows), len(families))
    return rows


def _forecast(runs: list[RunConfig], settings: str, results: str) -> Forecast:
    run, partition = runs[0], None
    stated: dict[str, Any] = {"federation": "none", "problem": None, "rounds": run.training.rounds}
    stated |= {"noise_a_weight": None, **dict.fromkeys(_EPSILONS)}
    try:
        partition, stated["federation"] = federation_of(run, results)
        stated |= _privacy(run, partition, results)
    except SubjectDPError as error:
        stated["problem"] = str(error)
    silo_items, evaluated = None, None
    if partition is not None:
        silo_items = partition.facts["silo_items"]
        evaluated = len(partition.validation_items) + len(partition.test_items)
    work = work_of(run, silo_items, evaluated, stated["rounds"])
    hours = work.core_seconds / 3600
    finished = sum(Path(paths.run_file(r.run_id, "manifest.json", results)).is_file() for r in runs)
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
        weight_scale=None if stated["noise_a_weight"] is None else weight_scale(run),
        **stated,
    )


def _privacy(run: RunConfig, partition: Partition, results: str) -> dict[str, Any]:
    draft = draft_run(run, partition)
    published = run.privacy.mode == "as_published" and run.privacy.noise_multiplier is None
    if published and draft.mechanism.data_dependence:
        # No noise gives a sound ε, and the table of noise by group size would take minutes.
        return {"rounds": draft.rounds, "epsilon_as_published": run.privacy.epsilon}
    folder = paths.calibration_cache_dir(results)
    plan = plan_run(run, partition, Path(folder))
    facts = plan.to_dict()
    facts["settings"].pop("cache_dir")  # a place, which changes no ε
    inputs = {"plan": facts, "code": fingerprint("subjectdp.accounting.statements")}
    epsilons = cached("stated_epsilons", inputs, folder, lambda: stated_epsilons(plan))
    stated = {column: epsilons[name] for column, name in _EPSILONS.items()}
    return {"rounds": plan.rounds, "noise_a_weight": noise_a_weight(run, plan), **stated}


def plan_scenario(
    scenario: Scenario, results: str = paths.RESULTS, on_progress: Callable[[int, int], None] = lambda done, rows: None
) -> tuple[pd.DataFrame, str]:
    """The :func:`forecast` as a table and as text; writes both into the scenario's folder."""
    rows = forecast(scenario, results, on_progress)
    frame = pd.DataFrame([asdict(row) for row in rows])
    text = plan_text(scenario, rows)
    folder = Path(paths.scenario_dir(scenario.name, results))
    write_frame(folder / "plan.csv", frame)
    write_text(folder / "plan.txt", text)
    return frame, text


def plan_text(scenario: Scenario, rows: Sequence[Forecast]) -> str:
    """The plan for people: runs, their guarantees and costs, and how those were estimated."""
    runs, done = sum(row.runs for row in rows), sum(row.finished for row in rows)
    left = sum(row.hours for row in rows)
    longest = max(rows, key=lambda row: row.hours_a_run)
    lines = [
        f"Plan of the scenario {scenario.name}: {runs} runs, {done} of them done",
        "",
        *table_lines(_HEADER, [_cells(row) for row in rows]),
        "",
        f"left to run  {_span(left)} on one CPU core, one run after another; the longest run "
        f"{_span(longest.hours_a_run)} ({longest.label}, {longest.dataset})",
        "",
        *_notes(rows),
        *(line for problem in undrawable_figures(scenario) for line in wrap(f"Will not start: {problem}", _WIDTH)),
        *scenario.repetitions,
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Forecast) -> tuple[Any, ...]:
    epsilons = (getattr(row, column) for column in _EPSILONS)
    return (
        *(row.runs, row.finished, row.dataset, row.label, row.settings or None, row.rounds),
        *(None if value is None else f"{value:.4g}" for value in epsilons),
        *(row.size, _span(row.hours_a_run), _span(row.hours)),
    )


def _span(hours: float) -> str:
    for unit, hours_of_it in (("s", 1 / 3600), ("min", 1 / 60), ("h", 1.0)):
        count = hours / hours_of_it
        if count < 99.5 or unit == "h":
            break
    return f"{count:,.0f} {unit}" if count >= 9.95 or count == 0 else f"{count:.1f} {unit}"


def _notes(rows: Sequence[Forecast]) -> list[str]:
    federations = sorted({row.federation for row in rows} - {"none"})
    notes = [
        "ε: of the federation of the first seed, taken from: "
        + ", ".join(federations)
        + (". Expected counts are predictions: the real data change ε." if COUNTS in federations else ".")
        + " A published ε is what the paper claims, no guarantee; no number under a sound ε: none can be given.",
        "Hours: operations of all local steps and evaluations at the pace of one CPU core, 50 GFLOP/s.",
    ]
    return [line for note in [*notes, *_noisy(rows), *_refused(rows)] for line in wrap(note, _WIDTH)]


def _noisy(rows: Sequence[Forecast]) -> list[str]:
    ratios = {
        f"{row.label} on {row.dataset}" + (f" ({row.settings})" if row.settings else ""): (
            row.noise_a_weight / row.weight_scale
        )
        for row in rows
        if row.noise_a_weight is not None
        and row.weight_scale is not None
        and row.noise_a_weight > WARN_ABOVE * row.weight_scale
    }
    if not ratios:
        return []
    named = ", ".join(f"{name} {ratio:.2g}" for name, ratio in sorted(ratios.items(), key=lambda each: -each[1]))
    return [
        "WARNING: the noise of all rounds on a weight exceeds the scale of the weights before training, and will "
        f"drown the model; times the scale: {named}. Lower the rate or the number of steps, or take a smaller model."
    ]


def _refused(rows: Sequence[Forecast]) -> list[str]:
    by_reason: dict[str, list[Forecast]] = {}
    for row in rows:
        if row.problem is not None:
            by_reason.setdefault(row.problem, []).append(row)
    return [
        f"{sum(row.runs for row in refused)} of {sum(row.runs for row in rows)} runs will not start "
        f"({', '.join(dict.fromkeys(f'{row.label} on {row.dataset}' for row in refused))}): {problem}"
        for problem, refused in by_reason.items()
    ]


# --- noise against the scale of the weights -----------------------------------------------------------------


def weight_scale(run: RunConfig) -> float:
    """Standard deviation of the largest layer's weights at the start of a run.

    Linear models have fixed features (``models.fixed``) or start at zero (``models.text``), and inputs of norm 1:
    :data:`LINEAR_SCALE`.
    """
    return _scale(str(run.model.name), json.dumps(run.model.parameters, sort_keys=True), run.data.dataset)


@cache
def _scale(name: str, parameters: str, dataset: str) -> float:
    from subjectdp.models.build import build_model  # torch: here, for runs that are refused need none
    from subjectdp.models.fixed import fixed_features

    facts = DATASETS[dataset]
    shape = facts.shape or SHAPES[facts.kind]
    model = build_model(name, facts.classes, facts.kind, 0, json.loads(parameters), shape)
    largest = max(model.parameters(), key=lambda weights: weights.numel()).detach()
    linear = fixed_features(model) is not None or not largest.any()
    return LINEAR_SCALE if linear else float(largest.std())


def noise_a_weight(run: RunConfig, plan: PrivacyPlan) -> float | None:
    """Standard deviation of the noise of all rounds on a weight of the global model.

    SGD adds a step's noise times the rate, momentum over 1 - m as much. Adam divides a step by its own size, so that
    one of pure noise moves a weight by about the rate, whatever the clip norm. None without noise, for noise that is
    added after the local steps, and for noise or divisor that depend on the mini-batch.
    """
    if plan.clip_norm is None or plan.mechanism.noised_after_steps:
        return None
    try:
        averaged = averaged_noise(plan) * plan.clip_norm
    except PrivacyError:
        return None
    optimizer, steps = run.training.optimizer, plan.rounds * max(silo.steps_per_round for silo in plan.silos)
    if optimizer.name == "adam":
        independent = 1 if plan.mechanism.trust is TrustModel.CENTRAL else len(plan.silos)
        averaged = 1 / math.sqrt(independent)
    elif optimizer.name == "momentum":
        averaged /= 1 - optimizer.momentum
    return averaged * optimizer.learning_rate * math.sqrt(steps)
