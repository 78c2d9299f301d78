"""Joint noise by a trusted aggregator: by local steps, with updates noised once, and as integers of few bits."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from subjectdp.errors import DataError, expected
from subjectdp.figures.curves import curve_panel, present, privacy_footnote, seed_note
from subjectdp.figures.each.joint_bits import LEGEND, bits_row
from subjectdp.figures.panels import LegendEntry, Panel, Sheet
from subjectdp.figures.style import Style, sequence_styles
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.labels import dataset_name
from subjectdp.results.select import choose_setting, privacy_note, steps_words
from subjectdp.results.shown_runs import Shown

_JOINT, _LOCAL = "joint_noise", "LocalItemDP"
_ABOUT_LOCAL = f"{_LOCAL}: each silo's own noise at the same ε for an item"
_ONCE = "one noised update"
_OWN = f", {_LOCAL}"


def build(inputs: FigureInputs, name: str) -> Sheet:
    """A row per data set: accuracy, with LocalItemDP's of the same steps dotted if it was run, and loss of joint noise.

    Further rows, if the scenario has such runs: updates clipped and noised once, by the number of silos, and integer
    noise. Raises DataError without a run of joint noise.
    """
    runs = _runs_of(inputs)
    kinds = pd.Series(
        [_kind(*pair) for pair in zip(runs["joint_clipping"], runs["joint_noise"], strict=True)], runs.index
    )
    steps, notes = _steps(runs[kinds == "steps"], kinds)
    updates = _by_silos(_with_series(runs[kinds == "update"], f", {_ONCE}"))
    integers, shown = runs[kinds == "integers"], pd.concat([steps, updates])
    order = sorted(set(shown["series"]), key=_steps_key)
    styles = _styles(order)
    rounds = inputs.read_rounds()
    rows = [
        _row(part[part["dataset"] == dataset], rounds, styles, kind)
        for kind, part in (("", steps), (_ONCE, updates))
        for dataset in present(part[part["joint"]])
    ]
    for dataset in present(integers):
        rows.append(bits_row(runs[runs["dataset"] == dataset], integers[integers["dataset"] == dataset]))
    if not steps["joint"].all():
        notes = [_ABOUT_LOCAL, *notes]
    joint = shown[shown["joint"]]
    told = joint if not joint.empty else integers.assign(series="")
    return Sheet(
        name,
        tuple(rows),
        (*_legend(shown, order, styles), *(LEGEND if not integers.empty else ())),
        (seed_note(told.assign(label=told["series"])), privacy_footnote(told), *notes),
        tuple(dict.fromkeys([*shown["run_id"], *integers["run_id"]])),
    )


def _runs_of(inputs: FigureInputs) -> pd.DataFrame:
    """The runs of joint noise and those beside it, told apart by the column ``joint``."""
    runs = inputs.read_runs()
    runs = runs.assign(joint=runs["algorithm"] == _JOINT)
    if not runs["joint"].any():
        raise expected("algorithms of the scenario", f"no {_JOINT}", f"{_JOINT} for this figure", DataError)
    return runs[runs["joint"] | (runs["label"] == _LOCAL)]


def _kind(clipping: str, noise: str) -> str:
    if clipping == "update":
        return "update"
    return "integers" if noise == "skellam" else "steps"


def _steps(runs: pd.DataFrame, kinds: pd.Series) -> tuple[pd.DataFrame, list[str]]:
    """Runs of one setting that add noise in every local step; none if all runs are of another kind."""
    if runs.empty and not kinds.empty:
        return _with_series(runs), []
    chosen, notes = choose_setting(runs, Shown(vary=("local_steps",)))
    if len(runs) < len(kinds):  # other panels show the runs that these notes call left out
        notes = [f"Panels of noised steps, {note}" for note in notes]
    return _with_series(chosen), notes


def _styles(order: list[str]) -> dict[str, Style]:
    """A colour for each number of steps; LocalItemDP's lines are dotted, in the colour of the same steps."""
    steps = list(dict.fromkeys(series.removesuffix(_OWN) for series in order))
    known = dict(zip(steps, sequence_styles(len(steps)), strict=True))
    return {
        series: replace(known[series.removesuffix(_OWN)], line=":")
        if series.endswith(_OWN)
        else known[series]
        for series in order
    }


def _with_series(runs: pd.DataFrame, more: str = "") -> pd.DataFrame:
    words = [f"{steps_words(text)} a round{more}" for text in runs["local_steps"]]
    return runs.assign(
        series=[name if joint else f"{name}{_OWN}" for name, joint in zip(words, runs["joint"], strict=True)]
    )


def _by_silos(updates: pd.DataFrame) -> pd.DataFrame:
    """Updates noised once have a line for each number of silos: noise on their mean falls with it."""
    names = [
        f"{series}, {silos} silos" for series, silos in zip(updates["series"], updates["silos"], strict=True)
    ]
    return updates.assign(series=names)


def _legend(shown: pd.DataFrame, order: list[str], styles: dict[str, Style]) -> tuple[LegendEntry, ...]:
    """An entry for each line, with its ε."""
    return tuple(
        LegendEntry(f"{series}\n{privacy_note(shown[shown['series'] == series])}", styles[series])
        for series in order
    )


def _row(
    runs: pd.DataFrame, rounds: pd.DataFrame, styles: dict[str, Style], kind: str = ""
) -> tuple[Panel, ...]:
    dataset = str(runs["dataset"].iloc[0])
    shown = {"accuracy": (runs, "test_accuracy"), "loss": (runs[runs["joint"]], "test_loss")}
    panels = (
        replace(
            curve_panel(part, rounds, metric, styles, "series"),
            heading=f"{dataset_name(dataset)}, {kind or 'joint noise'}",
            key=f"{dataset}_{word}{'_updates' if kind else ''}",
        )
        for word, (part, metric) in shown.items()
    )
    # A scale of its own: with few silos the loss of noised updates explodes.
    return tuple(replace(panel, scale=f"{panel.scale}{kind}") for panel in panels)


def _steps_key(series: str) -> tuple[bool, bool, bool, int, int]:
    silos = int(series.split()[-2]) if _ONCE in series else 0
    return _ONCE in series, series.endswith(_OWN), "epoch" in series, int(series.split()[0]), silos
