"""A scenario's plan as files and as text: ``plan.csv`` and ``plan.txt`` in the scenario's folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Any

import pandas as pd

from subjectdp.config import paths
from subjectdp.config.scenario import Scenario
from subjectdp.forecast.before_start import undrawable_figures
from subjectdp.forecast.federations import COUNTS
from subjectdp.forecast.noise_to_weight import WARN_ABOVE
from subjectdp.forecast.run_time import Forecast, forecast
from subjectdp.io.atomic import write_frame, write_text
from subjectdp.io.printing import table_lines

_HEADER = (
    "runs",
    "done",
    "data",
    "algorithm",
    "settings",
    "rounds",
    "published ε",
    "ε item",
    "ε subject, 1 silo",
    "ε subject",
    "class",
    "a run",
    "left",
)
_WIDTH = 110


def plan_scenario(
    scenario: Scenario,
    results: str = paths.RESULTS,
    processes: int = 1,
    tell: Callable[[int, int], None] = lambda done, rows: None,
) -> tuple[pd.DataFrame, str]:
    """The forecast as a table and as text; writes both into the scenario's folder.

    Args:
        scenario: the checked scenario.
        results: the results folder, read for finished runs, prepared data and partitions.
        processes: processes that calibrate noise.
        tell: hears of each row that is done, and how many there are.
    """
    rows = forecast(scenario, results, processes, tell)
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
        *(
            line
            for problem in undrawable_figures(scenario)
            for line in wrap(f"Will not start: {problem}", _WIDTH)
        ),
        *scenario.repetitions,
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Forecast) -> tuple[Any, ...]:
    epsilons = (
        row.epsilon_as_published,
        row.epsilon_sound_item,
        row.epsilon_sound_subject_one_silo,
        row.epsilon_sound_subject,
    )
    return (
        row.runs,
        row.finished,
        row.dataset,
        row.label,
        row.settings or None,
        row.rounds,
        *(None if value is None else f"{value:.4g}" for value in epsilons),
        row.size,
        _span(row.hours_a_run),
        _span(row.hours),
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
    named = ", ".join(
        f"{name} {ratio:.2g}" for name, ratio in sorted(ratios.items(), key=lambda each: -each[1])
    )
    return [
        "WARNING: the noise of all rounds on a weight exceeds the scale of the weights before training, and will "
        f"drown the model; times the scale: {named}. Lower the rate or the number of steps, or take a smaller model."
    ]


def _refused(rows: Sequence[Forecast]) -> list[str]:
    found: dict[str, list[Forecast]] = {}
    for row in rows:
        if row.problem is not None:
            found.setdefault(row.problem, []).append(row)
    return [
        f"{sum(row.runs for row in refused)} of {sum(row.runs for row in rows)} runs will not start "
        f"({', '.join(dict.fromkeys(f'{row.label} on {row.dataset}' for row in refused))}): {problem}"
        for problem, refused in found.items()
    ]
