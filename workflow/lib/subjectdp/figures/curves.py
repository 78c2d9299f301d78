"""Panels of a metric over training rounds, one line per algorithm: mean over seeds with a 95 % band."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from subjectdp.figures.panels import VALUE_COLUMNS, LegendEntry, Panel
from subjectdp.figures.style import Style, in_order, styles_for
from subjectdp.results.claims import are_private
from subjectdp.results.intervals import bands
from subjectdp.results.labels import dataset_name, datasets_in_order
from subjectdp.results.select import privacy_note

METRICS = {
    "test_accuracy": ("accuracy", "test accuracy (%)", 100.0),
    "test_loss": ("loss", "test loss (nats)", 1.0),
}
_LOG_RATIO = 30.0  # largest ratio of losses on a linear axis
_MARKERS = 8


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

    Panels of one metric share their y-range.
    """
    quantity = METRICS[metric][0]
    dataset = str(runs["dataset"].iloc[0])
    values = curve_values(runs, rounds, metric, series)
    return Panel(
        key=f"{dataset}_{quantity}",
        heading=dataset_name(dataset),
        draw=partial(_draw_curves, values=values, metric=metric, styles=styles),
        values=values,
        synthetic=bool(runs["synthetic"].any()),
        scale=quantity,
    )


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
        axes.fill_between(x, low, high, color=style.color, alpha=0.18, linewidth=0)
        known = np.concatenate([[False], np.isfinite(low), [False]])
        isolated = known[1:-1] & ~known[:-2] & ~known[2:]
        axes.vlines(x[isolated], low[isolated], high[isolated], color=style.color, alpha=0.5, linewidth=1.2)


def _draw_curves(axes: Axes, values: pd.DataFrame, metric: str, styles: dict[str, Style]) -> None:
    for name in in_order(values["series"]):
        part = values[values["series"] == name].sort_values("x")
        draw_band_line(axes, part, styles[name], every=max(1, -(-len(part) // _MARKERS)))
    axes.set_xlabel("training round")
    axes.set_ylabel(METRICS[metric][1])
    axes.set_xlim(0, float(values["x"].max()) * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    means = values["mean"].to_numpy(dtype=float)
    if metric == "test_loss":
        positive = means[means > 0]
        if positive.size and positive.max() / positive.min() > _LOG_RATIO:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, max(1e-3, float(np.nanmax(means)) * 1.08))
    else:
        top = float(np.nanmax(values["high"].fillna(values["mean"]))) * 1.08
        axes.set_ylim(0, min(100.0, max(1.0, top)))  # an axis even for a run that learns nothing


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
    sound = f"Sound ε: what the same run guarantees an item, or a subject over all its silos{order}"
    return f"{star}{sound}; δ = {deltas}"


def present(runs: pd.DataFrame) -> list[str]:
    """The data sets of the runs in the papers' order."""
    return datasets_in_order(runs["dataset"])


def styles_of(runs: pd.DataFrame) -> dict[str, Style]:
    """The styles of the runs' algorithms."""
    return styles_for(runs["label"])


def rows_of(panels: Sequence[Panel], columns: int) -> tuple[tuple[Panel, ...], ...]:
    """Panels in rows of ``columns``."""
    return tuple(tuple(panels[start : start + columns]) for start in range(0, len(panels), columns))
