"""Panels of a metric over training rounds: a line per algorithm for the mean, a 95 % band, a thin line per seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from subjectdp.figures.panels import VALUE_COLUMNS, LegendEntry, Panel
from subjectdp.figures.style import Style, in_order, styles_for
from subjectdp.results.intervals import bands
from subjectdp.results.labels import dataset_name, datasets_in_order
from subjectdp.results.select import CONDITIONAL_NOTE, are_private, is_conditional, privacy_note

METRICS = {
    "test_accuracy": ("accuracy", "test accuracy (%)", 100.0),
    "test_loss": ("loss", "test loss (nats)", 1.0),
}
_LOG_RATIO = 30.0  # largest ratio of losses on a linear axis
_MARKERS = 8
_GREY = "#404040"


def curve_values(
    runs: pd.DataFrame, rounds: pd.DataFrame, metric: str, series: str = "label"
) -> pd.DataFrame:
    """Bands of ``metric`` by round for each value of the runs' column ``series`` (one data set)."""
    table = rounds.merge(
        runs[["run_id", "dataset", series]], on="run_id", how="inner", validate="many_to_one"
    )
    quantity, _, factor = METRICS[metric]
    table = table.assign(value=table[metric] * factor)
    values = bands(table, ["dataset", series, "round"], "value")
    return values.rename(columns={series: "series", "round": "x"}).assign(quantity=quantity)[VALUE_COLUMNS]


def curve_panel(
    runs: pd.DataFrame,
    rounds: pd.DataFrame,
    metric: str,
    styles: dict[str, Style],
    series: str = "label",
) -> Panel:
    """A panel of ``metric`` over rounds for the runs of one data set.

    Panels of one metric and data set share their y-range.
    """
    quantity = METRICS[metric][0]
    dataset = str(runs["dataset"].iloc[0])
    values = curve_values(runs, rounds, metric, series)
    curves = Curves(
        values,
        metric,
        styles,
        seeds=_seed_lines(runs, rounds, metric, series),
        chance=100 * float(runs["most_frequent_class"].mean()) if quantity == "accuracy" else math.nan,
    )
    return Panel(
        key=f"{dataset}_{quantity}",
        heading=dataset_name(dataset),
        draw=curves.draw,
        values=values,
        synthetic=bool(runs["synthetic"].any()),
        scale=f"{quantity}_{dataset}",
    )


def _seed_lines(
    runs: pd.DataFrame, rounds: pd.DataFrame, metric: str, series: str
) -> list[tuple[str, pd.DataFrame]]:
    """The series and the rounds (columns x, value) of each run, if a series has several seeds."""
    several = runs[runs.groupby(series)["seed"].transform("nunique") > 1]
    lines = []
    for run, name in zip(several["run_id"], several[series], strict=True):
        part = rounds[rounds["run_id"] == run]
        value = part[metric] * METRICS[metric][2]
        lines.append((str(name), pd.DataFrame({"x": part["round"], "value": value})))
    return lines


def draw_band_line(axes: Axes, part: pd.DataFrame, style: Style, every: int = 1) -> None:
    """One series: a line with markers, and a band where there are several seeds (a bar at an isolated point)."""
    x, mean = part["x"].to_numpy(dtype=float), part["mean"].to_numpy(dtype=float)
    axes.plot(
        x,
        mean,
        color=style.color,
        linestyle=style.line,
        marker=style.marker,
        markevery=every,
        markeredgecolor="white",
        markeredgewidth=0.4,
    )
    if part["low"].notna().any():
        low, high = part["low"].to_numpy(dtype=float), part["high"].to_numpy(dtype=float)
        axes.fill_between(x, low, high, color=style.color, alpha=0.14, linewidth=0)
        known = np.concatenate([[False], np.isfinite(low), [False]])
        isolated = known[1:-1] & ~known[:-2] & ~known[2:]
        axes.vlines(x[isolated], low[isolated], high[isolated], color=style.color, alpha=0.5, linewidth=1.2)


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
        for name in in_order(self.values["series"]):
            part = self.values[self.values["series"] == name].sort_values("x")
            draw_band_line(axes, part, self.styles[name], every=max(1, -(-len(part) // _MARKERS)))
        axes.set_xlabel("training round")
        axes.set_ylabel(METRICS[self.metric][1])
        axes.set_xlim(0, float(self.values["x"].max()) * 1.02)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
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
            axes.axhline(self.chance, color=_GREY, linestyle=(0, (1, 2)), linewidth=1.0, zorder=1)
            axes.annotate(
                f"most frequent class {self.chance:.1f} %",
                (1.0, self.chance),
                xycoords=axes.get_yaxis_transform(),
                xytext=(-2, 1.5),
                textcoords="offset points",
                ha="right",
                va="bottom",
                fontsize=7,
                color=_GREY,
            )


def algorithm_legend(runs: pd.DataFrame, styles: dict[str, Style]) -> tuple[LegendEntry, ...]:
    """A legend entry for each algorithm: its name, and below it the ε that it claims and guarantees."""
    return tuple(
        LegendEntry(f"{label}\n{privacy_note(runs[runs['label'] == label])}", styles[label])
        for label in in_order(runs["label"])
    )


def seed_note(runs: pd.DataFrame) -> str:
    """The number of seeds averaged in a figure, and the meaning of its bands."""
    counts = runs.groupby(["dataset", "label"])["seed"].nunique()
    low, high = int(counts.min()), int(counts.max())
    if high == 1:
        return "One seed: no band"
    seeds = str(high) if low == high else f"{low} to {high}"
    single = "; no band where there is one seed" if low == 1 else ""
    return f"Mean of {seeds} seeds, band: 95 % t-interval{single}"


def privacy_footnote(runs: pd.DataFrame) -> str:
    """The meaning of the ε in the legend, in one sentence."""
    private = runs[are_private(runs)]
    if private.empty:
        return ""
    deltas = ", ".join(f"{value:g}" for value in sorted(private["delta"].unique()))
    names = datasets_in_order(private["dataset"])
    order = f"; with a slash: {' / '.join(dataset_name(name) for name in names)}" if len(names) > 1 else ""
    star = "* the papers' claim, no guarantee. " if (private["mode"] == "as_published").any() else ""
    dagger = f"{CONDITIONAL_NOTE}. " if is_conditional(private) else ""
    sound = f"Sound ε: what the same run guarantees an item, or a subject over all its silos{order}"
    return f"{star}{dagger}{sound}; δ = {deltas}"


def present(runs: pd.DataFrame) -> list[str]:
    """The data sets of the runs in the papers' order."""
    return datasets_in_order(runs["dataset"])


def styles_of(runs: pd.DataFrame) -> dict[str, Style]:
    """The styles of the runs' algorithms."""
    return styles_for(runs["label"])


def rows_of(panels: Sequence[Panel], columns: int) -> tuple[tuple[Panel, ...], ...]:
    """Panels in rows of ``columns``."""
    return tuple(tuple(panels[start : start + columns]) for start in range(0, len(panels), columns))
