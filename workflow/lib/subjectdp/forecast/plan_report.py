"""A scenario's plan: what its runs guarantee and cost, as rows, as text, and as files in the scenario's folder."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd

from subjectdp.accounting.calibration import cached, kept_in
from subjectdp.accounting.make_plan import draft_run, plan_run
from subjectdp.accounting.statements import SCOPES, condition, stated_epsilons
from subjectdp.config.fingerprint import fingerprint
from subjectdp.config.run import RunConfig, settings_apart
from subjectdp.config.scenario import Scenario
from subjectdp.data.catalogue import DATASETS
from subjectdp.data.content import TEXT, WINDOW, Content, single_items, split_items, subjects_in_order
from subjectdp.data.partition import INHERENT, Partition, load_partition, partition_subjects, taken_and_split
from subjectdp.data.store import load_prepared
from subjectdp.errors import SubjectDPError, expected
from subjectdp.forecast import before_start
from subjectdp.forecast.before_start import figures_to_mend
from subjectdp.io.atomic import write_frame, write_text
from subjectdp.io.printing import table_lines
from subjectdp.places import RESULTS, Places
from subjectdp.results.shown_runs import CONDITIONAL_MARK, CONDITIONAL_NOTE, run_label

PARTITION, PREPARED, COUNTS = "partition", "prepared data", "expected counts"
"""The sources of a federation, the most reliable first."""
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
Progress = Callable[[int, int], None]


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
    conditional: tuple[str, ...]  # columns whose ε rests on what is read from the data
    size: before_start.SizeClass  # class of time and memory on a cluster
    hours_a_run: float
    hours: float  # of the unfinished runs, one after another on one CPU core


def forecast(scenario: Scenario, results: str = RESULTS, on_progress: Progress | None = None) -> list[Forecast]:
    """One row for each set of runs that differ only in their seed, in the scenario's order.

    Nothing is fetched, prepared or trained. Calibrated noise and ε are kept in the results' cache. ``on_progress``:
    called after each row with the rows that are done and their number.
    """
    families: dict[str, list[RunConfig]] = {}
    for run in scenario.runs:
        shared = run.model_dump(mode="json", exclude={"seed", "performance"})
        families.setdefault(json.dumps(shared, sort_keys=True), []).append(run)
    described = settings_apart({run.run_id: run.model_dump(mode="json") for run in scenario.runs})
    rows: list[Forecast] = []
    for runs in families.values():
        rows.append(_forecast(runs, described[runs[0].run_id], results))
        if on_progress is not None:
            on_progress(len(rows), len(families))
    return rows


def _forecast(runs: list[RunConfig], settings: str, results: str) -> Forecast:
    run, partition = runs[0], None
    stated: dict[str, Any] = {"federation": "none", "problem": None, "rounds": run.training.rounds}
    stated |= {**dict.fromkeys(_EPSILONS), "conditional": ()}
    try:
        partition, stated["federation"] = federation_of(run, results)
        stated |= _privacy(run, partition, results)
    except SubjectDPError as error:
        stated["problem"] = str(error)
    silo_items, evaluated = None, None
    if partition is not None:
        silo_items = partition.facts["silo_items"]
        evaluated = len(partition.validation_items) + len(partition.test_items)
    work = before_start.work_of(run, silo_items, evaluated, stated["rounds"])
    hours = work.core_seconds / 3600
    finished = sum(Path(Places(results).run_file(r.run_id, "manifest.json")).is_file() for r in runs)
    return Forecast(
        runs=len(runs),
        finished=finished,
        dataset=run.data.dataset,
        label=run_label(run.algorithm.label, run.privacy.predicted_subjects),
        settings=settings,
        local_steps=work.steps,
        size=before_start.size_class(run),
        hours_a_run=hours,
        hours=hours * (len(runs) - finished),
        **stated,
    )


def _privacy(run: RunConfig, partition: Partition, results: str) -> dict[str, Any]:
    draft = draft_run(run, partition)
    published = run.privacy.mode == "as_published" and run.privacy.noise_multiplier is None
    if published and draft.mechanism.data_dependence:
        # No noise gives a sound ε, and the table of noise by group size would take minutes.
        return {"rounds": draft.rounds, "epsilon_as_published": run.privacy.epsilon}
    with kept_in(Places(results).calibration_cache_dir()):
        plan = plan_run(run, partition)
        inputs = {"plan": plan.to_dict(), "code": fingerprint("subjectdp.accounting.statements")}
        epsilons = cached("stated_epsilons", inputs, lambda: stated_epsilons(plan))
    alone = run.data.own_subjects  # a subject's ε would be that of an item
    stated = {column: None if alone and "subject" in name else epsilons[name] for column, name in _EPSILONS.items()}
    known = [column for column, name in _EPSILONS.items() if "subject" in name and stated[column] is not None]
    read = tuple(column for column in known if condition(plan, *SCOPES[_EPSILONS[column]]))
    return {"rounds": plan.rounds, **stated, "conditional": read}


def plan_scenario(
    scenario: Scenario, results: str = RESULTS, on_progress: Progress | None = None
) -> tuple[pd.DataFrame, str]:
    """The :func:`forecast` as a table and as text; writes both into the scenario's folder."""
    rows = forecast(scenario, results, on_progress)
    frame = pd.DataFrame(rows)
    text = plan_text(scenario, rows)
    folder = Path(Places(results).scenario_dir(scenario.name))
    write_frame(folder / "plan.csv", frame)
    write_text(folder / "plan.txt", text)
    return frame, text


def plan_text(scenario: Scenario, rows: Sequence[Forecast]) -> str:
    """The plan for people: runs, their guarantees and costs, and how those were estimated."""
    runs, done = sum(row.runs for row in rows), sum(row.finished for row in rows)
    left = sum(row.hours for row in rows)
    longest = max(rows, key=lambda row: row.hours_a_run)
    undrawable, partly_drawn = figures_to_mend(scenario)
    lines = [
        f"Plan of the scenario {scenario.name}: {runs} runs, {done} of them done",
        "",
        *table_lines(_HEADER, [_cells(row) for row in rows]),
        "",
        f"left to run  {_span(left)} on one CPU core, one run after another; the longest run "
        f"{_span(longest.hours_a_run)} ({longest.label}, {longest.dataset})",
        "",
        *_notes(rows),
        *(line for problem in undrawable for line in wrap(f"Will not start: {problem}", _WIDTH)),
        *(line for told in partly_drawn for line in wrap(told, _WIDTH)),
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Forecast) -> tuple[Any, ...]:
    epsilons = {column: getattr(row, column) for column in _EPSILONS}
    marks = dict.fromkeys(row.conditional, CONDITIONAL_MARK)
    return (
        *(row.runs, row.finished, row.dataset, row.label, row.settings or None, row.rounds),
        *(None if value is None else f"{value:.4g}{marks.get(column, '')}" for column, value in epsilons.items()),
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
        *([f"{CONDITIONAL_NOTE}."] if any(row.conditional for row in rows) else []),
        "Hours: operations of all local steps and evaluations at the pace of one CPU core, 50 GFLOP/s.",
    ]
    return [line for note in [*notes, *_refused(rows)] for line in wrap(note, _WIDTH)]


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


def federation_of(run: RunConfig, results: str = RESULTS) -> tuple[Partition, str]:
    """The run's federation and where it comes from: :data:`PARTITION`, :data:`PREPARED` or :data:`COUNTS`.

    From prepared data it is the partition that the workflow will make, from expected counts one of subjects with the
    mean number of items. DataError for corrupt files, ConfigError for an impossible partition or no counts.
    """
    if Path(Places(results).partition_file(run.partition_id, "partition.json")).is_file():
        return load_partition(Places(results).partition_dir(run.partition_id)), PARTITION
    if not Path(Places(results).prepared_file(run.data_key, "meta.json")).is_file():
        if run.data.source.in_place and not run.data.expected and not Path(run.data.path or "").exists():
            raise expected("data.path", run.data.path, "a file or folder that exists: nothing else counts its people")
        if (problem := before_start.silos_problem(run)) is not None:
            raise problem
        return _predicted(run.model_dump_json(include={"seed", "data", "partition"})), COUNTS
    prepared, splits = taken_and_split(load_prepared(Places(results).prepared_dir(run.data_key)), run)
    return partition_subjects(splits, prepared.subject_ids, run.partition, run.seed), PREPARED


@lru_cache(maxsize=8)  # most runs of a scenario share one
def _predicted(sections: str) -> Partition:
    run = RunConfig.model_validate_json(sections)
    expected_data = _expected_content(run)
    splits = split_items(expected_data, run.seed, float(run.data.test_fraction or 0.0), run.data.validation_fraction)
    return partition_subjects(splits, expected_data.subject_ids, run.partition, run.seed)


def _expected_content(run: RunConfig) -> Content:
    """Data with as many people and items as are expected, and nothing in them."""
    data, kind, silos = run.data, DATASETS[run.data.dataset].kind, run.partition.silos
    subjects, mean = before_start.expected_sizes(data)
    if data.own_subjects:
        people = single_items(subjects)
    else:
        at_hand = before_start.sizes_at_hand(data)
        items = [round(mean)] * subjects if at_hand is None else at_hand[: data.subjects]
        names = (f"subject-{index}" for index in range(len(items)))
        people = subjects_in_order(names, items, WINDOW if kind == TEXT else 0)
    if run.partition.distribution == INHERENT:  # silos of equal sizes, as nothing better is known
        places = np.arange(int(people["items"].sum())) % silos
        people |= {"silo_names": tuple(map(str, range(silos))), "silos": places.astype(np.int16)}
    nothing = np.empty(0, np.uint8)
    return Content(data.dataset, kind, nothing, nothing, classes=0, window=WINDOW if kind == TEXT else 0, **people)
