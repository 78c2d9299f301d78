"""Figures of measurements beside the scenario's runs: audits, a counterexample, excess loss, noise of the average."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter

from subjectdp.algorithms.registry import label as algorithm_label
from subjectdp.errors import DataError, expected
from subjectdp.figures import parts
from subjectdp.figures.panels import LegendEntry, Panel, Sheet, Style, styles_for
from subjectdp.figures.parts import GREY
from subjectdp.plan.plan import PrivacyUnit
from subjectdp.results.collect import FigureInputs
from subjectdp.results.select import bands
from subjectdp.results.shown_runs import format_epsilon, in_order
from subjectdp.utility import EMPIRICAL, EXCESS_COLUMNS, NOISE_COLUMNS, PAPERS, POPULATION, SCENARIO

AUDITS = {
    "monte_carlo": ("Monte Carlo, worst-case subject", ("monte_carlo",)),
    "one_run": ("one training with canaries", ("one_run_subjects", "one_run_items")),
    "leaks": ("noise level alone", ("noise_level_leak", "divisor_leak")),
}
AUDIT_COLUMNS = (
    *("audit", "algorithm", "variant", "mode", "setting", "claimed_epsilon", "true_epsilon", "lower_bound"),
    *("verdict", "synthetic"),
)
"""Columns of the audits' findings that are drawn."""
_FLOOR = 0.3  # bounds below the floor are drawn at it
_KINDS = {"one_run_subjects": "subjects, ", "one_run_items": "single items, "}
CASE_COLUMNS = (
    *("silos", "local_steps", "sampling_probability", "runs"),
    *("variance_claimed", "variance_remaining", "variance_measured"),
    *("epsilon_claimed", "epsilon_claimed_tight", "epsilon_released", "epsilon_own_noise", "lower_bound"),
)
"""Columns of the counterexample's table that are drawn."""
_MEASURED = "measured: variance, and 95 % lower bound on ε"
_CASES = {  # by series: look, words, and the columns of its variance and its ε
    "claimed": (Style("#D55E00", "o", "--"), "claimed (Theorem 4.7)", "variance_claimed", "epsilon_claimed"),
    "claimed_tight": (Style("#E69F00", "v", ":"), "the same claim, tight", None, "epsilon_claimed_tight"),
    "released": (Style("#0072B2", "s", "-"), "of what is released", "variance_remaining", "epsilon_released"),
    "lower_bound": (Style("#000000", "^", "none"), _MEASURED, "variance_measured", "lower_bound"),
    "own_noise": (Style("#009E73", "D", "-."), "each silo's own noise alone", None, "epsilon_own_noise"),
}
MARKS = {
    "excess": ("measured", "o", True),
    "bound": ("bound, with the noise that was added", "D", False),
    "bound_printed": ("bound to the letter of the theorem", "s", False),
}
_DOTS = (0, (1, 1))


def audits(inputs: FigureInputs, name: str) -> Sheet:
    """One panel per kind of audit, one line per attack: the claimed ε, the attack's bound, the ε by accounting."""
    findings = inputs.read("audit", AUDIT_COLUMNS)
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
    drawn = ("claimed_epsilon", "true_epsilon", "lower_bound")
    tables = [parts.plotted(named, quantity="epsilon", x=each, mean=findings[each]) for each in drawn]
    values = pd.concat(tables, ignore_index=True)
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
        middles = np.array(places)
        axes.vlines(
            findings["claimed_epsilon"], middles - 0.5, middles + 0.5, color=GREY, linestyle="--", linewidth=1.2
        )
        axes.set_yticks(list(places), list(findings["series"]), fontsize=7)
        axes.set_xscale("log")
        axes.set_xlabel("ε")
        parts.decades(axes.xaxis, (1.0, 2.0, 5.0))

    return Panel(key, heading, draw, values, bool(findings["synthetic"].any()))


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


def excess_loss(inputs: FigureInputs, name: str) -> Sheet:
    """Empirical excess over the steps with its bound, and population excess at the last step with both bounds."""
    table = inputs.read("utility", EXCESS_COLUMNS)
    styles = styles_for(table["label"])
    legend = [LegendEntry(label, styles[label]) for label in in_order(table["label"])]
    legend.append(LegendEntry("lines, thin: the bound", Style(GREY, "", _DOTS)))
    for text, marker, filled in MARKS.values():
        legend.append(LegendEntry(f"marks: {text}", Style(GREY, marker, "none"), filled))
    seeds, row = table["seed"].nunique(), table.iloc[0]
    told = f"Mean of {seeds} seeds, band and bar: 95 % t-interval" if seeds > 1 else "One seed: no band"
    notes = (
        f"{told}; logistic regression with d = {int(row['parameters']):,}, "
        f"L = √2, M = {row['radius']:g} on {int(row['items']):,} items of {int(row['subjects']):,} subjects, "
        f"one silo, B = {int(row['batch_size'])}, ε = {float(table['epsilon'].max()):g}",
        "Excess over the least loss in the ball, whose certified gap counts as excess",
    )
    panels = (_over_steps(table[table["quantity"] == EMPIRICAL], styles), _at_the_end(table, styles))
    return Sheet(name, (panels,), tuple(legend), notes, (), row_height=3.3, panel_width=4.9)


def _over_steps(table: pd.DataFrame, styles: dict[str, Style]) -> Panel:
    by = ["dataset", "label", "steps"]
    tables = [bands(table, by, column).assign(quantity=f"empirical_{column}") for column in ("excess", "bound")]
    values = parts.plotted(pd.concat(tables).rename(columns={"label": "series", "steps": "x"}))

    def draw(axes: Axes) -> None:
        for name in in_order(values["series"]):
            part = values[values["series"] == name].sort_values("x")
            excess = part[part["quantity"] == "empirical_excess"]
            parts.draw_band_line(axes, excess, styles[name], most_marks=-(-len(excess) // 2))
            bound = part[part["quantity"] == "empirical_bound"]
            axes.plot(bound["x"], bound["mean"], color=styles[name].color, linestyle=_DOTS, linewidth=1.1)
        axes.set_yscale("log")
        parts.rounds_axis(axes, values, "step")
        axes.set_ylabel("excess empirical loss (nats)")
        parts.decades(axes.yaxis, most=8)

    return parts.dataset_panel(table, "steps", draw, values, ", training items")


def _at_the_end(table: pd.DataFrame, styles: dict[str, Style]) -> Panel:
    last = table[table["last"] & (table["quantity"] == POPULATION)]
    order = in_order(last["label"])
    tables = [
        bands(last[last[column].notna()], ["dataset", "label"], column).assign(quantity=f"population_{column}")
        for column in MARKS
    ]
    values = pd.concat(tables).rename(columns={"label": "series"})
    values = parts.plotted(values, x=values["series"].map(order.index))

    def draw(axes: Axes) -> None:
        for name, place in parts.draw_rows(axes, order).items():
            part, color = values[values["series"] == name], styles[name].color
            axes.plot([part["mean"].min(), part["mean"].max()], [place] * 2, color=color, linewidth=2.0, alpha=0.35)
            for mean, low, high, quantity in part[["mean", "low", "high", "quantity"]].to_numpy():
                _, marker, filled = MARKS[quantity.removeprefix("population_")]
                face, above = (color, False) if filled else ("white", True)
                axes.plot([mean], [place], marker, color=color, markerfacecolor=face, markersize=6.5)
                if filled and np.isfinite(low):
                    axes.plot([low, high], [place, place], color=color, linewidth=1.2)
                offset, look = (0, 7 if above else -8), {"ha": "center", "va": "bottom" if above else "top"}
                parts.write_beside(axes, format_epsilon(float(f"{mean:.2g}")), (mean, place), offset, **look)
        axes.set_xscale("log")
        axes.set_xlabel("excess population loss (nats)")
        parts.decades(axes.xaxis, most=8)

    return parts.dataset_panel(table, "population", draw, values, ", test items")


def noise(inputs: FigureInputs, name: str) -> Sheet:
    """Noise on the averaged gradient in clip norms: as planned, and as measured in two rounds.

    A panel for the runs' own schedule and one for the papers'; a row per algorithm. DataError for several ε.
    """
    table = inputs.read("noise", NOISE_COLUMNS)
    if table["epsilon"].nunique() > 1 or table.duplicated(["dataset", "label", "schedule"]).any():
        allowed = "one ε, and each algorithm once a data set and schedule; select them for this figure"
        raise expected("noise of the figure", table[["label", "epsilon"]].to_dict("list"), allowed, DataError)
    rows = tuple(
        tuple(_noise_panel(part[part["schedule"] == schedule], schedule) for schedule in (SCENARIO, PAPERS))
        for _, part in table.groupby("dataset", sort=True)
    )
    legend = (
        LegendEntry("by the plan", Style(GREY, "D", "none"), filled=False),
        LegendEntry("measured: two rounds that differ in the noise alone", Style(GREY, "o", "none")),
    )
    height = 1.2 + 0.29 * table["label"].nunique()
    return Sheet(name, rows, legend, _noise_notes(table), row_height=height, panel_width=5.6)


def _noise_notes(table: pd.DataFrame) -> tuple[str, ...]:
    at = f"({table['epsilon'].iloc[0]:g}, {parts.written(table['delta'])})"
    told = (
        f"Sound noise at {at}, of a subject over all its silos; LocalItemDP: of one item",
        "×: over LocalItemDP's; right: the papers' rounds, steps and sampling fraction",
        f"Measured over {int(table['coordinates'].min()):,} coordinates or more",
    )
    predicted, own = (
        ", ".join(f"{int(number):,}" for number in sorted(table[name].dropna().unique()))
        for name in ("predicted_subjects", "subjects")
    )
    if not predicted:
        return told
    first = f"PREDICTED NOISE: of {predicted} subjects, in runs that have {own}; an experiment, no guarantee"
    return (first, *told)


def _noise_panel(part: pd.DataFrame, schedule: str) -> Panel:
    order = in_order(part["label"])
    words = ", own schedule" if schedule == SCENARIO else ", 100 rounds of 50 steps"
    predicted = part["predicted_subjects"].dropna()
    if not predicted.empty:
        words += f", noise of {int(predicted.max()):,} subjects"
    named = part.rename(columns={"label": "series"}).assign(x=part["label"].map(order.index))
    tables = [parts.plotted(named, quantity=f"noise_{kind}", mean=part[kind]) for kind in ("planned", "measured")]
    values, styles = pd.concat(tables, ignore_index=True), styles_for(order)
    reference = float(part.loc[part["unit"] == PrivacyUnit.ITEM.value, "planned"].min())  # NaN without one

    def draw(axes: Axes) -> None:
        table = values.set_index(["series", "quantity"])["mean"]
        for name, place in parts.draw_rows(axes, order).items():
            planned, measured = float(table[name, "noise_planned"]), float(table[name, "noise_measured"])
            color = styles[name].color
            axes.plot([planned], [place], "D", color=color, markerfacecolor="none", markersize=10)
            axes.plot([measured], [place], "o", color=color, markersize=4.5)
            if np.isfinite(reference):
                ratio = planned / reference
                text = f"{float(f'{ratio:.2g}'):,.0f}" if ratio >= 9.95 else f"{ratio:.1f}"
                parts.write_beside(axes, f"× {text}", (planned, place), (10, 0))
        axes.set_xscale("log")
        low, high = float(values["mean"].min()), float(values["mean"].max())
        axes.set_xlim(low / 2, high * max(4.0, (high / low) ** 0.25))
        axes.set_xlabel("std of the noise on the averaged gradient / C")
        parts.decades(axes.xaxis, most=7)

    return parts.dataset_panel(part, schedule, draw, values, words)
