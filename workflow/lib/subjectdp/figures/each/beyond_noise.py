"""Noise on the averaged gradient in clip norms: as planned, and as measured in two rounds."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from subjectdp.errors import DataError, expected
from subjectdp.figures.panels import VALUE_COLUMNS, LegendEntry, Panel, Sheet
from subjectdp.figures.style import Style, in_order, styles_for
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.labels import dataset_name
from subjectdp.utility.measured_noise_table import COLUMNS, PAPERS, SCENARIO

MEASURES = ("planned", "measured")
_GREY = "#404040"
_ITEM = "item"


def build(inputs: FigureInputs, name: str) -> Sheet:
    """A panel for the runs' own schedule and one for the papers'; a row per algorithm."""
    table = inputs.read("noise", COLUMNS)
    epsilons = sorted(table["epsilon"].unique())
    if len(epsilons) > 1 or table.duplicated(["dataset", "label", "schedule"]).any():
        allowed = "one ε, and each algorithm once a data set and schedule; select them for this figure"
        raise expected("noise of the figure", table[["label", "epsilon"]].to_dict("list"), allowed, DataError)
    rows = tuple(
        tuple(_panel(part[part["schedule"] == schedule], schedule) for schedule in (SCENARIO, PAPERS))
        for _, part in table.groupby("dataset", sort=True)
    )
    legend = (
        LegendEntry("by the plan", Style(_GREY, "D", "none"), filled=False),
        LegendEntry("measured: two rounds that differ in the noise alone", Style(_GREY, "o", "none")),
    )
    return Sheet(
        name,
        rows,
        legend,
        _notes(table, epsilons[0]),
        row_height=1.2 + 0.29 * table["label"].nunique(),
        panel_width=5.6,
    )


def _notes(table: pd.DataFrame, epsilon: float) -> tuple[str, ...]:
    deltas = ", ".join(f"{value:g}" for value in sorted(table["delta"].unique()))
    least = int(table["coordinates"].min())
    told = (
        f"Sound noise at ({epsilon:g}, {deltas}), of a subject over all its silos; LocalItemDP: of one item",
        "×: over LocalItemDP's; right: the papers' rounds, steps and sampling fraction",
        f"Measured over {least:,} coordinates or more",
    )
    predicted = table["predicted_subjects"].dropna()
    if predicted.empty:
        return told
    numbers = ", ".join(f"{int(number):,}" for number in sorted(predicted.unique()))
    own = ", ".join(f"{int(number):,}" for number in sorted(table["subjects"].unique()))
    return (
        f"PREDICTED NOISE: of {numbers} subjects, in runs that have {own}; an experiment, no guarantee",
        *told,
    )


def _panel(part: pd.DataFrame, schedule: str) -> Panel:
    dataset = str(part["dataset"].iloc[0])
    order = in_order(part["label"])
    words = "own schedule" if schedule == SCENARIO else "100 rounds of 50 steps"
    predicted = part["predicted_subjects"].dropna()
    noise = "" if predicted.empty else f", noise of {int(predicted.max()):,} subjects"
    values = pd.concat([_values(part, measure, order) for measure in MEASURES], ignore_index=True)
    item = part.loc[part["unit"] == _ITEM, "planned"]
    reference = float(item.min()) if not item.empty else None
    return Panel(
        key=f"{dataset}_{schedule}",
        heading=f"{dataset_name(dataset)}, {words}{noise}",
        draw=partial(_draw, values=values, order=order, reference=reference),
        values=values,
        synthetic=bool(part["synthetic"].any()),
    )


def _values(part: pd.DataFrame, measure: str, order: list[str]) -> pd.DataFrame:
    frame = part.rename(columns={"label": "series"})
    return frame.assign(
        quantity=f"noise_{measure}",
        x=frame["series"].map(order.index),
        mean=frame[measure],
        low=float("nan"),
        high=float("nan"),
        seeds=1,
    )[VALUE_COLUMNS]


def _draw(axes: Axes, values: pd.DataFrame, order: list[str], reference: float | None) -> None:
    styles = styles_for(order)
    table = values.set_index(["series", "quantity"])["mean"]
    for place, name in enumerate(reversed(order)):
        planned, measured = float(table[name, "noise_planned"]), float(table[name, "noise_measured"])
        color = styles[name].color
        axes.plot([planned], [place], "D", color=color, markerfacecolor="none", markersize=10)
        axes.plot([measured], [place], "o", color=color, markersize=4.5)
        if reference is not None:
            _beside(axes, planned / reference, planned, place)
    axes.set_xscale("log")
    low, high = float(values["mean"].min()), float(values["mean"].max())
    axes.set_xlim(low / 2, high * max(4.0, (high / low) ** 0.25))
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set_yticks(range(len(order)), list(reversed(order)))
    axes.set_xlabel("std of the noise on the averaged gradient / C")
    axes.xaxis.set_major_locator(LogLocator(base=10, numticks=7))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(visible=False, axis="y")


def _beside(axes: Axes, ratio: float, planned: float, place: int) -> None:
    axes.annotate(
        f"× {float(f'{ratio:.2g}'):,.0f}" if ratio >= 9.95 else f"× {ratio:.1f}",
        (planned, place),
        xytext=(10, 0),
        textcoords="offset points",
        va="center",
        fontsize=7.5,
        color=_GREY,
    )
