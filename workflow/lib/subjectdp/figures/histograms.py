"""Histograms of mini-batches by their largest group of one subject's items, or by distinct subjects."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from subjectdp.errors import DataError, expected
from subjectdp.figures.parts import highest, plotted
from subjectdp.figures.style import Style
from subjectdp.results.intervals import t_half_width

AXIS_LABELS = {
    "largest_group": "largest subject group in a mini-batch (items)",
    "subjects": "distinct subjects in a mini-batch",
}
_INK = "#202020"
_MAX_BARS = 45
_MAX_ERROR_BARS = 12  # more would hide the histogram's shape


def run_means(steps: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Mean of ``quantity`` over the mini-batches of each run: columns run_id, value."""
    part = steps[steps["quantity"] == quantity]
    total = (part["value"] * part["minibatches"]).groupby(part["run_id"]).sum()
    count = part["minibatches"].groupby(part["run_id"]).sum()
    return (total / count).rename("value").rename_axis("run_id").reset_index()


def counts_by_value(runs: pd.DataFrame, steps: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Mini-batches by value of ``quantity``, mean over the runs' seeds; a value that a seed lacks counts as 0.

    ``x`` is the lower end of one of at most 45 bins of equal whole width, which is the name of the index. Columns
    :data:`VALUE_COLUMNS`. Raises DataError without mini-batches.
    """
    part = steps[(steps["quantity"] == quantity) & steps["run_id"].isin(runs["run_id"])]
    if part.empty:
        wanted = "some for the runs of this figure"
        raise expected(f"mini-batches counted by {quantity}", "none", wanted, DataError)
    table, width = _binned(
        part.pivot_table(index="value", columns="run_id", values="minibatches", aggfunc="sum", fill_value=0)
    )
    half = t_half_width(table.std(axis=1, ddof=1).to_numpy(), table.shape[1])
    mean = table.mean(axis=1).to_numpy()
    values = pd.DataFrame({"x": table.index.astype(float), "mean": mean, "low": mean - half, "high": mean + half})
    facts = {"quantity": f"minibatches_by_{quantity}", "series": runs["label"].iloc[0]}
    facts |= {"dataset": runs["dataset"].iloc[0], "seeds": table.shape[1]}
    return plotted(values, **facts).rename_axis(str(width))


def shares(part: pd.DataFrame, quantity: str, dataset: str) -> pd.DataFrame:
    """Share (%) of one setting's mini-batches by value, in bins as :func:`counts_by_value` has them."""
    counts = part[quantity].value_counts()
    table, width = _binned(100.0 * counts / counts.sum())
    values = pd.DataFrame({"x": table.index.astype(float), "mean": table.to_numpy()})
    facts = {"dataset": dataset, "quantity": f"share_by_{quantity}", "series": part["setting"].iloc[0]}
    return plotted(values, **facts).rename_axis(str(width))


def _binned(table: pd.Series | pd.DataFrame) -> tuple[Any, int]:
    """Sums over at most 45 bins of equal whole width, by their lower ends; and the width."""
    first, last = int(table.index.min()), int(table.index.max())
    width = -(-(last - first + 1) // _MAX_BARS)
    places = first + (table.index.to_numpy() - first) // width * width
    return table.groupby(places).sum().reindex(range(first, last + 1, width), fill_value=0), width


def histogram(
    values: pd.DataFrame, quantity: str, style: Style, mean: float, paper: float | None = None
) -> Callable[[Axes], None]:
    """Draws bars over the values of a quantity (a key of :data:`AXIS_LABELS`), with error bars if they are few.

    A solid line stands at ``mean``, a dotted one at the number that a ``paper`` prints.
    """
    width = int(str(values.index.name or 1))
    x, height = values["x"].to_numpy(dtype=float) + (width - 1) / 2, values["mean"].to_numpy(dtype=float)

    def draw(axes: Axes) -> None:
        axes.bar(x, height, width=0.86 * width, color=style.color, alpha=0.55, edgecolor=style.color, linewidth=0.6)
        if values["low"].notna().any() and len(values) <= _MAX_ERROR_BARS:
            error = np.clip(values["high"].to_numpy(dtype=float) - height, 0, None)
            axes.errorbar(x, height, yerr=error, fmt="none", ecolor=_INK, elinewidth=0.9, capsize=2)
        axes.axvline(mean, color=_INK, linewidth=1.2, label=f"mean {mean:.{1 if mean >= 100 else 2}f}")
        if paper is not None:
            axes.axvline(paper, color=_INK, linewidth=1.2, linestyle=":", label=f"paper {paper:g}")
        axes.set_ylim(0, highest(values) * 1.22)
        axes.set_xlabel(AXIS_LABELS[quantity])
        share = str(values["quantity"].iloc[0]).startswith("share")
        axes.set_ylabel("share of mini-batches (%)" if share else "mini-batches in a run")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, min_n_ticks=1))
        axes.set_xlim(x.min() - 0.8 * width, x.max() + 0.8 * width)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.0f}" if value == round(value) else f"{value:g}")
        )
        axes.grid(visible=False, axis="x")
        axes.legend(loc="upper right", handlelength=1.6, fontsize=7.5)

    return draw
