"""What the figures share: panels of a data set, plotted values, lines, marks and axes, legends and notes."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from subjectdp.figures.panels import VALUE_COLUMNS, LegendEntry, Panel, Style
from subjectdp.results.select import are_private, bands, is_conditional, privacy_note
from subjectdp.results.shown_runs import CONDITIONAL_NOTE, dataset_name, datasets_in_order, format_epsilon, in_order

GREY = "#404040"
METRICS = {"test_accuracy": ("accuracy", "test accuracy (%)", 100.0), "test_loss": ("loss", "test loss (nats)", 1.0)}
MARKS = 8
_LOG_RATIO = 30.0  # largest ratio of losses on a linear axis


def by_dataset(runs: pd.DataFrame) -> list[pd.DataFrame]:
    """The runs of each data set, in the papers' order."""
    return [runs[runs["dataset"] == name] for name in datasets_in_order(runs["dataset"])]


def dataset_panel(
    rows: pd.DataFrame, key: str, draw: Callable[[Axes], None], values: pd.DataFrame, words: str = "", **more: Any
) -> Panel:
    """A panel of one data set's ``rows``; ``words`` follow its name in the heading, ``more`` are further fields."""
    dataset = str(rows["dataset"].iloc[0])
    synthetic = bool(rows["synthetic"].any())
    if "setting" in rows and of_numbers(rows):
        draw = partial(_draw_of_numbers, draw=draw)
    return Panel(f"{dataset}_{key}", dataset_name(dataset) + words, draw, values, synthetic, **more)


_OF_NUMBERS = {"test accuracy (%)": "variance explained (%)", "test loss (nats)": "test loss (squared error)"}


def of_numbers(runs: pd.DataFrame) -> bool:
    """Whether the labels of a data set's runs are numbers: R² stands in the place of accuracy."""
    return any(json.loads(setting)["data"].get("task") == "regression" for setting in runs["setting"].unique())


def _draw_of_numbers(axes: Axes, draw: Callable[[Axes], None]) -> None:
    draw(axes)
    label = axes.get_ylabel().removeprefix("final ")
    axes.set_ylabel(_OF_NUMBERS.get(label, label))
    if label == "test accuracy (%)":  # which is never below 0
        axes.set_ylim(bottom=min(axes.get_ylim()[0], axes.dataLim.y0))


def plotted(frame: pd.DataFrame, **columns: Any) -> pd.DataFrame:
    """``frame`` with more ``columns``, as :data:`VALUE_COLUMNS`; one seed and no interval where it states none."""
    frame = frame.assign(**columns)
    absent = {"low": np.nan, "high": np.nan, "seeds": 1}
    return frame.assign(**{name: value for name, value in absent.items() if name not in frame})[VALUE_COLUMNS]


def written(values: Iterable[float]) -> str:
    """Distinct numbers, rising, with commas."""
    return ", ".join(f"{value:g}" for value in sorted(set(values)))


def highest(values: pd.DataFrame) -> float:
    """The upper end of the intervals, or the largest mean without any."""
    return float(np.nanmax(values["high"].fillna(values["mean"])))


def draw_band_line(axes: Axes, part: pd.DataFrame, style: Style, most_marks: int = 10_000) -> None:
    """One series: a line with markers, and a band where there are several seeds (a bar at an isolated point)."""
    part = part.sort_values("x")
    x, mean = part["x"].to_numpy(dtype=float), part["mean"].to_numpy(dtype=float)
    look: dict[str, Any] = {"marker": style.marker, "markeredgecolor": "white", "markeredgewidth": 0.4}
    look["markevery"] = max(1, -(-len(part) // most_marks))
    axes.plot(x, mean, color=style.color, linestyle=style.line, **look)
    if part["low"].notna().any():
        low, high = part["low"].to_numpy(dtype=float), part["high"].to_numpy(dtype=float)
        axes.fill_between(x, low, high, color=style.color, alpha=0.14, linewidth=0)
        known = np.concatenate([[False], np.isfinite(low), [False]])
        isolated = known[1:-1] & ~known[:-2] & ~known[2:]
        axes.vlines(x[isolated], low[isolated], high[isolated], color=style.color, alpha=0.5, linewidth=1.2)


def draw_lines(axes: Axes, values: pd.DataFrame, styles: dict[str, Style], most_marks: int = 10_000) -> None:
    """All series, each by :func:`draw_band_line`."""
    for name in in_order(values["series"]):
        draw_band_line(axes, values[values["series"] == name], styles[name], most_marks)


def draw_marks(axes: Axes, part: pd.DataFrame, style: Style, hollow: bool) -> None:
    """Marks with error bars, joined by a line; ``hollow`` ones by a thin dotted line."""
    part = part.sort_values("x")
    x, mean = part["x"].to_numpy(dtype=float), part["mean"].to_numpy(dtype=float)
    half = (part["high"] - part["mean"]).fillna(0.0).to_numpy(dtype=float)
    face, line, width = ("white", ":", 1.1) if hollow else (style.color, style.line, 1.5)
    look: dict[str, Any] = {"marker": style.marker, "markersize": 6, "markerfacecolor": face, "color": style.color}
    look |= {"linestyle": line, "linewidth": width, "elinewidth": 1.1, "capsize": 2}
    axes.errorbar(x, mean, yerr=half if half.any() else None, **look)


def draw_rows(axes: Axes, names: Sequence[str]) -> dict[str, int]:
    """A row for each name, the first on top, without lines between; returns their heights."""
    places = {name: len(names) - 1 - index for index, name in enumerate(names)}
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.set_yticks(list(places.values()), list(places))
    axes.grid(visible=False, axis="y")
    return places


def write_beside(axes: Axes, text: str, place: tuple[float, float], offset: tuple[float, float], **more: Any) -> None:
    """A small text beside a mark, ``offset`` in points."""
    look: dict[str, Any] = {"va": "center", "fontsize": 7.5, "color": GREY}
    axes.annotate(text, place, xytext=offset, textcoords="offset points", **look | more)


def decades(axis: Axis, subs: Sequence[float] = (1.0,), most: int | None = None) -> None:
    """Ticks at ``subs`` times powers of ten, at most ``most``, as plain numbers."""
    axis.set_major_locator(LogLocator(base=10, subs=subs, numticks=most))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_epsilon(value) if value >= 1 else f"{value:g}"))


def ticks_at(axes: Axes, places: Sequence[float], ticks: str = "{:g}") -> None:
    """A tick at each place of the horizontal axis and nowhere else."""
    axes.xaxis.set_major_locator(FixedLocator(list(places)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(list(places), [ticks.format(place) for place in places])


def logarithmic(axes: Axes, places: Sequence[float], label: str, ticks: str = "{:g}") -> None:
    """A logarithmic horizontal axis with a tick at each place."""
    axes.set_xscale("log")
    low, high = min(places), max(places)
    margin = max(1.15, (high / low) ** 0.06)
    axes.set_xlim(low / margin, high * margin)
    ticks_at(axes, places, ticks)
    axes.set_xlabel(label)


def rounds_axis(axes: Axes, values: pd.DataFrame, label: str = "training round") -> None:
    """The horizontal axis of rounds or steps, from 0."""
    axes.set_xlabel(label)
    axes.set_xlim(0, float(values["x"].max()) * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def privacy_legend(
    runs: pd.DataFrame, styles: dict[str, Style], series: str = "label", order: Iterable[str] = ()
) -> tuple[LegendEntry, ...]:
    """For each series (in ``order``, else as algorithms) its name, and below it the ε that it claims and guarantees."""
    return tuple(
        LegendEntry(f"{name}\n{privacy_note(runs[runs[series] == name])}", styles[name])
        for name in order or in_order(runs[series])
    )


def seed_note(runs: pd.DataFrame, series: str = "label") -> str:
    """The number of seeds averaged in a figure, and the meaning of its bands."""
    counts = runs.groupby(["dataset", series])["seed"].nunique()
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
    names = datasets_in_order(private["dataset"])
    order = f"; with a slash: {' / '.join(dataset_name(name) for name in names)}" if len(names) > 1 else ""
    star = "* the papers' claim, no guarantee. " if (private["mode"] == "as_published").any() else ""
    dagger = f"{CONDITIONAL_NOTE}. " if is_conditional(private) else ""
    sound = f"Sound ε: what the same run guarantees an item, or a subject over all its silos{order}"
    return f"{star}{dagger}{sound}; δ = {written(private['delta'])}"


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
    """``metric`` over rounds for one data set's runs; panels of one metric and data set share their y-range."""
    quantity = METRICS[metric][0]
    values = curve_values(runs, rounds, metric, series)
    classes = quantity == "accuracy" and not of_numbers(runs)
    chance = 100 * float(runs["most_frequent_class"].mean()) if classes else math.nan
    part = rounds[rounds["run_id"].isin(runs["run_id"])]
    if not np.isfinite(part[metric]).all():  # as of a run that diverged
        more["words"] = f"{more.get('words', '')}, where finite"
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
        shown = 1.0
        if math.isfinite(chance):
            shown = 1.2 * chance  # also of runs that learn nothing
            axes.axhline(chance, color=GREY, linestyle=(0, (1, 2)), linewidth=1.0, zorder=1)
            look = {"ha": "right", "va": "bottom", "fontsize": 7, "xycoords": axes.get_yaxis_transform()}
            write_beside(axes, f"most frequent class {chance:.1f} %", (1.0, chance), (-2, 1.5), **look)
        axes.set_ylim(0, min(100.0, max(shown, top)))
    elif not positive.empty and positive.max() / positive.min() > _LOG_RATIO:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, max(1e-3, top))
