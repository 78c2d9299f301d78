"""Accuracy of sound runs against a swept setting: ε, the number of subjects, their distribution over silos.

Runs with predicted noise are marked everywhere: hollow marks, dotted lines, the heading and the notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from subjectdp.figures.curves import present
from subjectdp.figures.panels import VALUE_COLUMNS, LegendEntry, Panel
from subjectdp.figures.style import Style, in_order, styles_for
from subjectdp.plan.plan import PrivacyUnit
from subjectdp.results.intervals import mean_interval
from subjectdp.results.labels import dataset_name

ITEM_LEVEL, NO_PRIVACY = "item level only", "no privacy"
CLAIMS = "Marks: mean over the seeds, bar: 95 % t-interval"
_FAR = 15.0  # points


@dataclass(frozen=True)
class Sweep:
    """The swept setting on the horizontal axis.

    Attributes:
        column: of the runs (:func:`subjectdp.results.select.sound_runs`).
        words: the label of the axis.
        ticks: format of a tick label.
    """

    column: str
    words: str
    ticks: str = "{:g}"


def sweep_values(runs: pd.DataFrame, sweep: Sweep, quantity: str) -> pd.DataFrame:
    """Test accuracy in per cent by name and place (:data:`VALUE_COLUMNS`), of one data set."""
    rows = []
    for (name, _), part in runs.groupby(["name", sweep.column], sort=True):
        accuracy = mean_interval(part["final_test_accuracy"] * 100)
        rows.append(
            {
                "dataset": part["dataset"].iloc[0],
                "quantity": quantity,
                "series": name,
                "x": float(part[sweep.column].iloc[0]),
                "mean": accuracy.mean,
                "low": accuracy.low,
                "high": accuracy.high,
                "seeds": accuracy.count,
            }
        )
    return pd.DataFrame(rows)[VALUE_COLUMNS]


def sweep_panels(runs: pd.DataFrame, sweep: Sweep, quantity: str) -> tuple[Panel, ...]:
    """A panel for each data set; algorithms without noise are horizontal lines if ε is swept."""
    return tuple(
        _panel(runs[runs["dataset"] == dataset], sweep, quantity, styles_for(runs["name"]))
        for dataset in present(runs)
    )


def _panel(runs: pd.DataFrame, sweep: Sweep, quantity: str, styles: dict[str, Style]) -> Panel:
    dataset = str(runs["dataset"].iloc[0])
    values = sweep_values(runs, sweep, quantity)
    across = set(runs.loc[runs["unit"] == "", "name"]) if sweep.column == "epsilon" else set()
    hollow = set(runs.loc[runs["predicted_subjects"].notna(), "name"])
    draw = partial(_draw, values=values, sweep=sweep, styles=styles, across=across, hollow=hollow)
    return Panel(
        key=f"{dataset}_{quantity}",
        heading=f"{dataset_name(dataset)}{prediction_words(runs)}",
        draw=draw,
        values=values,
        synthetic=bool(runs["synthetic"].any()),
        scale=f"accuracy_{dataset}",
    )


def prediction_words(runs: pd.DataFrame) -> str:
    """``, predicted noise of N subjects`` for a heading; empty if the noise is for the runs' own subjects."""
    predicted = runs["predicted_subjects"].dropna()
    if predicted.empty:
        return ""
    numbers = sorted({int(number) for number in predicted})
    words = f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"
    return f", predicted noise of {words} subjects"


def _draw(
    axes: Axes,
    values: pd.DataFrame,
    sweep: Sweep,
    styles: dict[str, Style],
    across: set[str],
    hollow: set[str],
) -> None:
    places = sorted(set(values.loc[~values["series"].isin(across), "x"]))
    names = in_order(values["series"])
    aside = shifts(names)
    for name in names:
        part = values[values["series"] == name].sort_values("x")
        if name in across:
            draw_across(axes, part, styles[name])
        else:
            draw_marks(axes, part, styles[name], name in hollow, aside[name])
    logarithmic(axes, places, sweep)
    accuracy_axis(axes, values)


def draw_across(axes: Axes, part: pd.DataFrame, style: Style) -> None:
    """A level that does not depend on the swept setting: a horizontal line with its interval as a band."""
    row = part.iloc[0]
    axes.axhline(float(row["mean"]), color=style.color, linestyle=style.line, linewidth=1.3)
    if np.isfinite(row["low"]):
        axes.axhspan(float(row["low"]), float(row["high"]), color=style.color, alpha=0.10, linewidth=0)


def draw_marks(axes: Axes, part: pd.DataFrame, style: Style, hollow: bool, shift: float = 0.0) -> None:
    """Marks with error bars, joined by a line; ``hollow`` marks predicted noise, with a thin dotted line.

    ``shift``: horizontal shift in points, so that equal accuracies do not hide one another.
    """
    x, mean = part["x"].to_numpy(dtype=float), part["mean"].to_numpy(dtype=float)
    half = (part["high"] - part["mean"]).fillna(0.0).to_numpy(dtype=float)
    aside = ScaledTranslation(shift / 72, 0, axes.figure.dpi_scale_trans)
    axes.errorbar(
        x,
        mean,
        yerr=half if half.any() else None,
        color=style.color,
        linestyle=":" if hollow else style.line,
        linewidth=1.1 if hollow else 1.5,
        marker=style.marker,
        markersize=6,
        markerfacecolor="white" if hollow else style.color,
        elinewidth=1.1,
        capsize=2,
        transform=axes.transData + aside,
    )


def shifts(names: Sequence[str]) -> dict[str, float]:
    """Horizontal shift of each algorithm's marks in points, centred at 0."""
    return {name: 2.2 * (place - (len(names) - 1) / 2) for place, name in enumerate(names)}


def logarithmic(axes: Axes, places: Sequence[float], sweep: Sweep) -> None:
    """A logarithmic axis with a tick at each place."""
    axes.set_xscale("log")
    low, high = min(places), max(places)
    margin = max(1.15, (high / low) ** 0.06)
    axes.set_xlim(low / margin, high * margin)
    axes.xaxis.set_major_locator(FixedLocator(list(places)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(list(places), [sweep.ticks.format(place) for place in places])
    axes.set_xlabel(sweep.words)


def accuracy_axis(axes: Axes, values: pd.DataFrame) -> None:
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
        axes.text(
            0.01, 0.01, f"↓ below: {words}", transform=axes.transAxes, ha="left", va="bottom", fontsize=7.5
        )


def sweep_legend(runs: pd.DataFrame) -> tuple[LegendEntry, ...]:
    """An entry per algorithm; those that protect no subject are marked."""
    styles = styles_for(runs["name"])
    return tuple(
        LegendEntry(f"{name}{_aside(runs.loc[runs['name'] == name, 'unit'].iloc[0])}", styles[name])
        for name in in_order(runs["name"])
    )


def _aside(unit: str) -> str:
    words = {"": NO_PRIVACY, PrivacyUnit.ITEM.value: ITEM_LEVEL}.get(unit)
    return "" if words is None else f" ({words})"


def notes_of(runs: pd.DataFrame) -> tuple[str, ...]:
    """Notes on seeds, δ, and the unit of ε."""
    places = ["epsilon", "noise_subjects", "subjects", "alpha", "silos_per_subject"]
    counts = runs.groupby(["name", "dataset", *places])["seed"].nunique()
    low, high = int(counts.min()), int(counts.max())
    seeds = f"{high} seed{'s' if high > 1 else ''}" if low == high else f"{low} to {high} seeds"
    deltas = ", ".join(f"{value:g}" for value in sorted(runs["delta"].unique()))
    told = f"{CLAIMS}, {seeds}; sound mode, δ = {deltas}, a subject over all its silos"
    return (told, "The axis of accuracy does not begin at 0")
