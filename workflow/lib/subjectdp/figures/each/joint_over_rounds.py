"""The joint-noise paper's Figures 2 and 3: one local step and one epoch a round, against the rounds of the run.

The paper reports the best accuracy and the lowest loss over each run. They stand beside the last round's, because
choosing a round by the test items flatters. The third panel is the ε of an item that can be proven.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from subjectdp.errors import DataError, expected
from subjectdp.figures.curves import METRICS
from subjectdp.figures.joint_lines import joint_runs, line_styles, seeds_note, standard_errors
from subjectdp.figures.panels import LegendEntry, Panel, Sheet
from subjectdp.figures.style import Style
from subjectdp.figures.sweeps import Sweep, draw_marks, logarithmic, shifts
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.labels import dataset_name

DATASETS = {"joint_figure2": "cifar10", "joint_figure3": "acs_income"}
_ROUNDS = Sweep("rounds", "rounds of the run")
_EPSILON = "epsilon_sound_item"


def build(inputs: FigureInputs, name: str) -> Sheet:
    """Accuracy, loss and the ε that holds against the number of rounds, for the figure's data set.

    Raises DataError without its runs, and for two runs of one line, number of rounds and seed.
    """
    dataset, runs = DATASETS[name], joint_runs(inputs)
    runs = runs[runs["dataset"] == dataset]
    if runs.empty:
        raise expected("data sets of the scenario", f"no {dataset}", f"{dataset} for this figure", DataError)
    # all lines solid: dotted ones are last rounds
    styles = {text: replace(style, line="-") for text, style in line_styles(runs).items()}
    panels = [_metric(runs, inputs.read_rounds(), metric, styles) for metric in METRICS]
    return Sheet(
        name,
        ((*panels, _privacy(runs, styles)),),
        tuple(LegendEntry(text, styles[text]) for text in styles),
        (seeds_note(runs), "Filled: best round of each run; hollow: its last round", _privacy_note(runs)),
        tuple(runs["run_id"]),
    )


def _metric(runs: pd.DataFrame, rounds: pd.DataFrame, metric: str, styles: dict[str, Style]) -> Panel:
    quantity, words, factor = METRICS[metric]
    by_run = rounds[rounds["run_id"].isin(runs["run_id"])].sort_values("round").groupby("run_id")[metric]
    best = by_run.max() if quantity == "accuracy" else by_run.min()
    found = {f"{quantity}_best": best, f"{quantity}_last": by_run.last()}
    parts = [
        runs.assign(value=factor * runs["run_id"].map(value), quantity=label)
        for label, value in found.items()
    ]
    return _panel(pd.concat(parts), quantity, words, styles)


def _privacy_note(runs: pd.DataFrame) -> str:
    """What the third panel shows, and what is claimed for the same runs."""
    claims, deltas = (
        ", ".join(f"{each:g}" for each in sorted(set(runs[key]))) for key in ("epsilon", "delta")
    )
    return f"ε that holds: of an item, provable for the same run; claimed for every line: ε = {claims}; δ = {deltas}"


def _privacy(runs: pd.DataFrame, styles: dict[str, Style]) -> Panel:
    return _panel(runs.assign(value=runs[_EPSILON], quantity="epsilon"), "epsilon", "ε that holds", styles)


def _panel(table: pd.DataFrame, key: str, words: str, styles: dict[str, Style]) -> Panel:
    values = standard_errors(table.assign(x=table["rounds"]))
    dataset = str(table["dataset"].iloc[0])
    return Panel(
        key=f"{dataset}_{key}",
        heading=dataset_name(dataset),
        draw=partial(_draw, values=values, words=words, styles=styles),
        values=values,
        synthetic=bool(table["synthetic"].any()),
        weight=2 / 3,  # three beside one another
    )


def _draw(axes: Axes, values: pd.DataFrame, words: str, styles: dict[str, Style]) -> None:
    aside = shifts(list(styles))
    for (series, quantity), part in values.groupby(["series", "quantity"], sort=True):
        hollow = str(quantity).endswith("_last")
        draw_marks(axes, part.sort_values("x"), styles[str(series)], hollow, aside[str(series)])
    logarithmic(axes, sorted(values["x"].unique()), _ROUNDS)
    axes.set_ylim(_limits(values))  # marks stand aside from their places, so that axes do not see them
    axes.set_ylabel(words)


def _limits(values: pd.DataFrame) -> tuple[float, float]:
    low, high = (np.nanmin(values[["low", "mean"]]), np.nanmax(values[["high", "mean"]]))
    space = 0.06 * float(high - low) or 1.0
    return max(0.0, float(low) - space), float(high) + space
