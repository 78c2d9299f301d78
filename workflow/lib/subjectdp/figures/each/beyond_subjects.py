"""Accuracy against the number of subjects: their own number, and predicted numbers.

With predicted noise the training data stay the same and only the noise on the average falls. The curve shows the effect
of noise alone; more subjects would bring more data as well.
"""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from subjectdp.figures.curves import present
from subjectdp.figures.panels import LegendEntry, Panel, Sheet
from subjectdp.figures.style import Style, in_order, styles_for
from subjectdp.figures.sweeps import (
    Sweep,
    accuracy_axis,
    draw_across,
    draw_marks,
    logarithmic,
    notes_of,
    shifts,
    sweep_legend,
    sweep_values,
)
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.labels import dataset_name
from subjectdp.results.select import sound_runs

SWEEP = Sweep("noise_subjects", "subjects", "{:,.0f}")
OWN, PREDICTED = "accuracy_own_noise", "accuracy_predicted_noise"
_GREY, _RED = "#404040", "#A00000"


def build(inputs: FigureInputs, name: str) -> Sheet:
    """A panel per data set: filled marks at the runs' own number of subjects, hollow ones at predicted numbers."""
    runs, notes = sound_runs(inputs.read_runs(), vary=("subjects", "noise_subjects"))
    styles = styles_for(runs["name"])
    panels = tuple(_panel(runs[runs["dataset"] == dataset], styles) for dataset in present(runs))
    epsilons = ", ".join(f"{value:g}" for value in sorted(runs.loc[runs["unit"] != "", "epsilon"].unique()))
    legend = (
        *sweep_legend(runs),
        LegendEntry("filled: the runs' own subjects", Style(_GREY, "o", "-")),
        LegendEntry("hollow: predicted noise of so many", Style(_GREY, "o", ":"), filled=False),
    )
    told = (*notes_of(runs), f"ε = {epsilons} for as many subjects as the axis says", *notes)
    return Sheet(name, (panels,), legend, told, tuple(runs["run_id"]), row_height=3.6, panel_width=5.8)


def _panel(runs: pd.DataFrame, styles: dict[str, Style]) -> Panel:
    dataset = str(runs["dataset"].iloc[0])
    predicted = runs["predicted_subjects"].notna()
    parts = [
        sweep_values(part, SWEEP, quantity)
        for part, quantity in ((runs[~predicted], OWN), (runs[predicted], PREDICTED))
        if not part.empty
    ]
    values = pd.concat(parts, ignore_index=True)
    plain = set(runs.loc[runs["unit"] == "", "name"])
    return Panel(
        key=f"{dataset}_accuracy_by_subjects",
        heading=dataset_name(dataset),
        draw=partial(_draw, values=values, styles=styles, plain=plain),
        values=values,
        synthetic=bool(runs["synthetic"].any()),
        scale=f"accuracy_{dataset}",
    )


def _draw(axes: Axes, values: pd.DataFrame, styles: dict[str, Style], plain: set[str]) -> None:
    names = in_order(values["series"])
    aside = shifts(names)
    for name in names:
        for quantity in (OWN, PREDICTED):
            part = values[(values["series"] == name) & (values["quantity"] == quantity)].sort_values("x")
            if not part.empty:
                draw_marks(axes, part, styles[name], quantity == PREDICTED, aside[name])
            if not part.empty and name in plain:
                draw_across(axes, part.tail(1), styles[name])
    logarithmic(axes, sorted(set(values["x"])), SWEEP)
    axes.tick_params(axis="x", rotation=45)
    accuracy_axis(axes, values)
    _mark_predicted(axes, values)


def _mark_predicted(axes: Axes, values: pd.DataFrame) -> None:
    """A tinted ground under all places that no run has, with words on it."""
    predicted = values.loc[values["quantity"] == PREDICTED, "x"]
    if predicted.empty:
        return
    low = float(predicted.min())
    own = values.loc[(values["quantity"] == OWN) & (values["x"] < low), "x"]
    edge = (low * float(own.max())) ** 0.5 if not own.empty else axes.get_xlim()[0]
    axes.axvspan(edge, axes.get_xlim()[1], color="#F6ECEC", zorder=0)
    axes.text(
        0.99,
        0.02,
        "predicted noise: an experiment",
        transform=axes.transAxes,
        ha="right",
        va="bottom",
        fontsize=8,
        style="italic",
        color=_RED,
    )
