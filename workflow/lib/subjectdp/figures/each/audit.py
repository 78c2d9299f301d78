"""Audits: for each attack the claimed ε, the lower bound that the attack proves, and the ε by accounting."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from subjectdp.algorithms.registry import label as algorithm_label
from subjectdp.auditing.findings import COLUMNS
from subjectdp.figures.panels import VALUE_COLUMNS, LegendEntry, Panel, Sheet
from subjectdp.figures.style import Style, styles_for
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.labels import format_epsilon

PANELS = {
    "monte_carlo": ("Monte Carlo, worst-case subject", ("monte_carlo",)),
    "one_run": ("one training with canaries", ("one_run_subjects", "one_run_items")),
    "leaks": ("noise level alone", ("noise_level_leak", "divisor_leak")),
}
QUANTITIES = ("claimed_epsilon", "true_epsilon", "lower_bound")
_GREY, _FLOOR = "#404040", 0.3  # bounds below the floor are drawn at it
_KINDS = {"one_run_subjects": "subjects, ", "one_run_items": "single items, "}


def build(inputs: FigureInputs, name: str) -> Sheet:
    """One panel per kind of audit, one line per attack."""
    findings = inputs.read("audit", COLUMNS)
    labels = [
        algorithm_label(algorithm, None if pd.isna(variant) else variant)
        for algorithm, variant in zip(findings["algorithm"], findings["variant"], strict=True)
    ]
    findings = findings.assign(label=labels)
    findings = findings.assign(series=[_series(row) for _, row in findings.iterrows()])
    rows = [
        (_panel(key, heading, findings[findings["audit"].isin(kinds)]),)
        for key, (heading, kinds) in PANELS.items()
        if findings["audit"].isin(kinds).any()
    ]
    legend = (
        LegendEntry("lower bound, refutes the claim", Style(_GREY, ">", "none")),
        LegendEntry("lower bound, refutes nothing", Style(_GREY, ">", "none"), filled=False),
        LegendEntry("ε by accounting", Style(_GREY, "D", "none"), filled=False),
        LegendEntry("claimed ε", Style(_GREY, "", "--")),
    )
    heights = tuple(1.2 + 0.36 * panel.values["series"].nunique() for (panel,) in rows)
    notes = (
        "Bounds hold with 95 % confidence each; δ = 1e-5",
        "A bound saturates at about the logarithm of the number of runs or guesses",
    )
    return Sheet(name, tuple(rows), legend, notes, (), row_heights=heights, panel_width=7.2)


def _series(row: pd.Series) -> str:
    mode = "sound" if row["mode"] == "sound" else "as published"
    return f"{row['label']}, {mode}\n{_KINDS.get(row['audit'], '')}{row['setting']}"


def _panel(key: str, heading: str, findings: pd.DataFrame) -> Panel:
    colors = {label: style.color for label, style in styles_for(findings["label"]).items()}
    draw = partial(_draw, findings=findings, colors=colors)
    return Panel(key, heading, draw, _values(findings), bool(findings["synthetic"].any()))


def _values(findings: pd.DataFrame) -> pd.DataFrame:
    parts = [
        pd.DataFrame(
            {
                "dataset": findings["audit"],
                "quantity": "epsilon",
                "series": findings["series"].str.replace("\n", ", "),
                "x": quantity,
                "mean": findings[quantity],
                "low": np.nan,
                "high": np.nan,
                "seeds": 1,
            }
        )
        for quantity in QUANTITIES
    ]
    return pd.concat(parts, ignore_index=True)[VALUE_COLUMNS]


def _draw(axes: Axes, findings: pd.DataFrame, colors: dict[str, str]) -> None:
    places = range(len(findings) - 1, -1, -1)
    for place, (_, row) in zip(places, findings.iterrows(), strict=True):
        color, bound = colors[row["label"]], max(_FLOOR, float(row["lower_bound"]))
        refuted = row["verdict"] == "refuted"
        axes.plot([_FLOOR, bound], [place, place], color=color, linewidth=2.2, alpha=0.35)
        face = color if refuted else "white"
        axes.plot(
            [bound], [place], marker=">", color=color, markerfacecolor=face, markersize=7, linestyle="none"
        )
        _annotate(axes, bound, place, float(row["lower_bound"]))
        if np.isfinite(row["true_epsilon"]):
            axes.plot(
                [row["true_epsilon"]],
                [place],
                marker="D",
                color=color,
                markerfacecolor="none",
                linestyle="none",
            )
    _draw_claims(axes, [float(claim) for claim in findings["claimed_epsilon"]])
    axes.set_xscale("log")
    axes.set_ylim(-0.7, len(findings) - 0.3)
    axes.set_yticks(list(places), list(findings["series"]), fontsize=7)
    axes.set_xlabel("ε")
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_epsilon(value)))


def _draw_claims(axes: Axes, claims: list[float]) -> None:
    """A line at each attack's claim, from top to bottom, joined over neighbours with the same claim."""
    top = len(claims) - 0.3
    for place, (claim, below) in enumerate(zip(claims, [*claims[1:], float("nan")], strict=True)):
        bottom = len(claims) - 1.5 - place
        if below != claim:
            axes.plot([claim, claim], [bottom, top], color=_GREY, linestyle="--", linewidth=1.2)
            top = bottom


def _annotate(axes: Axes, x: float, y: float, value: float) -> None:
    axes.annotate(
        format_epsilon(value),
        (x, y),
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=7,
        color=_GREY,
    )
