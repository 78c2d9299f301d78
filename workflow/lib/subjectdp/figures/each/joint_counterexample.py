"""The counterexample to joint noise over several local steps: the claimed ε, the released one, and an attack's bound.

Draws the cases of ``auditing.counterexample`` with the most frequent number of silos and sampling probability over the
local steps; the others are in the scenario's table.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter

from subjectdp.errors import DataError, expected
from subjectdp.figures.panels import VALUE_COLUMNS, LegendEntry, Panel, Sheet
from subjectdp.figures.style import Style
from subjectdp.results.inputs import FigureInputs

COLUMNS = (
    "silos",
    "local_steps",
    "sampling_probability",
    "noise_multiplier",
    "runs",
    "variance_claimed",
    "variance_remaining",
    "variance_measured",
    "epsilon_claimed",
    "epsilon_claimed_tight",
    "epsilon_released",
    "epsilon_own_noise",
    "lower_bound",
    "threshold",
    "true_positive_rate",
    "false_positive_rate",
)

_STYLES = {
    "claimed": Style("#D55E00", "o", "--"),
    "claimed_tight": Style("#E69F00", "v", ":"),
    "released": Style("#0072B2", "s", "-"),
    "lower_bound": Style("#000000", "^", "none"),
    "own_noise": Style("#009E73", "D", "-."),
}
_LEGEND = {
    "claimed": "claimed (Theorem 4.7)",
    "claimed_tight": "the same claim, tight",
    "released": "of what is released",
    "lower_bound": "measured: variance, and 95 % lower bound on ε",
    "own_noise": "each silo's own noise alone",
}
_VARIANCE = {
    "claimed": "variance_claimed",
    "released": "variance_remaining",
    "lower_bound": "variance_measured",
}
_EPSILON = {
    "claimed": "epsilon_claimed",
    "claimed_tight": "epsilon_claimed_tight",
    "released": "epsilon_released",
    "lower_bound": "lower_bound",
    "own_noise": "epsilon_own_noise",
}


def build(inputs: FigureInputs, name: str) -> Sheet:
    """Variance of the released sum and ε over the local steps.

    Raises:
        DataError: an empty table.
    """
    table = inputs.read("counterexample", COLUMNS)
    if table.empty:
        raise expected("cases of the counterexample", "none", "at least one", DataError)
    counts = table.groupby(["silos", "sampling_probability"]).size()
    silos, probability = counts.sort_values(kind="stable").index[-1]
    chosen = table[(table["silos"] == silos) & (table["sampling_probability"] == probability)]
    chosen = chosen.sort_values("local_steps")
    panels = (
        _panel("variance", "variance of the sum", "variance over C²", chosen, _VARIANCE),
        _panel("epsilon", "ε at δ = 1e-5", "ε", chosen, _EPSILON),
    )
    legend = tuple(LegendEntry(text, _STYLES[key]) for key, text in _LEGEND.items())
    runs = f"{int(chosen['runs'].iloc[0]):,}"
    notes = (
        f"{int(silos)} silos, sampling probability {probability:g}; each silo's own noise has ε = 5 by the paper",
        f"Measured on {runs} rounds with and as many without the target; a bound above the claim refutes it",
    )
    return Sheet(name, (panels,), legend, notes)


def _panel(key: str, heading: str, label: str, table: pd.DataFrame, columns: dict[str, str]) -> Panel:
    draw = partial(_draw, table=table, columns=columns, label=label)
    return Panel(key, heading, draw, _values(key, table, columns), synthetic=False)


def _values(key: str, table: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    parts = [
        pd.DataFrame(
            {
                "dataset": "",
                "quantity": key,
                "series": series,
                "x": table["local_steps"],
                "mean": table[column],
                "low": np.nan,
                "high": np.nan,
                "seeds": 1,
            }
        )
        for series, column in columns.items()
    ]
    return pd.concat(parts, ignore_index=True)[VALUE_COLUMNS]


def _draw(axes: Axes, table: pd.DataFrame, columns: dict[str, str], label: str) -> None:
    for series, column in columns.items():
        style = _STYLES[series]
        above = 3 if series == "lower_bound" else 2
        axes.plot(
            table["local_steps"],
            table[column],
            color=style.color,
            marker=style.marker,
            linestyle=style.line,
            zorder=above,
        )
    axes.set_xscale("log")
    axes.set_xticks([int(step) for step in table["local_steps"]])
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("local steps in one aggregation")
    axes.set_ylabel(label)
    if "variance" in label:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0.0)
