"""Panels of how many mini-batches had a largest group of so many items, or so many distinct subjects."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from subjectdp.errors import DataError, expected
from subjectdp.figures.panels import VALUE_COLUMNS, Panel
from subjectdp.figures.style import Style, in_order
from subjectdp.results.intervals import t_half_width
from subjectdp.results.labels import dataset_name

AXIS_LABELS = {
    "largest_group": "largest subject group in a mini-batch (items)",
    "subjects": "distinct subjects in a mini-batch",
}
_MAX_BARS = 45
_MAX_ERROR_BARS = 12  # more of them hide the shape of a histogram


def run_means(steps: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Mean of ``quantity`` over the mini-batches of each run: columns run_id, value."""
    part = steps[steps["quantity"] == quantity]
    total = (part["value"] * part["minibatches"]).groupby(part["run_id"]).sum()
    count = part["minibatches"].groupby(part["run_id"]).sum()
    return (total / count).rename("value").rename_axis("run_id").reset_index()


def counts_by_value(runs: pd.DataFrame, steps: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Mini-batches by value of ``quantity``, mean over the runs' seeds; a value that a seed never had counts
    as 0.

    Values are joined into bins of equal whole width where there are more than 45 of them; ``x`` is the bin's
    lower end. Columns :data:`VALUE_COLUMNS`, with the bin width in the index name. Raises DataError without
    mini-batches.
    """
    part = steps[(steps["quantity"] == quantity) & steps["run_id"].isin(runs["run_id"])]
    if part.empty:
        raise expected(
            f"mini-batches counted by {quantity}", "none", "some for the runs of this figure", DataError
        )
    first, last = int(part["value"].min()), int(part["value"].max())
    width = -(-(last - first + 1) // _MAX_BARS)
    table = part.assign(x=first + (part["value"] - first) // width * width).pivot_table(
        index="x", columns="run_id", values="minibatches", aggfunc="sum", fill_value=0
    )
    table = table.reindex(range(first, last + 1, width), fill_value=0)
    half = t_half_width(table.std(axis=1, ddof=1).to_numpy(), table.shape[1])
    mean = table.mean(axis=1).to_numpy()
    values = pd.DataFrame(
        {"x": table.index.astype(float), "mean": mean, "low": mean - half, "high": mean + half}
    )
    values["seeds"], values["dataset"] = table.shape[1], runs["dataset"].iloc[0]
    values["quantity"], values["series"] = f"minibatches_by_{quantity}", runs["label"].iloc[0]
    return values[VALUE_COLUMNS].rename_axis(str(width))


def histogram_panel(
    runs: pd.DataFrame,
    steps: pd.DataFrame,
    quantity: str,
    styles: dict[str, Style],
    paper: tuple[float, str] | None = None,
) -> Panel:
    """Bars of mini-batches over a whole run by ``quantity``, with the mean (and the paper's value) marked."""
    dataset = str(runs["dataset"].iloc[0])
    values = counts_by_value(runs, steps, quantity)
    means = run_means(steps[steps["run_id"].isin(runs["run_id"])], quantity)["value"]
    label = in_order(runs["label"])[0]
    draw = partial(
        draw_histogram,
        values=values,
        quantity=quantity,
        style=styles[label],
        mean=float(means.mean()),
        paper=paper,
    )
    name = "group_size" if quantity == "largest_group" else "subjects"
    return Panel(
        f"{dataset}_{name}", dataset_name(dataset), draw, values, bool(runs["synthetic"].any()), keyed=False
    )


def draw_histogram(
    axes: Axes,
    values: pd.DataFrame,
    quantity: str,
    style: Style,
    mean: float,
    paper: tuple[float, str] | None = None,
    ylabel: str = "mini-batches in a run",
) -> None:
    """Bars with error bars over seeds where they are few.

    A solid line at the mean, a dotted one at the paper's value.
    """
    width = int(str(values.index.name or 1))
    x = values["x"].to_numpy(dtype=float) + (width - 1) / 2
    height = values["mean"].to_numpy(dtype=float)
    axes.bar(
        x, height, width=0.86 * width, color=style.color, alpha=0.55, edgecolor=style.color, linewidth=0.6
    )
    if values["low"].notna().any() and len(values) <= _MAX_ERROR_BARS:
        error = np.clip(values["high"].to_numpy(dtype=float) - height, 0, None)
        axes.errorbar(x, height, yerr=error, fmt="none", ecolor="#202020", elinewidth=0.9, capsize=2)
    axes.axvline(mean, color="#202020", linewidth=1.2, label=f"mean {mean:.{1 if mean >= 100 else 2}f}")
    if paper is not None:
        axes.axvline(
            paper[0], color="#202020", linewidth=1.2, linestyle=":", label=f"{paper[1]} {paper[0]:g}"
        )
    axes.set_ylim(0, float(np.nanmax(values["high"].fillna(values["mean"]))) * 1.22)
    axes.set_xlabel(AXIS_LABELS[quantity])
    axes.set_ylabel(ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, min_n_ticks=1))
    axes.set_xlim(x.min() - 0.8 * width, x.max() + 0.8 * width)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}" if value == round(value) else f"{value:g}")
    )
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper right", handlelength=1.6, fontsize=7.5)
