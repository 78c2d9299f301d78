"""Time and memory of a run, for each algorithm and data set."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from subjectdp.figures.curves import present, styles_of
from subjectdp.figures.panels import VALUE_COLUMNS, Panel, Sheet
from subjectdp.figures.style import Style, in_order
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.intervals import bands
from subjectdp.results.labels import dataset_name, format_number

QUANTITIES = {
    "seconds_a_run": ("wall_seconds", "time of a run (s)"),
    "seconds_a_round": ("seconds_a_round", "time of a round (s)"),
    "memory": ("peak_memory_mb", "peak memory (MB)"),
}


def build(inputs: FigureInputs, name: str) -> Sheet:
    """A row per data set: seconds per run, seconds per round, peak memory; each algorithm over all its runs."""
    runs = inputs.read_runs()
    runs = runs.assign(seconds_a_round=runs["wall_seconds"] / runs["rounds_executed"])
    styles = styles_of(runs)
    rows = tuple(
        tuple(_panel(runs[runs["dataset"] == dataset], quantity, styles) for quantity in QUANTITIES)
        for dataset in present(runs)
    )
    most = max(part["label"].nunique() for _, part in runs.groupby("dataset"))
    note = "Mean over all runs of an algorithm in the scenario, bar: 95 % t-interval; whole runs, evaluation included"
    return Sheet(
        name, rows, (), (note,), tuple(runs["run_id"]), row_height=0.95 + 0.25 * most, panel_width=3.7
    )


def _panel(runs: pd.DataFrame, quantity: str, styles: dict[str, Style]) -> Panel:
    dataset = str(runs["dataset"].iloc[0])
    column, axis = QUANTITIES[quantity]
    order = in_order(runs["label"])
    values = bands(runs, ["dataset", "label"], column).rename(columns={"label": "series"})
    values = values.assign(quantity=quantity, x=values["series"].map(order.index))[VALUE_COLUMNS]
    draw = partial(_draw, values=values, axis=axis, order=order, styles=styles)
    return Panel(f"{dataset}_{quantity}", dataset_name(dataset), draw, values, bool(runs["synthetic"].any()))


def _draw(axes: Axes, values: pd.DataFrame, axis: str, order: list[str], styles: dict[str, Style]) -> None:
    table = {str(row["series"]): row for row in values.to_dict("records")}
    top = float(np.nanmax(values["high"].fillna(values["mean"])))
    for place, name in enumerate(reversed(order)):
        row, style = table[name], styles[name]
        mean = float(row["mean"])
        axes.plot([0, mean], [place, place], color=style.color, linewidth=2.2, alpha=0.35)
        if np.isfinite(row["low"]):
            axes.plot([max(0.0, row["low"]), row["high"]], [place, place], color=style.color, linewidth=1.2)
        axes.plot([mean], [place], style.marker, color=style.color, markersize=6.5)
        end = mean if np.isnan(row["high"]) else float(row["high"])
        axes.annotate(
            format_number(float(f"{mean:.3g}")),
            (end, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color="#404040",
        )
    axes.set_xlim(0, top * 1.22)
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set_yticks(range(len(order)), list(reversed(order)))
    axes.set_xlabel(axis)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.grid(visible=False, axis="y")
