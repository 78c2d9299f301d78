"""The joint-noise paper's Figure 1: one local step and one local epoch a round, published and made sound.

Mean and standard error of the mean (SEM) over the seeds, as in the paper. The paper reports the best round of each
run; the final one stands beside it.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from subjectdp.errors import DataError, expected
from subjectdp.figures.curves import METRICS, Curves, present, privacy_footnote
from subjectdp.figures.joint_lines import joint_runs, line_styles, seeds_note, standard_errors
from subjectdp.figures.panels import LegendEntry, Panel, Sheet
from subjectdp.figures.style import Style
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.labels import dataset_name
from subjectdp.results.select import privacy_note

_PLACES = ("best round", "last round")


def build(inputs: FigureInputs, name: str) -> Sheet:
    """A row per data set: accuracy and loss over the rounds, and the accuracy of each run's best and last round.

    Data sets whose runs all have one number of rounds. Raises DataError without a run of joint noise, and for two runs
    of one line and seed.
    """
    runs = joint_runs(inputs)
    numbers = runs.groupby("dataset")["rounds"].transform("nunique")
    runs = runs[numbers == 1]  # those of several are on the axis of joint_figure2 and joint_figure3
    if runs.empty:
        raise expected("rounds of a data set's runs", "several", "one for this figure", DataError)
    styles, rounds = line_styles(runs), inputs.read_rounds()
    legend = [
        LegendEntry(f"{text}\n{privacy_note(runs[runs['series'] == text])}", styles[text]) for text in styles
    ]
    return Sheet(
        name,
        tuple(_row(runs[runs["dataset"] == dataset], rounds, styles) for dataset in present(runs)),
        tuple(legend),
        (seeds_note(runs), privacy_footnote(runs)),
        tuple(runs["run_id"]),
    )


def _row(runs: pd.DataFrame, rounds: pd.DataFrame, styles: dict[str, Style]) -> tuple[Panel, ...]:
    dataset = str(runs["dataset"].iloc[0])
    facts = runs[["run_id", "dataset", "series", "synthetic"]]
    table = rounds[["run_id", "round", *METRICS]].merge(facts, on="run_id", validate="many_to_one")
    panels = [_curves(table, metric, styles) for metric in METRICS]
    return (*panels, _best_and_last(table, dataset, styles, bool(runs["synthetic"].any())))


def _curves(table: pd.DataFrame, metric: str, styles: dict[str, Style]) -> Panel:
    quantity, _, factor = METRICS[metric]
    dataset = str(table["dataset"].iloc[0])
    values = standard_errors(table.assign(value=factor * table[metric], x=table["round"], quantity=quantity))
    return Panel(
        key=f"{dataset}_{quantity}",
        heading=dataset_name(dataset),
        draw=Curves(values, metric, styles, [], math.nan).draw,
        values=values,
        synthetic=bool(table["synthetic"].any()),
        scale=quantity,
    )


def _best_and_last(table: pd.DataFrame, dataset: str, styles: dict[str, Style], synthetic: bool) -> Panel:
    by_run = table.sort_values("round").groupby(["dataset", "series", "run_id"])["test_accuracy"]
    parts = [
        (100 * found).rename("value").reset_index().assign(x=place, quantity=f"accuracy_{word.split()[0]}")
        for place, (word, found) in enumerate(zip(_PLACES, (by_run.max(), by_run.last()), strict=True))
    ]
    values = standard_errors(pd.concat(parts))
    return Panel(
        key=f"{dataset}_best_and_last",
        heading=f"{dataset_name(dataset)}, best and last",
        draw=partial(_draw_points, values=values, styles=styles),
        values=values,
        synthetic=synthetic,
    )


def _draw_points(axes: Axes, values: pd.DataFrame, styles: dict[str, Style]) -> None:
    offsets = np.linspace(-0.15, 0.15, len(styles))
    for offset, (series, style) in zip(offsets, styles.items(), strict=True):
        part = values[values["series"] == series]
        errors = (part["mean"] - part["low"]).fillna(0.0)
        axes.errorbar(
            part["x"] + offset, part["mean"], errors, fmt=style.marker or "o", color=style.color, capsize=2
        )
    axes.set_xticks(range(len(_PLACES)), _PLACES)
    axes.set_xlim(-0.5, len(_PLACES) - 0.5)
    axes.set_ylabel("test accuracy (%)")
