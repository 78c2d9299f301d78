"""Panels of a metric over training rounds: a line per series for the mean, a band, a thin line per seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from subjectdp.figures.panels import Panel
from subjectdp.figures.parts import GREY, dataset_panel, draw_lines, plotted, rounds_axis
from subjectdp.figures.style import Style
from subjectdp.results.intervals import bands

METRICS = {
    "test_accuracy": ("accuracy", "test accuracy (%)", 100.0),
    "test_loss": ("loss", "test loss (nats)", 1.0),
}
MARKS = 8
_LOG_RATIO = 30.0  # largest ratio of losses on a linear axis


def curve_values(
    runs: pd.DataFrame, rounds: pd.DataFrame, metric: str, series: str = "label"
) -> pd.DataFrame:
    """Bands of ``metric`` by round for each value of the runs' column ``series`` (one data set)."""
    facts = runs[["run_id", "dataset", series]]
    table = rounds.merge(facts, on="run_id", how="inner", validate="many_to_one")
    quantity, _, factor = METRICS[metric]
    values = bands(table.assign(value=table[metric] * factor), ["dataset", series, "round"], "value")
    return plotted(values.rename(columns={series: "series", "round": "x"}), quantity=quantity)


def curve_panel(
    runs: pd.DataFrame,
    rounds: pd.DataFrame,
    metric: str,
    styles: dict[str, Style],
    series: str = "label",
    **more: Any,
) -> Panel:
    """A panel of ``metric`` over rounds for the runs of one data set; ``more`` as of :func:`dataset_panel`.

    Panels of one metric and data set share their y-range.
    """
    quantity = METRICS[metric][0]
    values = curve_values(runs, rounds, metric, series)
    chance = 100 * float(runs["most_frequent_class"].mean()) if quantity == "accuracy" else math.nan
    curves = Curves(values, metric, styles, _seed_lines(runs, rounds, metric, series), chance)
    facts = {"key": quantity, "scale": f"{quantity}_{runs['dataset'].iloc[0]}", **more}
    return dataset_panel(runs, draw=curves.draw, values=values, **facts)


def _seed_lines(
    runs: pd.DataFrame, rounds: pd.DataFrame, metric: str, series: str
) -> list[tuple[str, pd.DataFrame]]:
    """The series and the rounds (columns x, value) of each run, if a series has several seeds."""
    several = runs[runs.groupby(series)["seed"].transform("nunique") > 1]
    factor = METRICS[metric][2]
    parts = [(name, rounds[rounds["run_id"] == run]) for run, name in several[["run_id", series]].to_numpy()]
    return [
        (str(name), pd.DataFrame({"x": part["round"], "value": part[metric] * factor}))
        for name, part in parts
    ]


@dataclass(frozen=True)
class Curves:
    """What a panel of curves shows.

    Attributes:
        values: Means and bands (:data:`VALUE_COLUMNS`).
        metric: A key of :data:`METRICS`.
        styles: Of the series.
        seeds: Series, and columns x and value, of each run that gets a thin line.
        chance: Accuracy in per cent of always predicting the most frequent class, a dotted line; NaN: none.
    """

    values: pd.DataFrame
    metric: str
    styles: dict[str, Style]
    seeds: list[tuple[str, pd.DataFrame]]
    chance: float

    def draw(self, axes: Axes) -> None:
        """Fills ``axes``."""
        for name, line in self.seeds:
            axes.plot(line["x"], line["value"], color=self.styles[name].color, linewidth=0.5, alpha=0.45)
        draw_lines(axes, self.values, self.styles, MARKS)
        rounds_axis(axes, self.values)
        axes.set_ylabel(METRICS[self.metric][1])
        if self.metric == "test_loss":
            self._limit_loss(axes)
        else:
            self._draw_chance(axes)
            axes.set_ylim(
                0, min(100.0, max(1.0, 1.08 * self._highest()))
            )  # also for a run that learns nothing

    def _highest(self) -> float:
        """The largest mean or seed, not the end of a band: with few seeds that is far away."""
        seeds = [float(line["value"].max()) for _, line in self.seeds]
        return float(np.nanmax([*self.values["mean"], *seeds]))

    def _limit_loss(self, axes: Axes) -> None:
        means = self.values["mean"].to_numpy(dtype=float)
        positive = means[means > 0]
        if positive.size and positive.max() / positive.min() > _LOG_RATIO:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, max(1e-3, 1.08 * self._highest()))

    def _draw_chance(self, axes: Axes) -> None:
        if math.isfinite(self.chance):
            axes.axhline(self.chance, color=GREY, linestyle=(0, (1, 2)), linewidth=1.0, zorder=1)
            axes.annotate(
                f"most frequent class {self.chance:.1f} %",
                (1.0, self.chance),
                xycoords=axes.get_yaxis_transform(),
                xytext=(-2, 1.5),
                textcoords="offset points",
                ha="right",
                va="bottom",
                fontsize=7,
                color=GREY,
            )
