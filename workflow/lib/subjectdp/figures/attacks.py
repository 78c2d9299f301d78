"""What attacks prove: the audits' lower bounds on ε, and the counterexample to joint noise over several local steps."""

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter

from subjectdp.algorithms.registry import label as algorithm_label
from subjectdp.auditing.findings import COLUMNS
from subjectdp.figures import parts
from subjectdp.figures.panels import LegendEntry, Panel, Sheet
from subjectdp.figures.parts import GREY
from subjectdp.figures.style import Style, styles_for
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.labels import format_epsilon

AUDITS = {
    "monte_carlo": ("Monte Carlo, worst-case subject", ("monte_carlo",)),
    "one_run": ("one training with canaries", ("one_run_subjects", "one_run_items")),
    "leaks": ("noise level alone", ("noise_level_leak", "divisor_leak")),
}
_FLOOR = 0.3  # bounds below the floor are drawn at it
_KINDS = {"one_run_subjects": "subjects, ", "one_run_items": "single items, "}
CASE_COLUMNS = (
    *("silos", "local_steps", "sampling_probability", "runs"),
    *("variance_claimed", "variance_remaining", "variance_measured"),
    *("epsilon_claimed", "epsilon_claimed_tight", "epsilon_released", "epsilon_own_noise", "lower_bound"),
)
"""Columns of the counterexample's table that are drawn."""
_CASES = {
    "claimed": (Style("#D55E00", "o", "--"), "claimed (Theorem 4.7)"),
    "claimed_tight": (Style("#E69F00", "v", ":"), "the same claim, tight"),
    "released": (Style("#0072B2", "s", "-"), "of what is released"),
    "lower_bound": (Style("#000000", "^", "none"), "measured: variance, and 95 % lower bound on ε"),
    "own_noise": (Style("#009E73", "D", "-."), "each silo's own noise alone"),
}
_VARIANCE = {"claimed": "variance_claimed", "released": "variance_remaining", "lower_bound": "variance_measured"}
_EPSILON = {
    "claimed": "epsilon_claimed",
    "claimed_tight": "epsilon_claimed_tight",
    "released": "epsilon_released",
    "lower_bound": "lower_bound",
    "own_noise": "epsilon_own_noise",
}


def audits(inputs: FigureInputs, name: str) -> Sheet:
    """One panel per kind of audit, one line per attack: the claimed ε, the attack's bound, the ε by accounting."""
    findings = inputs.read("audit", COLUMNS)
    findings = findings.assign(
        label=[
            algorithm_label(algorithm, None if pd.isna(variant) else variant)
            for algorithm, variant in findings[["algorithm", "variant"]].to_numpy()
        ],
        how=findings["mode"].where(findings["mode"] == "sound", "as published"),
        kind=findings["audit"].map(_KINDS).fillna(""),
    )
    series = findings["label"] + ", " + findings["how"] + "\n" + findings["kind"] + findings["setting"]
    findings = findings.assign(series=series)
    rows = [
        (_audit_panel(key, heading, findings[findings["audit"].isin(kinds)]),)
        for key, (heading, kinds) in AUDITS.items()
        if findings["audit"].isin(kinds).any()
    ]
    legend = (
        LegendEntry("lower bound, refutes the claim", Style(GREY, ">", "none")),
        LegendEntry("lower bound, refutes nothing", Style(GREY, ">", "none"), filled=False),
        LegendEntry("ε by accounting", Style(GREY, "D", "none"), filled=False),
        LegendEntry("claimed ε", Style(GREY, "", "--")),
    )
    heights = tuple(1.2 + 0.36 * panel.values["series"].nunique() for (panel,) in rows)
    notes = (
        "Bounds hold with 95 % confidence each; δ = 1e-5",
        "A bound saturates at about the logarithm of the number of runs or guesses",
    )
    return Sheet(name, tuple(rows), legend, notes, (), row_heights=heights, panel_width=7.2)


def _audit_panel(key: str, heading: str, findings: pd.DataFrame) -> Panel:
    named = findings.assign(series=findings["series"].str.replace("\n", ", "), dataset=findings["audit"])
    values = pd.concat(
        [
            parts.plotted(named, quantity="epsilon", x=quantity, mean=findings[quantity])
            for quantity in ("claimed_epsilon", "true_epsilon", "lower_bound")
        ],
        ignore_index=True,
    )
    draw = partial(_draw_audits, findings=findings)
    return Panel(key, heading, draw, values, bool(findings["synthetic"].any()))


def _draw_audits(axes: Axes, findings: pd.DataFrame) -> None:
    styles = styles_for(findings["label"])
    parts.draw_rows(axes, list(findings["series"]))
    places = range(len(findings) - 1, -1, -1)
    for place, (_, row) in zip(places, findings.iterrows(), strict=True):
        color, bound = styles[row["label"]].color, max(_FLOOR, float(row["lower_bound"]))
        axes.plot([_FLOOR, bound], [place, place], color=color, linewidth=2.2, alpha=0.35)
        face = color if row["verdict"] == "refuted" else "white"
        axes.plot([bound], [place], ">", color=color, markerfacecolor=face, markersize=7)
        text = format_epsilon(float(row["lower_bound"]))
        parts.write_beside(axes, text, (bound, place), (0, 6), ha="center", va="bottom", fontsize=7)
        if np.isfinite(row["true_epsilon"]):
            axes.plot([row["true_epsilon"]], [place], "D", color=color, markerfacecolor="none")
    _draw_claims(axes, [float(claim) for claim in findings["claimed_epsilon"]])
    axes.set_yticks(list(places), list(findings["series"]), fontsize=7)
    axes.set_xscale("log")
    axes.set_xlabel("ε")
    parts.decades(axes.xaxis, (1.0, 2.0, 5.0))


def _draw_claims(axes: Axes, claims: list[float]) -> None:
    """A line at each attack's claim, from top to bottom, joined over neighbours with the same claim."""
    top = len(claims) - 0.3
    for place, (claim, below) in enumerate(zip(claims, [*claims[1:], float("nan")], strict=True)):
        bottom = len(claims) - 1.5 - place
        if below != claim:
            axes.plot([claim, claim], [bottom, top], color=GREY, linestyle="--", linewidth=1.2)
            top = bottom


def counterexample(inputs: FigureInputs, name: str) -> Sheet:
    """Variance of the released sum and ε over the local steps, claimed, released, and an attack's bound.

    Draws the cases of ``auditing.counterexample`` with the most frequent number of silos and sampling probability; the
    others are in the scenario's table. Raises DataError for an empty table.
    """
    table = inputs.read("counterexample", CASE_COLUMNS)
    counts = table.groupby(["silos", "sampling_probability"]).size()
    silos, probability = counts.sort_values(kind="stable").index[-1]
    chosen = table[(table["silos"] == silos) & (table["sampling_probability"] == probability)]
    chosen = chosen.sort_values("local_steps")
    panels = (
        _case_panel("variance", "variance of the sum", chosen, _VARIANCE),
        _case_panel("epsilon", "ε at δ = 1e-5", chosen, _EPSILON),
    )
    runs = f"{int(chosen['runs'].iloc[0]):,}"
    notes = (
        f"{int(silos)} silos, sampling probability {probability:g}; each silo's own noise has ε = 5 by the paper",
        f"Measured on {runs} rounds with and as many without the target; a bound above the claim refutes it",
    )
    return Sheet(name, (panels,), tuple(LegendEntry(text, style) for style, text in _CASES.values()), notes)


def _case_panel(key: str, heading: str, table: pd.DataFrame, columns: dict[str, str]) -> Panel:
    facts = pd.DataFrame({"dataset": "", "quantity": key, "x": table["local_steps"]})
    tables = [parts.plotted(facts, series=series, mean=table[column]) for series, column in columns.items()]
    values = pd.concat(tables, ignore_index=True)
    return Panel(key, heading, partial(_draw_cases, values=values), values, synthetic=False)


def _draw_cases(axes: Axes, values: pd.DataFrame) -> None:
    for series, part in values.groupby("series", sort=False):
        style, _ = _CASES[str(series)]
        above = 3 if series == "lower_bound" else 2
        x, mean = part["x"], part["mean"]
        axes.plot(x, mean, style.marker, color=style.color, linestyle=style.line, zorder=above)
    axes.set_xscale("log")
    axes.set_xticks(sorted(set(values["x"])))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("local steps in one aggregation")
    if values["quantity"].iloc[0] == "variance":
        axes.set_yscale("log")
        axes.set_ylabel("variance over C²")
    else:
        axes.set_ylim(bottom=0.0)
        axes.set_ylabel("ε")
