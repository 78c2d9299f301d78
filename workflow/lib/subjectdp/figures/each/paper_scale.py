"""Group sizes and distinct subjects in mini-batches at the papers' full scale, from sampling alone.

The sampler runs on a partition with the papers' numbers of subjects and items; nothing is trained. The papers' own
numbers are marked (:func:`subjectdp.data.statistics.paper_settings`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from subjectdp.data.statistics import Setting, paper_settings
from subjectdp.figures.curves import rows_of
from subjectdp.figures.each.figure2 import draw_sweep
from subjectdp.figures.histograms import AXIS_LABELS, Histogram, bin_width
from subjectdp.figures.panels import VALUE_COLUMNS, Panel, Sheet
from subjectdp.figures.style import ALGORITHM_STYLES
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.labels import dataset_name, datasets_in_order

_QUANTITIES = {"group_sizes_paper_scale": "largest_group", "subjects_per_batch_paper_scale": "subjects"}
_STYLES = {
    "largest_group": ALGORITHM_STYLES["LocalGroupDP"],
    "subjects": ALGORITHM_STYLES["HiGradAvgDP (v1)"],
}


def build(inputs: FigureInputs, name: str) -> Sheet:
    """A histogram for each setting at α = 1, and the mean over α for a data set with several."""
    quantity = _QUANTITIES[name]
    table = inputs.read_statistics()
    settings = [setting for setting in paper_settings() if (table["setting"] == setting.name).any()]
    means = {
        setting.name: float(table.loc[table["setting"] == setting.name, quantity].mean())
        for setting in settings
    }
    panels = [
        _histogram(setting, table[table["setting"] == setting.name], quantity)
        for setting in _in_order(settings)
        if setting.alpha == 1.0
    ]
    panels += _sweeps(settings, means, quantity)
    least = int(table.groupby("setting")["step"].size().min())
    notes = (
        f"Sampling only, no training; at least {least:,} mini-batches a setting over its 16 silos",
        "Dotted lines and open circles: the papers' numbers (v1 sections 4.1 to 4.3)",
    )
    columns = len(panels) if len(panels) <= 3 else -(-len(panels) // 2)
    return Sheet(name, rows_of(panels, columns), (), notes, panel_width=4.0)


def _in_order(settings: Sequence[Setting]) -> list[Setting]:
    """FEMNIST, Shakespeare, Small-FEMNIST."""
    order = datasets_in_order(setting.dataset for setting in settings)
    return sorted(settings, key=lambda setting: (_is_small(setting), order.index(setting.dataset)))


def _is_small(setting: Setting) -> bool:
    return setting.name.startswith("small")


def _published(setting: Setting, quantity: str) -> float | None:
    return setting.published.largest_group if quantity == "largest_group" else setting.published.subjects


def _histogram(setting: Setting, part: pd.DataFrame, quantity: str) -> Panel:
    values = shares(part, quantity, setting.dataset)
    stated = _published(setting, quantity)
    histogram = Histogram(
        values,
        quantity,
        _STYLES[quantity],
        mean=float(part[quantity].mean()),
        paper=stated,
        ylabel="share of mini-batches (%)",
    )
    return Panel(setting.name, heading_of(setting), histogram.draw, values, False)


def heading_of(setting: Setting) -> str:
    """A panel's heading, e.g. ``Small-FEMNIST, 350 subjects``."""
    name = dataset_name(setting.dataset)
    return f"{'Small-' if _is_small(setting) else ''}{name}, {setting.subjects:,} subjects"


def shares(part: pd.DataFrame, quantity: str, dataset: str) -> pd.DataFrame:
    """Share (%) of mini-batches by value, in at most 45 bins of equal whole width (the index name)."""
    counts = part[quantity].value_counts()
    first, last = int(counts.index.min()), int(counts.index.max())
    width = bin_width(first, last)
    x = first + (counts.index.to_numpy() - first) // width * width
    table = (
        (100.0 * counts / counts.sum())
        .groupby(x)
        .sum()
        .reindex(range(first, last + 1, width), fill_value=0.0)
    )
    values = pd.DataFrame(
        {"x": table.index.astype(float), "mean": table.to_numpy(), "low": np.nan, "high": np.nan}
    )
    values["seeds"], values["dataset"] = 1, dataset
    values["quantity"], values["series"] = f"share_by_{quantity}", part["setting"].iloc[0]
    return values[VALUE_COLUMNS].rename_axis(str(width))


def _sweeps(settings: Sequence[Setting], means: dict[str, float], quantity: str) -> list[Panel]:
    """Means over α, one panel for each data set sampled at several α, without Small-FEMNIST."""
    panels = []
    for dataset in datasets_in_order(setting.dataset for setting in settings):
        swept = [setting for setting in settings if setting.dataset == dataset and not _is_small(setting)]
        swept.sort(key=lambda setting: setting.alpha)
        if len({setting.alpha for setting in swept}) > 1:
            panels.append(_sweep(swept, means, quantity))
    return panels


def _sweep(settings: Sequence[Setting], means: dict[str, float], quantity: str) -> Panel:
    dataset = settings[0].dataset
    values = pd.DataFrame({"x": [s.alpha for s in settings], "mean": [means[s.name] for s in settings]})
    values["low"], values["high"], values["seeds"] = np.nan, np.nan, 1
    values["dataset"], values["series"] = dataset, dataset_name(dataset)
    values["quantity"] = f"mean_{quantity}"
    stated = [(s.alpha, value) for s in settings if (value := _published(s, quantity)) is not None]
    draw = partial(_draw_means, values=values, quantity=quantity, stated=stated)
    return Panel(f"{dataset}_alpha", heading_of(settings[0]), draw, values[VALUE_COLUMNS], False)


def _draw_means(
    axes: Axes, values: pd.DataFrame, quantity: str, stated: Sequence[tuple[float, float]]
) -> None:
    label = "mean " + AXIS_LABELS[quantity].replace(" in a mini-batch", "")
    series = str(values["series"].iloc[0])
    draw_sweep(axes, values, {series: _STYLES[quantity]}, "power α of the distribution", label)
    for x, mean in zip(values["x"], values["mean"], strict=True):
        axes.annotate(
            f"{mean:.3g}",
            (x, mean),
            xytext=(0, -12),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=7.5,
        )
    if stated:
        axes.plot(
            [alpha for alpha, _ in stated],
            [value for _, value in stated],
            linestyle="none",
            marker="o",
            markersize=10,
            markerfacecolor="none",
            markeredgecolor="#202020",
            markeredgewidth=1.3,
        )
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.15 * max(value for _, value in stated)))
