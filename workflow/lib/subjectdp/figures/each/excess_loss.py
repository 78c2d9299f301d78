"""v3 section 4: bounds on the excess loss of a convex model beside the measured excess."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from subjectdp.figures.curves import draw_band_line
from subjectdp.figures.panels import VALUE_COLUMNS, LegendEntry, Panel, Sheet
from subjectdp.figures.style import Style, in_order, styles_for
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.intervals import bands
from subjectdp.results.labels import dataset_name, format_epsilon
from subjectdp.utility.excess_loss_table import COLUMNS, EMPIRICAL, POPULATION

_GREY = "#404040"
MARKS = {
    "excess": ("measured", "o", True),
    "bound": ("bound, with the noise that was added", "D", False),
    "bound_printed": ("bound to the letter of the theorem", "s", False),
}


def build(inputs: FigureInputs, name: str) -> Sheet:
    """Empirical excess over the steps with its bound, and population excess at the last step with both bounds."""
    table = inputs.read("utility", COLUMNS)
    styles = styles_for(table["label"])
    panels = (_over_steps(table[table["quantity"] == EMPIRICAL], styles), _at_the_end(table, styles))
    legend = tuple(LegendEntry(label, styles[label]) for label in in_order(table["label"]))
    legend += (LegendEntry("left, thin: the bound", Style(_GREY, "", (0, (1, 1)))),)
    legend += tuple(
        LegendEntry(f"right: {text}", Style(_GREY, marker, "none"), filled)
        for text, marker, filled in MARKS.values()
    )
    seeds, row = table["seed"].nunique(), table.iloc[0]
    epsilon = table["epsilon"].dropna()
    told = f"Mean of {seeds} seeds, band and bar: 95 % t-interval" if seeds > 1 else "One seed: no band"
    notes = (
        f"{told}; logistic regression with d = {int(row['parameters']):,}, "
        f"L = √2, M = {row['radius']:g} on {int(row['items']):,} items of {int(row['subjects']):,} subjects, "
        f"one silo, B = {int(row['batch_size'])}, ε = {float(epsilon.max()):g}",
        "Excess over the least loss in the ball, whose certified gap counts as excess",
    )
    return Sheet(name, (panels,), legend, notes, (), row_height=3.3, panel_width=4.9)


def _over_steps(table: pd.DataFrame, styles: dict[str, Style]) -> Panel:
    parts = [
        bands(table, ["dataset", "label", "steps"], column).assign(quantity=f"empirical_{column}")
        for column in ("excess", "bound")
    ]
    values = pd.concat(parts).rename(columns={"label": "series", "steps": "x"})[VALUE_COLUMNS]
    dataset = str(table["dataset"].iloc[0])
    return Panel(
        f"{dataset}_steps",
        f"{dataset_name(dataset)}, training items",
        partial(_draw_steps, values=values, styles=styles),
        values,
        bool(table["synthetic"].any()),
    )


def _draw_steps(axes: Axes, values: pd.DataFrame, styles: dict[str, Style]) -> None:
    for name in in_order(values["series"]):
        part = values[values["series"] == name].sort_values("x")
        draw_band_line(axes, part[part["quantity"] == "empirical_excess"], styles[name], every=2)
        bound = part[part["quantity"] == "empirical_bound"]
        axes.plot(bound["x"], bound["mean"], color=styles[name].color, linestyle=(0, (1, 1)), linewidth=1.1)
    axes.set_yscale("log")
    axes.set_xlim(0, float(values["x"].max()) * 1.02)
    axes.set_xlabel("step")
    axes.set_ylabel("excess empirical loss (nats)")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    _plain_decades(axes.yaxis)


def _at_the_end(table: pd.DataFrame, styles: dict[str, Style]) -> Panel:
    last = table[table["last"] & (table["quantity"] == POPULATION)]
    order = in_order(last["label"])
    parts = []
    for column in MARKS:
        finite = last[last[column].notna()]
        parts.append(bands(finite, ["dataset", "label"], column).assign(quantity=f"population_{column}"))
    values = pd.concat(parts).rename(columns={"label": "series"})
    values = values.assign(x=values["series"].map(order.index))[VALUE_COLUMNS]
    dataset = str(table["dataset"].iloc[0])
    return Panel(
        f"{dataset}_population",
        f"{dataset_name(dataset)}, test items",
        partial(_draw_end, values=values, order=order, styles=styles),
        values,
        bool(table["synthetic"].any()),
    )


def _draw_end(axes: Axes, values: pd.DataFrame, order: list[str], styles: dict[str, Style]) -> None:
    for place, name in enumerate(reversed(order)):
        part, color = values[values["series"] == name].set_index("quantity"), styles[name].color
        means = part["mean"].astype(float)
        axes.plot([means.min(), means.max()], [place, place], color=color, linewidth=2.0, alpha=0.35)
        for column in MARKS:
            rows = part[part.index == f"population_{column}"]
            if not rows.empty:
                _draw_mark(axes, rows.iloc[0], place, color, column)
    axes.set_xscale("log")
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set_yticks(range(len(order)), list(reversed(order)))
    axes.set_xlabel("excess population loss (nats)")
    axes.grid(visible=False, axis="y")
    _plain_decades(axes.xaxis)


def _draw_mark(axes: Axes, row: pd.Series, place: int, color: str, column: str) -> None:
    """The mark of one of :data:`MARKS` at height ``place``, with its value."""
    _, marker, filled = MARKS[column]
    face = color if filled else "white"
    axes.plot([row["mean"]], [place], marker, color=color, markerfacecolor=face, markersize=6.5)
    if filled and np.isfinite(row["low"]):
        axes.plot([row["low"], row["high"]], [place, place], color=color, linewidth=1.2)
    axes.annotate(
        format_epsilon(float(f"{row['mean']:.2g}")),
        (row["mean"], place),
        xytext=(0, -8 if filled else 7),
        textcoords="offset points",
        ha="center",
        va="top" if filled else "bottom",
        fontsize=7.5,
        color=_GREY,
    )


def _plain(value: float, _: object) -> str:
    return format_epsilon(value) if value >= 1 else f"{value:g}"


def _plain_decades(axis: object) -> None:
    """Ticks at powers of ten, at most eight, as plain numbers."""
    axis.set_major_locator(LogLocator(base=10, numticks=8))  # type: ignore[attr-defined]
    axis.set_minor_locator(NullLocator())  # type: ignore[attr-defined]
    axis.set_major_formatter(FuncFormatter(_plain))  # type: ignore[attr-defined]
