"""What runs cost, and what they train on: time and memory by algorithm, items by subject and silo, caps on them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from subjectdp.api.accounting import Cap
from subjectdp.data.partition import EQUAL, INHERENT, Partition, load_partition
from subjectdp.errors import DataError, expected
from subjectdp.figures import parts
from subjectdp.figures.panels import PAGE_WIDTH, Panel, Sheet, Style, figure_style, styles_for
from subjectdp.results.collect import FigureInputs
from subjectdp.results.select import bands
from subjectdp.results.shown_runs import dataset_name, datasets_in_order, in_order

COSTS = {
    "seconds_a_run": ("wall_seconds", "time of a run (s)"),
    "seconds_a_round": ("seconds_a_round", "time of a round (s)"),
    "memory": ("peak_memory_mb", "peak memory (MB)"),
}
_NAMES = 0.6  # width of the algorithms' names, which stand in a row's first panel, in panels
_MAX_ROWS = 4
_MOST_COLUMNS = 4000  # subjects of a heat map; a page has fewer dots
_BLUE, _ORANGE = "#0072B2", "#D55E00"


def cost(inputs: FigureInputs, name: str) -> Sheet:
    """A row per data set: seconds per run, seconds per round, peak memory; each algorithm over all its runs."""
    runs = inputs.read_runs()
    runs = runs.assign(seconds_a_round=runs["wall_seconds"] / runs["rounds_executed"])
    styles, tables = styles_for(runs["label"]), parts.by_dataset(runs)
    rows = tuple(tuple(_cost_panel(part, quantity, styles) for quantity in COSTS) for part in tables)
    heights = tuple(0.95 + 0.25 * part["label"].nunique() for part in tables)
    note = "Mean over all runs of an algorithm in the scenario, bar: 95 % t-interval; whole runs, evaluation included"
    width = PAGE_WIDTH / (_NAMES + len(COSTS))
    return Sheet(name, rows, (), (note,), tuple(runs["run_id"]), row_heights=heights, panel_width=width)


def _cost_panel(runs: pd.DataFrame, quantity: str, styles: dict[str, Style]) -> Panel:
    column, axis = COSTS[quantity]
    order = in_order(runs["label"])
    values = bands(runs, ["dataset", "label"], column).rename(columns={"label": "series"})
    values = parts.plotted(values, quantity=quantity, x=values["series"].map(order.index))

    def draw(axes: Axes) -> None:
        places = parts.draw_rows(axes, order)
        for name, mean, low, high in values[["series", "mean", "low", "high"]].to_numpy():
            place, style = places[name], styles[name]
            axes.plot([0, mean], [place, place], color=style.color, linewidth=2.2, alpha=0.35)
            axes.plot([max(0.0, low), high], [place, place], color=style.color, linewidth=1.2)  # NaN: one run
            axes.plot([mean], [place], style.marker, color=style.color, markersize=6.5)
            parts.write_beside(axes, f"{float(f'{mean:.3g}'):g}", (np.nanmax([mean, high]), place), (6, 0))
        axes.set_xlim(0, parts.highest(values) * 1.35)
        axes.set_xlabel(axis)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
        axes.tick_params(axis="y", labelleft=first)

    first = quantity == next(iter(COSTS))
    return parts.dataset_panel(runs, quantity, draw, values, weight=1 + _NAMES if first else 1)


_Setting = tuple[tuple[str, float, str], tuple[int, int, int]]
"""Data set, α and its words; and what else tells partitions apart, as :func:`_sizes`."""
_SIZES = ("subjects", "silos", "cap")


def partition(inputs: FigureInputs, name: str) -> Sheet:
    """A heat map of items by subject and silo, and bars, of one seed for each setting, at most four: each data set and
    α first, then other numbers of subjects, silos and items of a subject."""
    found: dict[_Setting, Partition] = {}
    if not inputs.partitions:
        raise expected("partitions of the figure", "none", "at least one partition folder", DataError)
    for each in sorted(map(load_partition, inputs.partitions), key=lambda found: int(found.facts["seed"])):
        found.setdefault((setting_of(each), _sizes(each)), each)
    order = datasets_in_order(dataset for (dataset, *_), _ in found)
    every = sorted(found, key=lambda key: (order.index(key[0][0]), key[0][1:], -key[1][0], *key[1][1:]))
    first = list({key[0]: key for key in reversed(every)}.values())[::-1]
    if len(first) > _MAX_ROWS:
        shown = [first[round(index * (len(first) - 1) / (_MAX_ROWS - 1))] for index in range(_MAX_ROWS)]
    else:
        shown = [*first, *(key for key in every if key not in first)][:_MAX_ROWS]
    rows = tuple(_row(key, every, found[key]) for key in every if key in shown)
    named = ", ".join(map(str, sorted({int(found[key].facts["seed"]) for key in shown})))
    notes = [f"Training items; partition of seed {named}; subjects ordered by their most items in a silo"]
    notes += [f"{len(shown)} of {len(every)} settings shown"] * (len(shown) < len(every))
    return Sheet(name, rows, (), tuple(notes), row_height=2.2, panel_width=PAGE_WIDTH / 2.4)


def _sizes(partition: Partition) -> tuple[int, int, int]:
    """Subjects, silos, and the most items of a subject at a silo (0: no cap)."""
    return partition.subjects, partition.silos, partition.facts["partition"]["max_items_per_subject"] or 0


def _row(key: _Setting, every: Sequence[_Setting], partition: Partition) -> tuple[Panel, Panel]:
    (dataset, alpha, words), sizes = key
    others = zip(*(each[1] for each in every if each[0][0] == dataset), strict=True)
    differing = [(name, own) for name, own, all_ in zip(_SIZES, sizes, others, strict=True) if len(set(all_)) > 1]
    more = ", ".join(f"{name} = {own}" if own else f"no {name}" for name, own in differing)
    marked = "_".join([f"{dataset}_alpha_{alpha:g}", *(f"{name}_{own}" for name, own in differing)])
    facts: dict[str, Any] = {"heading": f"{dataset_name(dataset)}, {words}\n{more}".rstrip()}
    facts["synthetic"] = bool(partition.facts["data"]["synthetic"])
    return _heat_panel(partition, f"{marked}_heat", facts), _bar_panel(partition, f"{marked}_silos", facts)


def setting_of(partition: Partition) -> tuple[str, float, str]:
    """Data set, α (1: the uniform distribution, 0: none), and the distribution in words."""
    shape, known = partition.facts["partition"], str(partition.facts["data"]["dataset"])
    if shape["distribution"] in (EQUAL, INHERENT):
        return known, 0.0, {EQUAL: "equal shares", INHERENT: "silos of the source"}[shape["distribution"]]
    alpha = float(shape["alpha"]) if shape["distribution"] == "power" else 1.0
    return known, alpha, f"α = {alpha:g}"


def _heat_panel(partition: Partition, key: str, facts: dict[str, Any]) -> Panel:
    """The heat map, of evenly spaced subjects where they are many; its CSV leaves out empty cells."""
    silo, subject, items = partition.groups()
    largest = np.zeros(partition.subjects, np.int64)
    np.maximum.at(largest, subject, items)
    order = np.argsort(-largest, kind="stable")
    ranks = np.unique(np.linspace(0, len(order) - 1, min(len(order), _MOST_COLUMNS)).round().astype(np.int64))
    column = np.full(len(order), -1)
    column[order[ranks]] = np.arange(len(ranks))
    shown = column[subject] >= 0
    counts = np.zeros((partition.silos, len(ranks)), np.int64)
    counts[silo[shown], column[subject[shown]]] = items[shown]
    row, place = np.nonzero(counts)
    series = np.array([f"silo {index}" for index in range(partition.silos)])[row]
    values = pd.DataFrame({"series": series, "x": ranks[place] + 1.0, "mean": counts[row, place].astype(float)})
    values = parts.plotted(values, dataset=setting_of(partition)[0], quantity="items_of_subject_in_silo")

    def draw(axes: Axes) -> None:
        top, ticks = max(1, int(np.ceil(np.quantile(counts, 0.995)))), MaxNLocator(5, integer=True)
        beyond = "max" if counts.max() > top else "neither"
        bar = {"label": "items of a subject", "extend": beyond, "pad": 0.015, "ticks": ticks}
        look: dict[str, Any] = {"cmap": "Blues", "rasterized": True, "xticklabels": False, "cbar_kws": bar}
        sns.heatmap(counts, ax=axes, vmin=0, vmax=top, yticklabels=max(1, partition.silos // 8), **look)
        some = "" if len(ranks) == len(order) else f"{len(ranks):,} of "
        axes.set_xlabel(f"subject ({some}1 to {len(order):,})")
        axes.set_ylabel("silo")
        axes.tick_params(axis="y", rotation=0)

    return Panel(key, **facts, draw=draw, values=values, weight=1.4)


def _bar_panel(partition: Partition, key: str, facts: dict[str, Any]) -> Panel:
    found = {"items": partition.facts["silo_items"], "subjects": partition.facts["silo_subjects"]}
    index = np.arange(len(found["items"]))
    tables = [pd.DataFrame({"series": name, "x": index, "mean": counts}) for name, counts in found.items()]
    values = pd.concat(tables).astype({"x": float, "mean": float})
    values = parts.plotted(values, dataset=setting_of(partition)[0], quantity="count_in_silo")

    def draw(axes: Axes) -> None:
        bars = axes.bar(index, found["items"], width=0.75, color=_BLUE, alpha=0.6, label="items")
        axes.set_xlabel("silo")
        axes.set_ylabel("training items")
        axes.set_ylim(0, max(found["items"]) * 1.28)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.grid(visible=False, axis="x")
        right = axes.twinx()
        (line,) = right.plot(index, found["subjects"], color=_ORANGE, marker="D", linestyle="none", label="subjects")
        right.set_ylim(0, max(found["subjects"]) * 1.28)
        right.set_ylabel("distinct subjects")
        right.grid(visible=False)
        right.spines["right"].set_visible(True)
        axes.legend(handles=[bars, line], loc="upper center", ncols=2, fontsize=7.5)

    return Panel(key, **facts, draw=draw, values=values)


def draw_caps(rows: Sequence[Cap], path: str | Path) -> None:
    """What caps on a person's items cost: noise and losses over the cap, drawn into ``path`` as its ending says."""
    caps = [row.cap for row in rows]
    with figure_style():
        figure, (noise, lost) = plt.subplots(1, 2, figsize=(7.0, 2.6), layout="constrained")
        noise.plot(caps, [1000 * row.noise_per_item for row in rows], "o-")
        noise.set(xlabel="cap on a person's items at a silo", ylabel="noise for 1,000 items kept")
        lost.plot(caps, [100 * row.items_lost for row in rows], "o-", label="items lost")
        lost.plot(caps, [100 * row.people_touched for row in rows], "s--", label="people touched")
        lost.set(xlabel="cap on a person's items at a silo", ylabel="%", ylim=(0, None))
        lost.legend()
        for axes in (noise, lost):
            axes.set_xscale("log", base=2)
            axes.set_xticks(caps, [str(cap) for cap in caps])
        figure.savefig(path)
        plt.close(figure)
