"""Published and sound ε of each algorithm: the claim, and the guarantee of the same runs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from subjectdp.errors import DataError, expected
from subjectdp.figures.curves import present
from subjectdp.figures.panels import PAGE_WIDTH, VALUE_COLUMNS, LegendEntry, Panel, Sheet
from subjectdp.figures.style import Style, in_order, styles_for
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.intervals import largest_of
from subjectdp.results.labels import dataset_name, format_epsilon
from subjectdp.results.select import (
    CONDITIONAL_MARK,
    CONDITIONAL_NOTE,
    is_conditional,
    steps_words,
)

STATEMENTS = {
    "epsilon_as_published": ("claimed, no guarantee", "none"),
    "epsilon_sound_item": ("sound, item", "s"),
    "epsilon_sound_subject_one_silo": ("sound, subject at one silo", "^"),
    "epsilon_sound_subject": ("sound, subject over all its silos", "D"),
}
_GREY = "#404040"
_CLAIM = "epsilon_as_published"


def build(inputs: FigureInputs, name: str) -> Sheet:
    """One panel per data set, one line per algorithm and mode; DataError without a private run."""
    private, notes = inputs.shown_runs()
    panels = tuple(_panel(private[private["dataset"] == dataset]) for dataset in present(private))
    heights = tuple(1.0 + 0.27 * panel.values["series"].nunique() for panel in panels)
    legend = tuple(
        LegendEntry(text, Style(_GREY, marker, "--" if marker == "none" else "none"))
        for text, marker in STATEMENTS.values()
    )
    deltas = ", ".join(f"{value:g}" for value in sorted(private["delta"].unique()))
    infinite = any(np.isinf(panel.values["mean"]).any() for panel in panels)
    told = (
        f"δ = {deltas}; the largest ε over the seeds"
        f"{'; ∞: no finite ε can be stated' if infinite else ''}; a missing marker: none is stated"
    )
    if is_conditional(private):
        notes = [CONDITIONAL_NOTE, *notes]
    return Sheet(
        name,
        tuple((panel,) for panel in panels),
        legend,
        (told, *notes),
        tuple(private["run_id"]),
        panel_width=PAGE_WIDTH,
        row_heights=heights,
    )


def series_names(runs: pd.DataFrame) -> pd.Series:
    """The label of each run, with mode, horizontal rule and local steps if the runs differ in them."""
    names = runs["label"].astype(str)
    if runs["mode"].nunique() > 1:
        names = names + np.where(runs["mode"] == "sound", ", sound", ", as published")
    published = runs["mode"] != "sound"
    if runs.loc[published, "horizontal"].nunique() > 1:
        rules = (
            runs["horizontal"].map({"rounds_over_sqrt_s": ", R/√s", "steps_times_s": ", s·T·R"}).fillna("")
        )
        names = names + rules.where(published, "")
    steps = runs["local_steps"].map(steps_words)
    swept = steps.groupby(runs["label"]).transform("nunique") > 1
    return names + (", " + steps).where(swept, "")


def _natural(name: str) -> tuple[bool, str, int]:
    """A sort key: names that end in local steps by their number, an epoch last."""
    head, _, steps = name.rpartition(", ")
    number = int(steps.split()[0]) if steps.split()[0].isdigit() else 0
    return "epoch" in steps, head if number else name, number


def _panel(runs: pd.DataFrame) -> Panel:
    dataset = str(runs["dataset"].iloc[0])
    named = runs.assign(series=series_names(runs))
    order = [
        str(name)
        for label in in_order(named["label"])
        for name in sorted(named.loc[named["label"] == label, "series"].unique(), key=_natural)
    ]
    values = pd.concat([_statement(named, statement) for statement in STATEMENTS], ignore_index=True)
    colors = {
        name: styles_for(named["label"])[str(label)].color
        for name, label in zip(named["series"], named["label"], strict=True)
    }
    if values["mean"].isna().all():
        raise expected(f"privacy statements of {dataset}", "none", "at least one ε in the runs", DataError)
    conditional = {str(series) for series, part in named.groupby("series") if is_conditional(part)}
    draw = partial(_draw, values=values, order=order, colors=colors, conditional=conditional)
    return Panel(f"{dataset}_epsilon", dataset_name(dataset), draw, values, bool(runs["synthetic"].any()))


def _statement(runs: pd.DataFrame, statement: str) -> pd.DataFrame:
    """One statement's largest ε over the seeds, by series; left out if a seed states none.

    Sound runs claim nothing: what a paper's accounting would make of their noise is no claim.
    """
    if statement == _CLAIM:
        runs = runs[runs["mode"] != "sound"]
    found = [
        {"dataset": dataset, "series": series, "mean": largest_of(part[statement]), "seeds": len(part)}
        for (dataset, series), part in runs.groupby(["dataset", "series"], sort=True)
    ]
    table = pd.DataFrame(found, columns=["dataset", "series", "mean", "seeds"])
    table = table.astype({"mean": float}).dropna(subset="mean")
    return table.assign(quantity="largest_epsilon", x=statement, low=np.nan, high=np.nan)[VALUE_COLUMNS]


def _draw(
    axes: Axes, values: pd.DataFrame, order: list[str], colors: dict[str, str], conditional: set[str]
) -> None:
    places = {name: len(order) - 1 - index for index, name in enumerate(order)}
    finite = values.loc[np.isfinite(values["mean"].astype(float)), "mean"].astype(float)
    low, high = (float(finite.min()), float(finite.max())) if not finite.empty else (1.0, 10.0)
    edge = high * (high / low) ** 0.12 * 1.6
    for claim in sorted(set(values.loc[values["x"] == _CLAIM, "mean"])):
        axes.axvline(claim, color=_GREY, linestyle="--", linewidth=1.2, zorder=1)
    for name, place in places.items():
        mark = CONDITIONAL_MARK if name in conditional else ""
        _draw_series(axes, values[values["series"] == name], place, (colors[name], mark), edge)
    axes.set_xscale("log")
    axes.set_xlim(low / (edge / low) ** 0.04 / 1.6, edge * 1.5)
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set_yticks(list(places.values()), list(places))
    axes.set_xlabel("ε")
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=_ticks(edge / low)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_epsilon(value)))


def _draw_series(axes: Axes, part: pd.DataFrame, place: int, look: tuple[str, str], edge: float) -> None:
    """The statements of one series on the line at ``place``; an infinite ε is drawn at ``edge``.

    ``look``: its colour, and what is written behind a subject's ε.
    """
    color, mark = look
    shown = part["mean"].astype(float).clip(upper=edge).to_numpy()
    axes.plot([shown.min(), shown.max()], [place, place], color=color, linewidth=2.2, alpha=0.35)
    if set(part["x"]) == {_CLAIM}:
        axes.annotate(
            "no sound ε",
            (float(shown[0]), place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=_GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )
    for x, mean, statement in zip(shown, part["mean"].astype(float), part["x"], strict=True):
        _, marker = STATEMENTS[str(statement)]
        axes.plot([x], [place], marker=marker, color=color, markersize=6, linestyle="none", zorder=3)
        if statement == "epsilon_sound_subject":
            _annotate(axes, float(x), place, format_epsilon(mean) + mark)


def _ticks(ratio: float) -> tuple[float, ...]:
    """The labelled multiples of powers of ten: fewer if the axis spans more decades."""
    if ratio < 30:
        return (1.0, 2.0, 5.0)
    return (1.0, 3.0) if ratio < 3000 else (1.0,)


def _annotate(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(
        text,
        (x, y),
        xytext=(6, 0),
        textcoords="offset points",
        ha="left",
        va="center",
        fontsize=7.5,
        color=_GREY,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )
