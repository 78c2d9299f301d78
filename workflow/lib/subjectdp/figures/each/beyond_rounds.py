"""Accuracy of sound runs over the rounds, a panel for each ε."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from subjectdp.figures.curves import curve_values, draw_band_line, present
from subjectdp.figures.panels import Panel, Sheet
from subjectdp.figures.style import Style, in_order, styles_for
from subjectdp.figures.sweeps import accuracy_axis, notes_of, prediction_words, sweep_legend
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.labels import dataset_name, format_number
from subjectdp.results.select import sound_runs


def build(inputs: FigureInputs, name: str) -> Sheet:
    """A row per data set, a panel per ε; runs without noise are in each of them."""
    runs, notes = sound_runs(inputs.read_runs(), vary=("epsilon",))
    rounds, styles = inputs.read_rounds(), styles_for(runs["name"])
    rows = tuple(_row(runs[runs["dataset"] == dataset], rounds, styles) for dataset in present(runs))
    marks, axis = notes_of(runs)
    told = (marks.replace("Marks", "Lines").replace("bar", "band"), axis, *notes)
    return Sheet(
        name,
        rows,
        sweep_legend(runs),
        told,
        tuple(runs["run_id"]),
        row_height=3.4,
        panel_width=4.6,
    )


def _row(runs: pd.DataFrame, rounds: pd.DataFrame, styles: dict[str, Style]) -> tuple[Panel, ...]:
    plain = runs["unit"] == ""
    epsilons = sorted(runs.loc[~plain, "epsilon"].unique())
    return tuple(
        _panel(runs[plain | (runs["epsilon"] == value)], value, rounds, styles) for value in epsilons
    )


def _panel(runs: pd.DataFrame, epsilon: float, rounds: pd.DataFrame, styles: dict[str, Style]) -> Panel:
    dataset = str(runs["dataset"].iloc[0])
    values = curve_values(runs, rounds, "test_accuracy", "name")
    shown = format_number(epsilon)
    return Panel(
        key=f"{dataset}_epsilon_{shown.replace('.', '_')}",
        heading=f"{dataset_name(dataset)}, ε = {shown}{prediction_words(runs)}",
        draw=partial(_draw, values=values, styles=styles),
        values=values.assign(quantity=f"accuracy_epsilon_{shown}"),
        synthetic=bool(runs["synthetic"].any()),
        scale=f"accuracy_{dataset}",
    )


def _draw(axes: Axes, values: pd.DataFrame, styles: dict[str, Style]) -> None:
    for name in in_order(values["series"]):
        part = values[values["series"] == name].sort_values("x")
        draw_band_line(axes, part, styles[name], every=max(1, -(-len(part) // 8)))
    accuracy_axis(axes, values)
    axes.set_xlabel("training round")
    axes.set_xlim(0, float(values["x"].max()) * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
