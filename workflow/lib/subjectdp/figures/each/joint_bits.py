"""Panels of integer noise: accuracy and ε of joint noise by the bits that gradients are rounded to."""

from __future__ import annotations

import json
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from subjectdp.figures.curves import draw_band_line
from subjectdp.figures.panels import VALUE_COLUMNS, LegendEntry, Panel
from subjectdp.figures.style import Style
from subjectdp.results.intervals import bands
from subjectdp.results.labels import dataset_name

INTEGERS, REALS = "Skellam noise", "Gaussian noise, no rounding"
STYLES = {INTEGERS: Style("#7b3294", "o", "-"), REALS: Style("#404040", "none", "--")}
LEGEND = tuple(LegendEntry(name, style) for name, style in STYLES.items())
_METRICS = {
    "final_test_accuracy": ("final_accuracy", "test accuracy (%)", 100.0),
    "epsilon_sound_item": ("epsilon_item", "sound ε, item", 1.0),
}


def bits_row(runs: pd.DataFrame, integers: pd.DataFrame) -> tuple[Panel, ...]:
    """Accuracy and ε over bits for one data set's runs with Skellam noise, beside otherwise equal Gaussian runs.

    ``runs``: all runs of the data set, for the Gaussian ones; ``integers``: those with Skellam noise.
    """
    table = integers.assign(series=INTEGERS, x=integers["joint_bits"])
    alike = {_but_noise(text) for text in integers["setting"]}
    real = runs[(runs["joint_noise"] == "gaussian") & runs["setting"].map(_but_noise).isin(alike)]
    ends = (table["x"].min(), table["x"].max())  # runs without rounding do not depend on the bits
    table = pd.concat([table, *(real.assign(series=REALS, x=bits) for bits in dict.fromkeys(ends))])
    return tuple(_panel(table, metric) for metric in _METRICS)


def _but_noise(setting: str) -> str:
    """The configuration without seed and kind of noise, which compared runs have in common."""
    content = json.loads(setting)
    content["joint"] = {key: value for key, value in content["joint"].items() if key not in ("noise", "bits")}
    return json.dumps(content, sort_keys=True)


def _panel(table: pd.DataFrame, metric: str) -> Panel:
    quantity, label, factor = _METRICS[metric]
    dataset = str(table["dataset"].iloc[0])
    values = bands(table.assign(value=table[metric] * factor), ["dataset", "series", "x"], "value")
    values = values.assign(quantity=quantity)[VALUE_COLUMNS]
    return Panel(
        key=f"{dataset}_{quantity}_by_bits",
        heading=f"{dataset_name(dataset)}, rounded gradients",
        draw=partial(_draw, values=values, ylabel=label),
        values=values,
        synthetic=bool(table["synthetic"].any()),
    )


def _draw(axes: Axes, values: pd.DataFrame, ylabel: str) -> None:
    for name, style in STYLES.items():
        part = values[values["series"] == name].sort_values("x")
        if not part.empty:
            draw_band_line(axes, part, style)
    axes.xaxis.set_major_locator(FixedLocator(sorted(values["x"].unique())))
    axes.set_xlabel("bits of a clipped gradient's grid")
    axes.set_ylabel(ylabel)
    axes.set_ylim(0, max(1e-3, float(values["high"].fillna(values["mean"]).max()) * 1.15))
