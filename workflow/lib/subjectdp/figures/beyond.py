"""Beyond the papers: accuracy of runs in sound mode by ε, subjects, their spread and over rounds.

Runs with predicted noise are marked everywhere: hollow marks, dotted lines, the heading and the notes.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from subjectdp.errors import DataError, expected
from subjectdp.figures import parts
from subjectdp.figures.panels import LegendEntry, Panel, Sheet, Style, styles_for
from subjectdp.figures.parts import GREY, MARKS, curve_values
from subjectdp.plan.plan import PrivacyUnit
from subjectdp.results.collect import FigureInputs
from subjectdp.results.select import bands, sound_runs
from subjectdp.results.shown_runs import in_order

OWN, PREDICTED = "accuracy_own_noise", "accuracy_predicted_noise"
_ASIDE = {"": " (no privacy)", PrivacyUnit.ITEM.value: " (item level only)"}
_FAR = 15.0  # points
_RED = "#A00000"


@dataclass(frozen=True)
class Sweep:
    """The swept setting on the horizontal axis: a column of :func:`sound_runs`, the axis' label, a tick's format."""

    column: str
    words: str
    ticks: str = "{:g}"


EPSILON = Sweep("epsilon", "ε (smaller: better protected)")
SUBJECTS = Sweep("noise_subjects", "subjects", "{:,.0f}")
ALPHA = Sweep("alpha", "α (1: even over the silos, 16: mostly at one)")
SILOS = Sweep("silos_per_subject", "silos that hold one subject")


def by_epsilon(inputs: FigureInputs, name: str) -> Sheet:
    """Accuracy against ε, below two ceilings: no privacy, and item level; a panel per data set.

    DataError without sound runs, or with two of one algorithm, seed and ε; as in the other figures by a sweep.
    """
    runs, notes = sound_runs(inputs.read_runs(), vary=("epsilon",))
    panels = tuple(_panel(part, EPSILON, "accuracy_by_epsilon", runs) for part in parts.by_dataset(runs))
    return _sheet(name, (panels,), runs, (*_notes(runs), *notes), (3.6, 5.4))


def by_subjects(inputs: FigureInputs, name: str) -> Sheet:
    """Accuracy against the number of subjects: filled marks at the runs' own number, hollow ones at predicted numbers.

    With predicted noise the training data stay the same and only the noise on the average falls. The curve shows the
    effect of noise alone; more subjects would bring more data as well.
    """
    runs, notes = sound_runs(inputs.read_runs(), vary=("subjects", "noise_subjects"))
    panels = tuple(_subjects_panel(part, styles_for(runs["name"])) for part in parts.by_dataset(runs))
    legend = (
        LegendEntry("filled: the runs' own subjects", Style(GREY, "o", "-")),
        LegendEntry("hollow: predicted noise of so many", Style(GREY, "o", ":"), filled=False),
    )
    told = (*_notes(runs), f"ε = {_targets(runs)} for as many subjects as the axis says", *notes)
    return _sheet(name, (panels,), runs, told, (3.6, 5.8), legend)


def by_spread(inputs: FigureInputs, name: str) -> Sheet:
    """Accuracy by the power α of the subjects' distribution, and by the number of silos of a subject.

    Two panels per data set; DataError if the runs sweep neither.
    """
    runs, notes = sound_runs(inputs.read_runs(), vary=("alpha", "silos_per_subject"))
    everywhere, even = runs["silos_per_subject"] == runs["silos"], runs["alpha"] == 1
    kinds = [
        (ALPHA, runs[everywhere], "accuracy_by_alpha", ", spread by a power"),
        (SILOS, runs[even], "accuracy_by_silos", ", evenly over some silos"),
    ]
    panels = [
        _panel(part, sweep, quantity, rows, words)
        for sweep, rows, quantity, words in kinds
        for part in parts.by_dataset(rows)
        if part[sweep.column].nunique() > 1
    ]
    if not panels:
        allowed = "partition.alpha or partition.silos_per_subject at more than one value"
        raise expected("runs of the figure", "one spread of the subjects", allowed, DataError)
    rows = tuple((panel,) for panel in panels) if len(panels) > 2 else (tuple(panels),)
    return _sheet(name, rows, runs, (*_notes(runs), f"ε = {_targets(runs)}", *notes), (3.3, 5.2))


def over_rounds(inputs: FigureInputs, name: str) -> Sheet:
    """Accuracy over the rounds: a row per data set, a panel per ε; runs without noise are in each of them."""
    runs, notes = sound_runs(inputs.read_runs(), vary=("epsilon",))
    rounds, styles = inputs.read_rounds(), styles_for(runs["name"])
    rows = tuple(
        tuple(
            _rounds_panel(part[(part["unit"] == "") | (part["epsilon"] == value)], value, rounds, styles)
            for value in sorted(part.loc[part["unit"] != "", "epsilon"].unique())
        )
        for part in parts.by_dataset(runs)
    )
    marks, axis = _notes(runs)
    told = (marks.replace("Marks", "Lines").replace("bar", "band"), axis, *notes)
    return _sheet(name, rows, runs, told, (3.4, 4.6))


def _sheet(
    name: str,
    rows: tuple[tuple[Panel, ...], ...],
    runs: pd.DataFrame,
    notes: tuple[str, ...],
    size: tuple[float, float],
    legend: tuple[LegendEntry, ...] = (),
) -> Sheet:
    """A sheet with an entry per algorithm, those that protect no subject marked; ``size``: a panel's height, width."""
    styles = styles_for(runs["name"])
    units = runs.groupby("name")["unit"].first().map(_ASIDE).fillna("")
    entries = [LegendEntry(f"{each}{units[each]}", styles[each]) for each in in_order(runs["name"])]
    run_ids, (height, width) = tuple(runs["run_id"]), size
    return Sheet(name, rows, (*entries, *legend), notes, run_ids, row_height=height, panel_width=width)


def _notes(runs: pd.DataFrame) -> tuple[str, ...]:
    places = ["epsilon", "noise_subjects", "subjects", "alpha", "silos_per_subject"]
    counts = runs.groupby(["name", "dataset", *places])["seed"].nunique()
    low, high = int(counts.min()), int(counts.max())
    seeds = f"{high} seed{'s' if high > 1 else ''}" if low == high else f"{low} to {high} seeds"
    told = f"Marks: mean over the seeds, bar: 95 % t-interval, {seeds}; sound mode, δ = {parts.written(runs['delta'])}"
    return (f"{told}, a subject over all its silos", "The axis of accuracy does not begin at 0")


def _targets(runs: pd.DataFrame) -> str:
    return parts.written(runs.loc[runs["unit"] != "", "epsilon"])


def _values(runs: pd.DataFrame, sweep: Sweep, quantity: str) -> pd.DataFrame:
    """Test accuracy in per cent by name and place, of one data set."""
    table = runs.assign(series=runs["name"], x=runs[sweep.column].astype(float))
    table = table.assign(value=table["final_test_accuracy"] * 100)
    return parts.plotted(bands(table, ["dataset", "series", "x"], "value"), quantity=quantity)


def _prediction_words(runs: pd.DataFrame) -> str:
    """``, predicted noise of N subjects`` for a heading; empty if the noise is for the runs' own subjects."""
    numbers = sorted(set(runs["predicted_subjects"].dropna().astype(int)))
    if not numbers:
        return ""
    words = f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"
    return f", predicted noise of {words} subjects"


def _panel(runs: pd.DataFrame, sweep: Sweep, quantity: str, every: pd.DataFrame, words: str = "") -> Panel:
    """A panel of one data set; algorithms without noise are horizontal lines if ε is swept."""
    values, styles = _values(runs, sweep, quantity), styles_for(every["name"])
    across = set(runs.loc[runs["unit"] == "", "name"]) if sweep is EPSILON else set()
    hollow = values["series"].isin(set(runs.loc[runs["predicted_subjects"].notna(), "name"]))
    draw = partial(_draw, values=values.assign(hollow=hollow), sweep=sweep, styles=styles, across=across)
    words, scale = _prediction_words(runs) + words, f"accuracy_{runs['dataset'].iloc[0]}"
    return parts.dataset_panel(runs, quantity, draw, values, words, scale=scale)


def _draw(axes: Axes, values: pd.DataFrame, sweep: Sweep, styles: dict[str, Style], across: Collection[str]) -> None:
    """Marks at the places of the sweep, hollow where the column ``hollow`` says so; ``across``: lines instead."""
    for name in in_order(values["series"]):
        part = values[values["series"] == name]
        if name in across:
            _draw_across(axes, part.iloc[0], styles[name])
            continue
        for hollow, marks in part.groupby("hollow"):
            parts.draw_marks(axes, marks, styles[name], bool(hollow))
    places = values.loc[~values["series"].isin(list(across)), "x"]
    parts.logarithmic(axes, sorted(set(places)), sweep.words, sweep.ticks)
    _accuracy_axis(axes, values)


def _draw_across(axes: Axes, row: pd.Series, style: Style) -> None:
    """A level that does not depend on the swept setting: a horizontal line with its interval as a band."""
    axes.axhline(float(row["mean"]), color=style.color, linestyle=style.line, linewidth=1.3)
    if np.isfinite(row["low"]):
        axes.axhspan(float(row["low"]), float(row["high"]), color=style.color, alpha=0.10, linewidth=0)


def _accuracy_axis(axes: Axes, values: pd.DataFrame) -> None:
    """An axis of accuracy around the marks; algorithms far below all others are named at its lower edge instead.

    Far below: their best accuracy is more than 15 points below the median of all marks.
    """
    best = values.groupby("series")["mean"].max()
    far = best[best < float(values["mean"].median()) - _FAR]
    shown = values[~values["series"].isin(far.index)]
    low = float(np.nanmin(shown["low"].fillna(shown["mean"])))
    top = float(np.nanmax(shown["high"].fillna(shown["mean"])))
    space = max(1.0, 0.06 * (top - low))
    axes.set_ylim(max(0.0, low - space), min(100.0, top + space))
    axes.set_ylabel("test accuracy (%)")
    if not far.empty:
        words = ", ".join(f"{name} (at most {far[name]:.1f} %)" for name in in_order(far.index))
        axes.text(0.01, 0.01, f"↓ below: {words}", transform=axes.transAxes, va="bottom", fontsize=7.5)


def _subjects_panel(runs: pd.DataFrame, styles: dict[str, Style]) -> Panel:
    predicted = runs["predicted_subjects"].notna()
    kinds = ((runs[~predicted], OWN), (runs[predicted], PREDICTED))
    values = pd.concat([_values(part, SUBJECTS, kind) for part, kind in kinds if not part.empty], ignore_index=True)
    plain = in_order(runs.loc[runs["unit"] == "", "name"])

    def draw(axes: Axes) -> None:
        _draw(axes, values.assign(hollow=values["quantity"] == PREDICTED), SUBJECTS, styles, ())
        for name in plain:
            part = values[(values["series"] == name) & (values["quantity"] == OWN)].sort_values("x")
            _draw_across(axes, part.iloc[-1], styles[name])
        axes.tick_params(axis="x", rotation=45)
        _mark_predicted(axes, values)

    scale = f"accuracy_{runs['dataset'].iloc[0]}"
    return parts.dataset_panel(runs, "accuracy_by_subjects", draw, values, scale=scale)


def _mark_predicted(axes: Axes, values: pd.DataFrame) -> None:
    """A tinted ground under all places that no run has, with words on it."""
    predicted = values.loc[values["quantity"] == PREDICTED, "x"]
    if predicted.empty:
        return
    low, (left, right) = float(predicted.min()), axes.get_xlim()
    own = values.loc[(values["quantity"] == OWN) & (values["x"] < low), "x"]
    edge = (low * float(own.max())) ** 0.5 if not own.empty else left
    axes.axvspan(edge, right, color="#F6ECEC", zorder=0)
    look: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": 8, "style": "italic", "color": _RED}
    axes.text(0.99, 0.02, "predicted noise: an experiment", transform=axes.transAxes, **look)


def _rounds_panel(runs: pd.DataFrame, epsilon: float, rounds: pd.DataFrame, styles: dict[str, Style]) -> Panel:
    values = curve_values(runs, rounds, "test_accuracy", "name")
    values = parts.plotted(values, quantity=f"accuracy_epsilon_{epsilon:g}")

    def draw(axes: Axes) -> None:
        parts.draw_lines(axes, values, styles, MARKS)
        _accuracy_axis(axes, values)
        parts.rounds_axis(axes, values)

    key, words = f"epsilon_{epsilon:g}".replace(".", "_"), f", ε = {epsilon:g}{_prediction_words(runs)}"
    return parts.dataset_panel(runs, key, draw, values, words, scale=f"accuracy_{runs['dataset'].iloc[0]}")
