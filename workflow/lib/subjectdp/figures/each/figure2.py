"""v1 Figure 2 = v3 Figure 3: the algorithms under increasingly uneven distributions of subjects (power α)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from subjectdp.figures.curves import (
    algorithm_legend,
    curve_panel,
    draw_band_line,
    present,
    privacy_footnote,
    seed_note,
    styles_of,
)
from subjectdp.figures.four_panels import GROUPS, SUBJECTS, counted_note
from subjectdp.figures.histograms import run_means
from subjectdp.figures.panels import VALUE_COLUMNS, Panel, Sheet
from subjectdp.figures.style import Style, in_order
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.intervals import bands
from subjectdp.results.labels import dataset_name, format_number
from subjectdp.results.select import sampling_runs

_LABELS = {
    "final_accuracy": "final test accuracy (%)",
    "mean_largest_group": "mean largest group (items)",
    "mean_subjects": "mean distinct subjects",
}
_MAX_CURVES = 5


def build(inputs: FigureInputs, name: str) -> Sheet:
    """For each data set with several α: accuracy, group size and subjects by α, then accuracy over rounds."""
    runs, notes = inputs.shown_runs()
    rounds, steps, styles = inputs.read_rounds(), inputs.read_steps(), styles_of(runs)
    rows: list[tuple[Panel, ...]] = []
    for dataset in present(runs):
        part = runs[runs["dataset"] == dataset]
        rows.append(_sweep_row(part, steps, styles))
        rows.append(_curve_row(part, rounds, styles))
    counted = counted_note([panel for row in rows for panel in row])
    base = _base(runs)
    return Sheet(
        name,
        tuple(rows),
        algorithm_legend(base, styles),
        (_seed_note(runs), privacy_footnote(base), counted, *notes),
        tuple(runs["run_id"]),
        row_height=2.1,
        panel_width=2.33,
    )


def _base(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs at each data set's smallest α, for which the legend states ε."""
    return runs[runs["alpha"] == runs.groupby("dataset")["alpha"].transform("min")]


def _seed_note(runs: pd.DataFrame) -> str:
    base = _base(runs)
    smallest = ", ".join(format_number(value) for value in sorted(base["alpha"].unique()))
    settings = runs.assign(label=runs["label"] + runs["alpha"].map(str))
    return f"{seed_note(settings)}. ε in the legend at α = {smallest}"


def _sweep_row(runs: pd.DataFrame, steps: pd.DataFrame, styles: dict[str, Style]) -> tuple[Panel, ...]:
    accuracy = runs.assign(value=runs["final_test_accuracy"] * 100)
    groups = _with_means(_counted_runs(runs, GROUPS), steps, "largest_group")
    subjects = _with_means(_counted_runs(runs, SUBJECTS), steps, "subjects")
    return (
        _sweep_panel(accuracy, "final_accuracy", styles, "accuracy"),
        _sweep_panel(groups, "mean_largest_group", styles, None),
        _sweep_panel(subjects, "mean_subjects", styles, None),
    )


def _counted_runs(runs: pd.DataFrame, preferred: Sequence[str]) -> pd.DataFrame:
    """The runs whose mini-batches are counted: of an algorithm run at as many α as any other."""
    places = runs.groupby("label")["alpha"].nunique()
    return sampling_runs(runs[runs["label"].isin(places[places == places.max()].index)], preferred)


def _with_means(runs: pd.DataFrame, steps: pd.DataFrame, quantity: str) -> pd.DataFrame:
    return runs.merge(run_means(steps, quantity), on="run_id", how="inner", validate="one_to_one")


def _sweep_panel(runs: pd.DataFrame, quantity: str, styles: dict[str, Style], scale: str | None) -> Panel:
    dataset = str(runs["dataset"].iloc[0])
    values = bands(runs, ["dataset", "label", "alpha"], "value")
    values = values.rename(columns={"label": "series", "alpha": "x"}).assign(quantity=quantity)[VALUE_COLUMNS]
    draw = partial(
        draw_sweep,
        values=values,
        styles=styles,
        xlabel="power α of the distribution",
        ylabel=_LABELS[quantity],
    )
    synthetic = bool(runs["synthetic"].any())
    return Panel(f"{dataset}_{quantity}", dataset_name(dataset), draw, values, synthetic, scale)


def draw_sweep(axes: Axes, values: pd.DataFrame, styles: dict[str, Style], xlabel: str, ylabel: str) -> None:
    """Lines over a swept value on a base-2 logarithmic axis with ticks at the values that were run."""
    for name in in_order(values["series"]):
        draw_band_line(axes, values[values["series"] == name].sort_values("x"), styles[name])
    ticks = sorted(values["x"].unique())
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([format_number(value) for value in ticks])
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    top = max(1.0, float(values["high"].fillna(values["mean"]).max()) * 1.08)
    axes.set_ylim(0, min(top, 100.0) if "%" in ylabel else top)


def _curve_row(runs: pd.DataFrame, rounds: pd.DataFrame, styles: dict[str, Style]) -> tuple[Panel, ...]:
    dataset = str(runs["dataset"].iloc[0])
    return tuple(
        replace(
            curve_panel(runs[runs["alpha"] == alpha], rounds, "test_accuracy", styles),
            heading=f"{dataset_name(dataset)}, α = {format_number(alpha)}",
            key=f"{dataset}_accuracy_alpha_{format_number(alpha)}",
        )
        for alpha in _spread(sorted(runs["alpha"].unique()))
    )


def _spread(values: list[float]) -> list[float]:
    """At most five of the sorted values, including both ends."""
    if len(values) <= _MAX_CURVES:
        return values
    picks = {round(index * (len(values) - 1) / (_MAX_CURVES - 1)) for index in range(_MAX_CURVES)}
    return [values[index] for index in sorted(picks)]
