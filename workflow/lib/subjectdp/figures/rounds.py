"""Panels of a metric over training rounds: a line per series for the mean, a band, a thin line per seed."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from subjectdp.figures.panels import Panel
from subjectdp.figures.parts import GREY, dataset_panel, draw_lines, plotted, rounds_axis, write_beside
from subjectdp.figures.style import Style
from subjectdp.results.intervals import bands

METRICS = {"test_accuracy": ("accuracy", "test accuracy (%)", 100.0), "test_loss": ("loss", "test loss (nats)", 1.0)}
MARKS = 8
_LOG_RATIO = 30.0  # largest ratio of losses on a linear axis


def curve_values(runs: pd.DataFrame, rounds: pd.DataFrame, metric: str, series: str = "label") -> pd.DataFrame:
    """Bands of ``metric`` by round for each value of the runs' column ``series`` (one data set)."""
    facts = runs[["run_id", "dataset", series]]
    table = rounds.merge(facts, on="run_id", how="inner", validate="many_to_one")
    quantity, _, factor = METRICS[metric]
    values = bands(table.assign(value=table[metric] * factor), ["dataset", series, "round"], "value")
    return plotted(values.rename(columns={series: "series", "round": "x"}), quantity=quantity)


def curve_panel(
    runs: pd.DataFrame, rounds: pd.DataFrame, metric: str, styles: dict[str, Style], series: str = "label", **more: Any
) -> Panel:
    """A panel of ``metric`` over rounds for the runs of one data set; ``more`` as of :func:`dataset_panel`.

    Panels of one metric and data set share their y-range.
    """
    quantity = METRICS[metric][0]
    values = curve_values(runs, rounds, metric, series)
    chance = 100 * float(runs["most_frequent_class"].mean()) if quantity == "accuracy" else math.nan
    seeds = _seed_lines(runs, rounds, metric, series)
    draw = partial(draw_curves, values=values, metric=metric, styles=styles, seeds=seeds, chance=chance)
    facts = {"key": quantity, "scale": f"{quantity}_{runs['dataset'].iloc[0]}", **more}
    return dataset_panel(runs, draw=draw, values=values, **facts)


def _seed_lines(runs: pd.DataFrame, rounds: pd.DataFrame, metric: str, series: str) -> list[tuple[str, pd.DataFrame]]:
    """The series and the rounds (columns x, value) of each run, if a series has several seeds."""
    several = runs[runs.groupby(series)["seed"].transform("nunique") > 1]
    factor = METRICS[metric][2]
    parts = [(name, rounds[rounds["run_id"] == run]) for run, name in several[["run_id", series]].to_numpy()]
    return [(str(name), pd.DataFrame({"x": part["round"], "value": part[metric] * factor})) for name, part in parts]


def draw_curves(
    axes: Axes,
    values: pd.DataFrame,
    metric: str,
    styles: dict[str, Style],
    seeds: Sequence[tuple[str, pd.DataFrame]] = (),
    chance: float = math.nan,
) -> None:
    """Fills a panel of curves.

    Args:
        axes: the panel's.
        values: means and bands (:data:`VALUE_COLUMNS`).
        metric: a key of :data:`METRICS`.
        styles: of the series.
        seeds: series, and columns x and value, of each run that gets a thin line.
        chance: accuracy in per cent of always predicting the most frequent class, a dotted line; NaN: none.
    """
    for name, line in seeds:
        axes.plot(line["x"], line["value"], color=styles[name].color, linewidth=0.5, alpha=0.45)
    draw_lines(axes, values, styles, MARKS)
    rounds_axis(axes, values)
    axes.set_ylabel(METRICS[metric][1])
    # The largest mean or seed, not the end of a band: with few seeds that is far away.
    top = 1.08 * float(np.nanmax([*values["mean"], *(float(line["value"].max()) for _, line in seeds)]))
    positive = values.loc[values["mean"] > 0, "mean"]
    if metric == "test_accuracy":
        _draw_chance(axes, chance)
        shown = 1.2 * chance if math.isfinite(chance) else 1.0  # also of runs that learn nothing
        axes.set_ylim(0, min(100.0, max(shown, top)))
    elif not positive.empty and positive.max() / positive.min() > _LOG_RATIO:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, max(1e-3, top))


def _draw_chance(axes: Axes, chance: float) -> None:
    if math.isfinite(chance):
        axes.axhline(chance, color=GREY, linestyle=(0, (1, 2)), linewidth=1.0, zorder=1)
        place, text = axes.get_yaxis_transform(), f"most frequent class {chance:.1f} %"
        look = {"ha": "right", "va": "bottom", "fontsize": 7, "xycoords": place}
        write_beside(axes, text, (1.0, chance), (-2, 1.5), **look)
