"""Sound ε after each round of a run, of an item and of a subject over all its silos."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from subjectdp.errors import DataError, expected
from subjectdp.figures.curves import draw_band_line, present
from subjectdp.figures.each.accuracy_privacy import UNITS
from subjectdp.figures.panels import VALUE_COLUMNS, LegendEntry, Panel, Sheet
from subjectdp.figures.style import Style, in_order, styles_for
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.intervals import largest_of
from subjectdp.results.labels import dataset_name, format_epsilon

_GREY = "#404040"


def build(inputs: FigureInputs, name: str) -> Sheet:
    """Two panels per data set: a subject over all its silos, and one item.

    Algorithms without a finite sound ε are named in a note. DataError if no run states a curve.
    """
    runs, notes = inputs.shown_runs()
    curves = _curves(runs)
    if curves.empty:
        raise expected(
            "runs to draw", sorted(set(runs["label"])), "at least one that states ε over rounds", DataError
        )
    styles = styles_for(runs["label"])
    rows = tuple(
        tuple(_panel(runs[runs["dataset"] == dataset], curves, unit, styles) for unit in UNITS)
        for dataset in present(curves)
    )
    legend = [LegendEntry(label, styles[label]) for label in in_order(curves["label"])]
    legend.append(LegendEntry("the target ε", Style(_GREY, "none", "--")))
    deltas = ", ".join(f"{value:g}" for value in sorted(runs["delta"].unique()))
    told = [f"The largest ε over the seeds; δ = {deltas}"]
    without = in_order(set(runs["label"]) - set(curves["label"]))
    if without:
        told.append(f"No finite sound ε, hence no line: {', '.join(without)}")
    return Sheet(name, rows, tuple(legend), (*told, *notes), tuple(runs["run_id"]), row_height=2.6)


def _curves(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per run, unit and number of rounds: dataset, label, unit, round, epsilon.

    Curves that would hold if noise and divisor were public constants are left out: they depend on data.
    """
    rows: list[dict[str, Any]] = []
    for _, run in runs.iterrows():
        stated = json.loads(run["epsilon_over_rounds"])
        for unit in UNITS if stated and not stated["constant_noise_assumed"] else ():
            for round_, epsilon in zip(stated["rounds"], stated[unit] or (), strict=False):
                rows.append(
                    {
                        "dataset": run["dataset"],
                        "label": run["label"],
                        "unit": unit,
                        "round": round_,
                        "epsilon": np.nan if epsilon is None else float(epsilon),
                    }
                )
    table = pd.DataFrame(rows, columns=["dataset", "label", "unit", "round", "epsilon"])
    return table[table["epsilon"] > 0]


def _panel(runs: pd.DataFrame, curves: pd.DataFrame, unit: str, styles: dict[str, Style]) -> Panel:
    dataset = str(runs["dataset"].iloc[0])
    part = curves[(curves["dataset"] == dataset) & (curves["unit"] == unit)]
    found = [
        {"series": label, "x": round_, "mean": largest_of(rows["epsilon"]), "seeds": len(rows)}
        for (label, round_), rows in part.groupby(["label", "round"], sort=True)
    ]
    facts: dict[str, Any] = {"dataset": dataset, "quantity": f"largest_sound_epsilon_{unit}"}
    facts |= {"low": np.nan, "high": np.nan}
    values = pd.DataFrame(found).assign(**facts)[VALUE_COLUMNS]
    targets = sorted(runs["epsilon"].unique())
    return Panel(
        key=f"{dataset}_{unit}",
        heading=f"{dataset_name(dataset)}, {UNITS[unit][1]}",
        draw=partial(_draw, values=values, styles=styles, targets=targets),
        values=values,
        synthetic=bool(runs["synthetic"].any()),
    )


def _draw(axes: Axes, values: pd.DataFrame, styles: dict[str, Style], targets: list[float]) -> None:
    for name in in_order(values["series"]):
        draw_band_line(axes, values[values["series"] == name].sort_values("x"), styles[name])
    for target in targets:
        axes.axhline(target, color=_GREY, linestyle="--", linewidth=1.2)
    axes.set_yscale("log")
    axes.set_xlim(0, float(values["x"].max()) * 1.03)
    axes.set_xlabel("training round")
    axes.set_ylabel("sound ε")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=8))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: format_epsilon(value) if value >= 1 else f"{value:g}")
    )
