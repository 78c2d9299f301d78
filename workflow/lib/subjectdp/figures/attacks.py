"""What attacks prove: the audits' lower bounds on ε, and the counterexample to joint noise over several local steps."""

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
_CASES = {  # by series: look, words, and the columns of its variance and its ε
    "claimed": (Style("#D55E00", "o", "--"), "claimed (Theorem 4.7)", "variance_claimed", "epsilon_claimed"),
    "claimed_tight": (Style("#E69F00", "v", ":"), "the same claim, tight", None, "epsilon_claimed_tight"),
    "released": (Style("#0072B2", "s", "-"), "of what is released", "variance_remaining", "epsilon_released"),
    "lower_bound": (
        Style("#000000", "^", "none"),
        "measured: variance, and 95 % lower bound on ε",
        "variance_measured",
        "lower_bound",
    ),
    "own_noise": (Style("#009E73", "D", "-."), "each silo's own noise alone", None, "epsilon_own_noise"),
}


def audits(inputs: FigureInputs, name: str) -> Sheet:
    """One panel per kind of audit, one line per attack: the claimed ε, the attack's bound, the ε by accounting."""
    findings = inputs.read("audit", COLUMNS)
    named = findings[["algorithm", "variant"]].to_numpy()
    labels = pd.Series([algorithm_label(algorithm, None if pd.isna(v) else v) for algorithm, v in named])
    how = findings["mode"].where(findings["mode"] == "sound", "as published")
    kinds = findings["audit"].map(_KINDS).fillna("")
    findings = findings.assign(label=labels, series=labels + ", " + how + "\n" + kinds + findings["setting"])
    rows = [
        (_audit_panel(key, heading, findings[findings["audit"].isin(some)]),)
        for key, (heading, some) in AUDITS.items()
        if findings["audit"].isin(some).any()
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
    styles, places = styles_for(findings["label"]), range(len(findings) - 1, -1, -1)

    def draw(axes: Axes) -> None:
        parts.draw_rows(axes, list(findings["series"]))
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

    return Panel(key, heading, draw, values, bool(findings["synthetic"].any()))


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
    panels = (_case_panel("variance", "variance of the sum", chosen), _case_panel("epsilon", "ε at δ = 1e-5", chosen))
    runs = f"{int(chosen['runs'].iloc[0]):,}"
    notes = (
        f"{int(silos)} silos, sampling probability {probability:g}; each silo's own noise has ε = 5 by the paper",
        f"Measured on {runs} rounds with and as many without the target; a bound above the claim refutes it",
    )
    return Sheet(name, (panels,), tuple(LegendEntry(text, style) for style, text, *_ in _CASES.values()), notes)


def _case_panel(key: str, heading: str, table: pd.DataFrame) -> Panel:
    facts = pd.DataFrame({"dataset": "", "quantity": key, "x": table["local_steps"]})
    columns = {series: columns[key == "epsilon"] for series, (_, _, *columns) in _CASES.items()}
    values = pd.concat(
        [parts.plotted(facts, series=series, mean=table[column]) for series, column in columns.items() if column],
        ignore_index=True,
    )

    def draw(axes: Axes) -> None:
        for series, part in values.groupby("series", sort=False):
            style, above = _CASES[str(series)][0], 3 if series == "lower_bound" else 2
            axes.plot(part["x"], part["mean"], style.marker, color=style.color, linestyle=style.line, zorder=above)
        axes.set_xscale("log")
        axes.set_xticks(sorted(set(values["x"])))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("local steps in one aggregation")
        if key == "variance":
            axes.set_yscale("log")
            axes.set_ylabel("variance over C²")
        else:
            axes.set_ylim(bottom=0.0)
            axes.set_ylabel("ε")

    return Panel(key, heading, draw, values, synthetic=False)
