"""v3 section 4: bounds on the excess loss of a convex model beside the measured excess."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from subjectdp.figures import parts
from subjectdp.figures.panels import LegendEntry, Panel, Sheet
from subjectdp.figures.parts import GREY
from subjectdp.figures.style import Style, in_order, styles_for
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.intervals import bands
from subjectdp.results.labels import format_epsilon
from subjectdp.utility import EMPIRICAL, EXCESS_COLUMNS, POPULATION

MARKS = {
    "excess": ("measured", "o", True),
    "bound": ("bound, with the noise that was added", "D", False),
    "bound_printed": ("bound to the letter of the theorem", "s", False),
}
_DOTS = (0, (1, 1))


def excess_loss(inputs: FigureInputs, name: str) -> Sheet:
    """Empirical excess over the steps with its bound, and population excess at the last step with both bounds."""
    table = inputs.read("utility", EXCESS_COLUMNS)
    styles = styles_for(table["label"])
    legend = [LegendEntry(label, styles[label]) for label in in_order(table["label"])]
    legend.append(LegendEntry("left, thin: the bound", Style(GREY, "", _DOTS)))
    for text, marker, filled in MARKS.values():
        legend.append(LegendEntry(f"right: {text}", Style(GREY, marker, "none"), filled))
    seeds, row = table["seed"].nunique(), table.iloc[0]
    told = f"Mean of {seeds} seeds, band and bar: 95 % t-interval" if seeds > 1 else "One seed: no band"
    notes = (
        f"{told}; logistic regression with d = {int(row['parameters']):,}, "
        f"L = √2, M = {row['radius']:g} on {int(row['items']):,} items of {int(row['subjects']):,} subjects, "
        f"one silo, B = {int(row['batch_size'])}, ε = {float(table['epsilon'].max()):g}",
        "Excess over the least loss in the ball, whose certified gap counts as excess",
    )
    panels = (_over_steps(table[table["quantity"] == EMPIRICAL], styles), _at_the_end(table, styles))
    return Sheet(name, (panels,), tuple(legend), notes, (), row_height=3.3, panel_width=4.9)


def _over_steps(table: pd.DataFrame, styles: dict[str, Style]) -> Panel:
    by = ["dataset", "label", "steps"]
    tables = [bands(table, by, column).assign(quantity=f"empirical_{column}") for column in ("excess", "bound")]
    values = parts.plotted(pd.concat(tables).rename(columns={"label": "series", "steps": "x"}))

    def draw(axes: Axes) -> None:
        for name in in_order(values["series"]):
            part = values[values["series"] == name].sort_values("x")
            excess = part[part["quantity"] == "empirical_excess"]
            parts.draw_band_line(axes, excess, styles[name], most_marks=-(-len(excess) // 2))
            bound = part[part["quantity"] == "empirical_bound"]
            axes.plot(bound["x"], bound["mean"], color=styles[name].color, linestyle=_DOTS, linewidth=1.1)
        axes.set_yscale("log")
        parts.rounds_axis(axes, values, "step")
        axes.set_ylabel("excess empirical loss (nats)")
        parts.decades(axes.yaxis, most=8)

    return parts.dataset_panel(table, "steps", draw, values, ", training items")


def _at_the_end(table: pd.DataFrame, styles: dict[str, Style]) -> Panel:
    last = table[table["last"] & (table["quantity"] == POPULATION)]
    order = in_order(last["label"])
    tables = [
        bands(last[last[column].notna()], ["dataset", "label"], column).assign(quantity=f"population_{column}")
        for column in MARKS
    ]
    values = pd.concat(tables).rename(columns={"label": "series"})
    values = parts.plotted(values, x=values["series"].map(order.index))

    def draw(axes: Axes) -> None:
        for name, place in parts.draw_rows(axes, order).items():
            part, color = values[values["series"] == name], styles[name].color
            axes.plot([part["mean"].min(), part["mean"].max()], [place] * 2, color=color, linewidth=2.0, alpha=0.35)
            for _, row in part.iterrows():
                _draw_mark(axes, row, place, color)
        axes.set_xscale("log")
        axes.set_xlabel("excess population loss (nats)")
        parts.decades(axes.xaxis, most=8)

    return parts.dataset_panel(table, "population", draw, values, ", test items")


def _draw_mark(axes: Axes, row: pd.Series, place: int, color: str) -> None:
    """The mark of one of :data:`MARKS` at height ``place``, with its value."""
    _, marker, filled = MARKS[row["quantity"].removeprefix("population_")]
    face = color if filled else "white"
    axes.plot([row["mean"]], [place], marker, color=color, markerfacecolor=face, markersize=6.5)
    if filled and np.isfinite(row["low"]):
        axes.plot([row["low"], row["high"]], [place, place], color=color, linewidth=1.2)
    text, look = format_epsilon(float(f"{row['mean']:.2g}")), {"va": "top" if filled else "bottom"}
    parts.write_beside(axes, text, (row["mean"], place), (0, -8 if filled else 7), ha="center", **look)
