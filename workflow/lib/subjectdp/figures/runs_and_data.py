"""What runs cost, and what they train on: time and memory by algorithm, items by subject and silo."""

from functools import partial

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from subjectdp.data.partition import Partition, load_partition
from subjectdp.figures import parts
from subjectdp.figures.panels import Panel, Sheet
from subjectdp.figures.style import Style, in_order, styles_for
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.intervals import bands
from subjectdp.results.labels import dataset_name, datasets_in_order

COSTS = {
    "seconds_a_run": ("wall_seconds", "time of a run (s)"),
    "seconds_a_round": ("seconds_a_round", "time of a round (s)"),
    "memory": ("peak_memory_mb", "peak memory (MB)"),
}
_MAX_ROWS = 4
_BLUE, _ORANGE = "#0072B2", "#D55E00"


def cost(inputs: FigureInputs, name: str) -> Sheet:
    """A row per data set: seconds per run, seconds per round, peak memory; each algorithm over all its runs."""
    runs = inputs.read_runs()
    runs = runs.assign(seconds_a_round=runs["wall_seconds"] / runs["rounds_executed"])
    styles = styles_for(runs["label"])
    tables = parts.by_dataset(runs)
    rows = tuple(tuple(_cost_panel(part, quantity, styles) for quantity in COSTS) for part in tables)
    height = 0.95 + 0.25 * max(part["label"].nunique() for part in tables)
    note = "Mean over all runs of an algorithm in the scenario, bar: 95 % t-interval; whole runs, evaluation included"
    return Sheet(name, rows, (), (note,), tuple(runs["run_id"]), row_height=height, panel_width=3.7)


def _cost_panel(runs: pd.DataFrame, quantity: str, styles: dict[str, Style]) -> Panel:
    column, axis = COSTS[quantity]
    order = in_order(runs["label"])
    values = bands(runs, ["dataset", "label"], column).rename(columns={"label": "series"})
    values = parts.plotted(values, quantity=quantity, x=values["series"].map(order.index))
    draw = partial(_draw_cost, values=values, axis=axis, order=order, styles=styles)
    return parts.dataset_panel(runs, quantity, draw, values)


def _draw_cost(axes: Axes, values: pd.DataFrame, axis: str, order: list[str], styles: dict[str, Style]) -> None:
    places = parts.draw_rows(axes, order)
    for name, mean, low, high in values[["series", "mean", "low", "high"]].to_numpy():
        place, style = places[name], styles[name]
        axes.plot([0, mean], [place, place], color=style.color, linewidth=2.2, alpha=0.35)
        axes.plot([max(0.0, low), high], [place, place], color=style.color, linewidth=1.2)  # NaN: one run
        axes.plot([mean], [place], style.marker, color=style.color, markersize=6.5)
        parts.write_beside(axes, f"{float(f'{mean:.3g}'):g}", (np.nanmax([mean, high]), place), (6, 0))
    axes.set_xlim(0, parts.highest(values) * 1.22)
    axes.set_xlabel(axis)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))


def partition(inputs: FigureInputs, name: str) -> Sheet:
    """A heat map of items by subject and silo, and bars, for each data set and α, at most four, of one seed."""
    chosen, notes = _choose([load_partition(folder) for folder in inputs.read_partitions()])
    rows = tuple((_heat_panel(each), _bar_panel(each)) for each in chosen)
    named = ", ".join(map(str, sorted({int(each.facts["seed"]) for each in chosen})))
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


def _partition_panel(
    partition: Partition, what: str, draw: partial[None], values: pd.DataFrame, quantity: str
) -> Panel:
    dataset, alpha = setting_of(partition)
    return Panel(
        f"{dataset}_alpha_{alpha:g}_{what}",
        f"{dataset_name(dataset)}, α = {alpha:g}",
        draw,
        parts.plotted(values, dataset=dataset, quantity=quantity),
        bool(partition.facts.get("data", {}).get("synthetic", False)),
        weight=1.5 if what == "heat" else 1.0,
    )


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
    draw = partial(_draw_heat, counts=counts)
    return _partition_panel(partition, "heat", draw, values, "items_of_subject_in_silo")


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
        cbar_kws={"label": "items of a subject", "extend": "max", "pad": 0.015, "ticks": MaxNLocator(5, integer=True)},
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
    return _partition_panel(partition, "silos", draw, values, "count_in_silo")


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
