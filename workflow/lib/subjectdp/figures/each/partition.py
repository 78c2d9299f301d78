"""The partition: items of each subject in each silo as a heat map, items and subjects of each silo as bars."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from subjectdp.data.partition import Partition, load_partition
from subjectdp.figures.panels import VALUE_COLUMNS, Panel, Sheet
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.labels import dataset_name, datasets_in_order, format_number

_MAX_ROWS = 4
_BLUE, _ORANGE = "#0072B2", "#D55E00"


def build(inputs: FigureInputs, name: str) -> Sheet:
    """A heat map and bars for each data set and α, at most four of them, of the smallest seed."""
    chosen, notes = _choose([load_partition(folder) for folder in inputs.read_partitions()])
    rows = tuple((_heat_panel(partition), _bar_panel(partition)) for partition in chosen)
    seeds = sorted({int(partition.facts["seed"]) for partition in chosen})
    named = ", ".join(map(str, seeds))
    note = f"Training items; partition of seed {named}; subjects ordered by their most items in a silo"
    return Sheet(name, rows, (), (note, *notes), row_height=2.6, panel_width=4.6)


def setting_of(partition: Partition) -> tuple[str, float]:
    """Data set and α of a partition; 1 is the uniform distribution."""
    shape = partition.facts["partition"]
    alpha = float(shape["alpha"]) if shape["distribution"] == "power" else 1.0
    return str(partition.facts.get("data", {}).get("dataset", "data set unknown")), alpha


def _choose(partitions: list[Partition]) -> tuple[list[Partition], list[str]]:
    first: dict[tuple[str, float], Partition] = {}
    for partition in sorted(partitions, key=lambda each: int(each.facts["seed"])):
        first.setdefault(setting_of(partition), partition)
    order = datasets_in_order(dataset for dataset, _ in first)
    keys = sorted(first, key=lambda key: (order.index(key[0]), key[1]))
    if len(keys) <= _MAX_ROWS:
        return [first[key] for key in keys], []
    picks = sorted({round(index * (len(keys) - 1) / (_MAX_ROWS - 1)) for index in range(_MAX_ROWS)})
    return [first[keys[pick]] for pick in picks], [f"{_MAX_ROWS} of {len(keys)} settings shown"]


def _heading(partition: Partition) -> str:
    dataset, alpha = setting_of(partition)
    return f"{dataset_name(dataset)}, α = {format_number(alpha)}"


def _synthetic(partition: Partition) -> bool:
    return bool(partition.facts.get("data", {}).get("synthetic", False))


def _key(partition: Partition, what: str) -> str:
    dataset, alpha = setting_of(partition)
    return f"{dataset}_alpha_{format_number(alpha)}_{what}"


def _heat_panel(partition: Partition) -> Panel:
    """The heat map; its CSV leaves out empty cells."""
    counts = partition.counts()
    order = np.argsort(-counts.max(axis=0), kind="stable")
    counts = counts[:, order]
    silos, subjects = counts.shape
    values = pd.DataFrame(
        {
            "series": np.repeat([f"silo {index}" for index in range(silos)], subjects),
            "x": np.tile(np.arange(1, subjects + 1, dtype=float), silos),
            "mean": counts.ravel().astype(float),
        }
    ).query("mean > 0")
    return Panel(
        _key(partition, "heat"),
        _heading(partition),
        partial(_draw_heat, counts=counts),
        _complete(values, partition, "items_of_subject_in_silo"),
        _synthetic(partition),
        weight=1.5,
    )


def _draw_heat(axes: Axes, counts: NDArray[np.int64]) -> None:
    top = max(1, int(np.ceil(np.quantile(counts, 0.995))))
    sns.heatmap(
        counts,
        ax=axes,
        cmap="Blues",
        vmin=0,
        vmax=top,
        rasterized=True,
        xticklabels=False,
        yticklabels=max(1, counts.shape[0] // 8),
        cbar_kws={
            "label": "items of a subject",
            "extend": "max",
            "pad": 0.015,
            "ticks": MaxNLocator(5, integer=True),
        },
    )
    axes.set_xlabel(f"subject (1 to {counts.shape[1]:,})")
    axes.set_ylabel("silo")
    axes.tick_params(axis="y", rotation=0)


def _bar_panel(partition: Partition) -> Panel:
    items, subjects = partition.facts["silo_items"], partition.facts["silo_subjects"]
    index = np.arange(len(items), dtype=float)
    values = pd.concat(
        [
            pd.DataFrame({"series": "items", "x": index, "mean": np.asarray(items, dtype=float)}),
            pd.DataFrame({"series": "subjects", "x": index, "mean": np.asarray(subjects, dtype=float)}),
        ]
    )
    draw = partial(_draw_bars, items=items, subjects=subjects)
    values = _complete(values, partition, "count_in_silo")
    return Panel(_key(partition, "silos"), _heading(partition), draw, values, _synthetic(partition))


def _draw_bars(axes: Axes, items: list[int], subjects: list[int]) -> None:
    index = np.arange(len(items))
    bars = axes.bar(index, items, width=0.75, color=_BLUE, alpha=0.6, label="items")
    axes.set_xlabel("silo")
    axes.set_ylabel("training items")
    axes.set_ylim(0, max(items) * 1.28)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(visible=False, axis="x")
    right = axes.twinx()
    (line,) = right.plot(index, subjects, color=_ORANGE, marker="D", linestyle="none", label="subjects")
    right.set_ylim(0, max(subjects) * 1.28)
    right.set_ylabel("distinct subjects")
    right.grid(visible=False)
    right.spines["right"].set_visible(True)
    axes.legend(handles=[bars, line], loc="upper center", ncols=2, fontsize=7.5)


def _complete(values: pd.DataFrame, partition: Partition, quantity: str) -> pd.DataFrame:
    extra: dict[str, Any] = {
        "dataset": setting_of(partition)[0],
        "quantity": quantity,
        "low": np.nan,
        "high": np.nan,
    }
    return values.assign(**extra, seeds=1)[VALUE_COLUMNS]
