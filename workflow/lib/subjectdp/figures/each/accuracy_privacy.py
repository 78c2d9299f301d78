"""Test accuracy against the ε that the same runs guarantee, beside the ε that the papers claim.

Filled marks are at the sound ε, open ones guarantee nothing: at the published ε, or, without a finite ε, in a strip at
the right. Runs at several target ε have a mark each.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from subjectdp.figures.curves import present, seed_note
from subjectdp.figures.each.privacy import series_names
from subjectdp.figures.panels import VALUE_COLUMNS, LegendEntry, Panel, Sheet
from subjectdp.figures.style import Style, in_order, styles_for
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.intervals import largest_of, mean_interval
from subjectdp.results.labels import dataset_name, format_epsilon
from subjectdp.results.select import CONDITIONAL_MARK, CONDITIONAL_NOTE, claimed_units, is_conditional

UNITS = {
    "subject": ("epsilon_sound_subject", "a subject over all its silos"),
    "item": ("epsilon_sound_item", "one item"),
}
_GREY = "#404040"
_SIDE_BY_SIDE = 5.0  # points
_COVERED = 4.0  # per cent: accuracies nearer than this have marks that cover each other
_APART = 0.11  # part of the axis that a tick's label takes
_TARGET = ", ε = "
_PUBLISHED, _SOUND = "published", "sound"


def build(inputs: FigureInputs, name: str) -> Sheet:
    """Two panels per data set: ε of a subject over all its silos, and of one item."""
    runs, notes = inputs.shown_runs()
    claimed = claimed_units(runs)
    runs = runs.assign(series=_with_targets(runs).where(claimed != "", runs["label"]), claimed=claimed)
    styles = styles_for(runs["label"])
    rows = tuple(
        tuple(_panel(runs[runs["dataset"] == dataset], unit, styles) for unit in UNITS)
        for dataset in present(runs)
    )
    deltas = ", ".join(f"{value:g}" for value in sorted(runs["delta"].unique()))
    seeds = seed_note(runs.assign(label=runs["series"])).replace("band", "bar")
    told = f"{seeds}; δ = {deltas}; ε: the largest over the seeds"
    strip = "Marks that would cover each other stand side by side. Right strip: no noise, or no finite ε can be stated"
    marked = (CONDITIONAL_NOTE,) if is_conditional(runs) else ()
    return Sheet(
        name,
        rows,
        _legend(runs, styles),
        (told, strip, *marked, *notes),
        tuple(runs["run_id"]),
        row_height=2.9,
    )


def _with_targets(runs: pd.DataFrame) -> pd.Series:
    """The series' names, with the target ε if an algorithm was run at several."""
    swept = runs.groupby("label")["epsilon"].transform("nunique") > 1
    return series_names(runs) + (_TARGET + runs["epsilon"].map(format_epsilon)).where(swept, "")


def _legend(runs: pd.DataFrame, styles: dict[str, Style]) -> tuple[LegendEntry, ...]:
    """The algorithms, the meaning of filled and open marks, and of rings if there are runs in sound mode."""
    entries = [LegendEntry(label, _unlined(styles[label])) for label in in_order(runs["label"])]
    entries.append(LegendEntry("filled: provable ε", Style(_GREY, "D", "none")))
    entries.append(
        LegendEntry("open: no guarantee (a claim, or none)", Style(_GREY, "D", "none"), filled=False)
    )
    if (runs["mode"] == "sound").any():
        entries.append(LegendEntry("ring: run in sound mode", Style(_GREY, "o", "none"), filled=False))
    return tuple(entries)


def _unlined(style: Style) -> Style:
    return Style(style.color, style.marker, "none")


def _panel(runs: pd.DataFrame, unit: str, styles: dict[str, Style]) -> Panel:
    dataset = str(runs["dataset"].iloc[0])
    values = _values(runs, unit)
    marked = {
        str(name) for name, part in runs.groupby("series") if unit == "subject" and is_conditional(part)
    }
    return Panel(
        key=f"{dataset}_{unit}",
        heading=f"{dataset_name(dataset)}, {UNITS[unit][1]}",
        draw=partial(_draw, values=values, looks=_looks(runs, styles), conditional=marked),
        values=values,
        synthetic=bool(runs["synthetic"].any()),
        scale=f"accuracy_{dataset}",
    )


def _looks(runs: pd.DataFrame, styles: dict[str, Style]) -> dict[str, tuple[Style, bool]]:
    """The style of each series, and whether it gets a ring."""
    return {
        str(series): (styles[str(part["label"].iloc[0])], bool((part["mode"] == "sound").all()))
        for series, part in runs.groupby("series", sort=True)
    }


def _values(runs: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Accuracy of each series at its sound ε, and at the published one if a paper claims it for this unit.

    x is infinite if there is no finite ε.
    """
    rows = []
    for series, part in runs.groupby("series", sort=True):
        accuracy = mean_interval(part["final_test_accuracy"] * 100)
        places = {_SOUND: _finite(part[UNITS[unit][0]])}
        published = float(part["epsilon_as_published"].max())
        claims = (
            part["claimed"].iloc[0] == unit and part["mode"].iloc[0] != "sound"
        )  # whose noise is nobody's claim
        if math.isfinite(published) and claims:
            places[_PUBLISHED] = published
        rows += [
            {
                "dataset": part["dataset"].iloc[0],
                "quantity": f"accuracy_at_{kind}_epsilon",
                "series": series,
                "x": place,
                "mean": accuracy.mean,
                "low": accuracy.low,
                "high": accuracy.high,
                "seeds": accuracy.count,
            }
            for kind, place in places.items()
        ]
    return pd.DataFrame(rows)[VALUE_COLUMNS]


def _finite(values: pd.Series) -> float:
    """The largest ε over the seeds; infinite if one seed has none."""
    largest = largest_of(values)
    return largest if math.isfinite(largest) else math.inf


def _draw(
    axes: Axes, values: pd.DataFrame, looks: dict[str, tuple[Style, bool]], conditional: set[str]
) -> None:
    finite = values.loc[np.isfinite(values["x"]), "x"]
    low, high = (float(finite.min()), float(finite.max())) if not finite.empty else (1.0, 10.0)
    edge = max(high, 3 * low) * (max(high, 3 * low) / low) ** 0.16 * 1.3
    aside = _aside(values.assign(x=values["x"].clip(upper=edge)))
    for series, part in values.groupby("series", sort=True):
        look = looks[str(series)]
        for _, row in part.sort_values("quantity").iterrows():
            _draw_mark(axes, row, look, min(float(row["x"]), edge), aside[str(series), str(row["quantity"])])
        _draw_gap(axes, part, look[0], edge)
        if series in conditional:
            _draw_dagger(axes, part[part["quantity"] == f"accuracy_at_{_SOUND}_epsilon"], edge)
    _join_targets(axes, values, looks)
    axes.set_xscale("log")
    axes.set_xlim(low / (max(high, 3 * low) / low) ** 0.06 / 1.2, edge * (edge / low) ** 0.07 * 1.1)
    axes.axvspan(edge / (edge / low) ** 0.06, axes.get_xlim()[1], color="#EEEEEE", zorder=0)
    top = float(np.nanmax(values["high"].fillna(values["mean"]))) * 1.08
    axes.set_ylim(0, min(100.0, max(1.0, top)))
    axes.set_xlabel("ε (smaller: better protected)")
    axes.set_ylabel("test accuracy (%)")
    claims = values.loc[values["quantity"] == f"accuracy_at_{_PUBLISHED}_epsilon", "x"]
    counts = claims.map(lambda claim: float(f"{claim:.2g}")).value_counts()
    _ticks(axes, low, high, edge, sorted(counts.index, key=lambda claim: (-counts[claim], claim)))


def _join_targets(axes: Axes, values: pd.DataFrame, looks: dict[str, tuple[Style, bool]]) -> None:
    """Joins the marks of series that differ only in the target ε."""
    sound = values[(values["quantity"] == f"accuracy_at_{_SOUND}_epsilon") & np.isfinite(values["x"])]
    swept = sound[sound["series"].str.contains(_TARGET, regex=False)]
    for _, part in swept.groupby(swept["series"].map(lambda name: str(name).rpartition(_TARGET)[0])):
        style, _ = looks[str(part["series"].iloc[0])]
        ordered = part.sort_values("x")
        axes.plot(ordered["x"], ordered["mean"], color=style.color, linestyle=":", linewidth=1.0, zorder=2)


def _aside(values: pd.DataFrame) -> dict[tuple[str, str], float]:
    """How far in points each mark stands aside: marks at one ε whose accuracies would cover each other do."""
    shifts = {}
    for _, part in values.groupby(values["x"].map("{:.2g}".format)):
        part = part.sort_values("mean", kind="stable")
        for _, near in part.groupby((part["mean"].diff() > _COVERED).cumsum()):
            for place, (series, quantity) in enumerate(zip(near["series"], near["quantity"], strict=True)):
                shifts[str(series), str(quantity)] = _SIDE_BY_SIDE * (place - (len(near) - 1) / 2)
    return shifts


def _draw_gap(axes: Axes, part: pd.DataFrame, style: Style, edge: float) -> None:
    """A line from the claim to what holds."""
    if len(part) > 1:
        axes.plot(part["x"].clip(upper=edge), part["mean"], color=style.color, linewidth=1.0, alpha=0.45)


def _draw_mark(axes: Axes, row: pd.Series, look: tuple[Style, bool], x: float, shift: float) -> None:
    """A mark with its interval: filled at a finite sound ε, open at the claim or without one, ringed in sound mode."""
    (style, ringed), sound = look, row["quantity"] == f"accuracy_at_{_SOUND}_epsilon"
    place = axes.transData + ScaledTranslation(shift / 72, 0, axes.figure.dpi_scale_trans)
    if sound and math.isfinite(row["low"]):
        ends = [max(0.0, row["low"]), row["high"]]
        axes.plot([x, x], ends, color=style.color, linewidth=1.2, transform=place)
    # Not clipped: an accuracy of 0 % lies on the axis.
    look_of: dict[str, Any] = {
        "color": style.color,
        "markersize": 5.5,
        "zorder": 3,
        "clip_on": False,
        "transform": place,
    }
    face = style.color if sound and math.isfinite(row["x"]) else "white"
    axes.plot([x], [row["mean"]], style.marker, markerfacecolor=face, **look_of)
    if ringed:
        ring = {**look_of, "color": _GREY, "markersize": 9.5, "zorder": 2}
        axes.plot([x], [row["mean"]], "o", markerfacecolor="none", **ring)


def _draw_dagger(axes: Axes, part: pd.DataFrame, edge: float) -> None:
    """The mark of a conditional ε, above a series' mark at its sound ε."""
    for x, y in zip(part["x"], part["mean"], strict=True):
        if math.isfinite(x):
            axes.annotate(
                CONDITIONAL_MARK,
                (min(x, edge), y),
                xytext=(4, 4),
                textcoords="offset points",
                fontsize=8,
                color=_GREY,
            )


def _ticks(axes: Axes, low: float, high: float, edge: float, claims: list[float]) -> None:
    """Ticks at the claims, at powers of ten, and "none" at the strip; overlapping ticks are left out.

    Earlier ``claims`` take precedence over later ones.
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, math.ceil((last - first) / 6))
    places = [10.0**power for power in range(first, last + 1, step)]
    if high / low < 30:
        places = sorted({*places, *(3 * place for place in places)})
    shown = [place for place in places if axes.get_xlim()[0] <= place <= high * 1.2]
    left, right = axes.get_xlim()
    apart = (right / left) ** _APART
    kept = [edge]
    for place in (*claims, *shown):
        if all(max(place / other, other / place) > apart for other in kept):
            kept.append(place)
    axes.xaxis.set_major_locator(FixedLocator(sorted(kept)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: "none" if value >= edge * 0.999 else format_epsilon(value))
    )
