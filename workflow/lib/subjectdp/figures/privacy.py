"""ε of the runs: claimed beside sound, test accuracy against it, and over the rounds.

A claim is what a paper states and no guarantee; sound is what an accountant proves for the same run.
"""

import json
import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from subjectdp.errors import DataError, expected
from subjectdp.figures import parts
from subjectdp.figures.panels import PAGE_WIDTH, LegendEntry, Panel, Sheet, Style, styles_for
from subjectdp.figures.parts import GREY
from subjectdp.results.collect import FigureInputs
from subjectdp.results.select import claimed_units, is_conditional, largest_of, mean_interval, steps_words
from subjectdp.results.shown_runs import CONDITIONAL_MARK, CONDITIONAL_NOTE, NO_IDS, format_epsilon, in_order

STATEMENTS = {
    "epsilon_as_published": ("claimed, no guarantee", "none"),
    "epsilon_sound_item": ("sound, item", "s"),
    "epsilon_sound_subject_one_silo": ("sound, subject at one silo", "^"),
    "epsilon_sound_subject": ("sound, subject over all its silos", "D"),
}
UNITS = {
    "subject": ("epsilon_sound_subject", "a subject over all its silos"),
    "item": ("epsilon_sound_item", "one item"),
}
_CLAIM = "epsilon_as_published"
_ASIDE = {"epsilon_sound_item": -0.24, "epsilon_sound_subject_one_silo": 0.24}  # rows
_HIDDEN = 0.25  # of marks' logarithms: closer ones cover one another
_APART = 0.11  # part of the axis that a tick's label takes
_TARGET = ", ε = "
_SOUND_MARK, _CLAIM_MARK = "accuracy_at_sound_epsilon", "accuracy_at_published_epsilon"
_RULES = {"rounds_over_sqrt_s": ", R/√s", "steps_times_s": ", s·T·R"}


def statements(inputs: FigureInputs, name: str) -> Sheet:
    """One panel per data set, one line per algorithm and mode; DataError without a private run."""
    private, notes = inputs.shown_runs()
    panels = [_statements_panel(part) for part in parts.by_dataset(private)]
    infinite = any(np.isinf(panel.values["mean"]).any() for panel in panels)
    told = (
        f"δ = {parts.written(private['delta'])}; the largest ε over the seeds"
        f"{'; ∞: no finite ε can be stated' if infinite else ''}; a missing marker: none is stated"
    )
    if is_conditional(private):
        notes = [CONDITIONAL_NOTE, *notes]
    looks = ((text, Style(GREY, mark, "--" if mark == "none" else "none")) for text, mark in STATEMENTS.values())
    legend = tuple(LegendEntry(*look) for look in looks)
    heights = tuple(1.0 + 0.27 * panel.values["series"].nunique() for panel in panels)
    rows, run_ids = tuple((panel,) for panel in panels), tuple(private["run_id"])
    return Sheet(name, rows, legend, (told, *notes), run_ids, panel_width=PAGE_WIDTH, row_heights=heights)


def series_names(runs: pd.DataFrame) -> pd.Series:
    """The label of each run, with mode, horizontal rule and local steps if the runs differ in them."""
    names = runs["label"].astype(str)
    if runs["mode"].nunique() > 1:
        names = names + np.where(runs["mode"] == "sound", ", sound", ", as published")
    published = runs["mode"] != "sound"
    if runs.loc[published, "horizontal"].nunique() > 1:
        names = names + runs["horizontal"].map(_RULES).fillna("").where(published, "")
    swept = runs.groupby("label")["local_steps"].transform("nunique") > 1
    return names + (", " + runs["local_steps"].map(steps_words)).where(swept, "")


def _natural(name: str) -> tuple[bool, str, int]:
    """A sort key: names that end in local steps by their number, an epoch last."""
    head, _, steps = name.rpartition(", ")
    number = int(steps.split()[0]) if steps.split()[0].isdigit() else 0
    return "epoch" in steps, head if number else name, number


def _statements_panel(runs: pd.DataFrame) -> Panel:
    named = runs.assign(series=series_names(runs))
    series = {
        str(name): label
        for label in in_order(named["label"])
        for name in sorted(named.loc[named["label"] == label, "series"].unique(), key=_natural)
    }
    styles = styles_for(series.values())
    values = pd.concat([_statement(named, statement) for statement in STATEMENTS], ignore_index=True)
    if values["mean"].isna().all():
        dataset = runs["dataset"].iloc[0]
        raise expected(f"privacy statements of {dataset}", "none", "at least one ε in the runs", DataError)
    conditional = {str(name) for name, part in named.groupby("series") if is_conditional(part)}

    def draw(axes: Axes) -> None:
        low, high = _finite_ends(values["mean"])
        edge = high * (high / low) ** 0.12 * 1.6
        for claim in sorted(set(values.loc[values["x"] == _CLAIM, "mean"])):
            axes.axvline(claim, color=GREY, linestyle="--", linewidth=1.2, zorder=1)
        for name, place in parts.draw_rows(axes, list(series)).items():
            part, color = values[values["series"] == name], styles[series[name]].color
            mark = CONDITIONAL_MARK if name in conditional else ""
            _draw_statements_of(axes, part.assign(shown=part["mean"].clip(upper=edge)), place, color, mark)
        axes.set_xscale("log")
        axes.set_xlim(low / (edge / low) ** 0.04 / 1.6, edge * 1.5)
        axes.set_xlabel("ε")
        ratio = edge / low
        parts.decades(axes.xaxis, (1.0, 2.0, 5.0) if ratio < 30 else (1.0, 3.0) if ratio < 3000 else (1.0,))

    return parts.dataset_panel(runs, "epsilon", draw, values)


def _statement(runs: pd.DataFrame, statement: str) -> pd.DataFrame:
    """One statement's largest ε over the seeds, by series; left out if a seed states none.

    Sound runs claim nothing: what a paper's accounting would make of their noise is no claim.
    """
    if statement == _CLAIM:
        runs = runs[runs["mode"] != "sound"]
    groups = runs.groupby(["dataset", "series"], sort=True)[statement]
    found = groups.agg(mean=largest_of, seeds="size").reset_index().astype({"mean": float})
    return parts.plotted(found.dropna(subset="mean"), quantity="largest_epsilon", x=statement)


def _draw_statements_of(axes: Axes, part: pd.DataFrame, place: int, color: str, mark: str) -> None:
    """One series' statements; ``mark`` is written behind a subject's ε."""
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    axes.plot([part["shown"].min(), part["shown"].max()], [place] * 2, color=color, linewidth=2.2, alpha=0.35)
    if set(part["x"]) == {_CLAIM}:
        parts.write_beside(axes, "no sound ε", (part["shown"].iloc[0], place), (6, 0), bbox=ground)
    sound = part[part["x"] != _CLAIM]
    for x, mean, statement in zip(part["shown"], part["mean"], part["x"], strict=True):
        hidden = (np.abs(np.log(sound["shown"] / x)) < _HIDDEN).sum() > 1  # marks at one ε stand below one another
        height = place + (_ASIDE.get(statement, 0.0) if hidden else 0.0)
        axes.plot([x], [height], marker=STATEMENTS[statement][1], color=color, markersize=6, zorder=3)
        if statement == "epsilon_sound_subject":
            parts.write_beside(axes, format_epsilon(mean) + mark, (x, place), (6, 0), bbox=ground)


def _finite_ends(values: pd.Series) -> tuple[float, float]:
    finite = values[np.isfinite(values.astype(float))]
    return (1.0, 10.0) if finite.empty else (float(finite.min()), float(finite.max()))


def accuracy(inputs: FigureInputs, name: str) -> Sheet:
    """Two panels per data set: test accuracy against the ε of a subject over all its silos, and of one item.

    Filled marks are at the sound ε, open ones guarantee nothing: at the published ε, or, without a finite ε, in a strip
    at the right. Runs at several target ε have a mark each.
    """
    runs, notes = inputs.shown_runs()
    claimed = claimed_units(runs)
    swept = runs.groupby("label")["epsilon"].transform("nunique") > 1
    series = series_names(runs) + (_TARGET + runs["epsilon"].map(format_epsilon)).where(swept, "")
    runs = runs.assign(series=series.where(claimed != "", runs["label"]), claimed=claimed)
    styles = styles_for(runs["label"])
    seeds = parts.seed_note(runs, "series").replace("band", "bar")
    told = f"{seeds}; δ = {parts.written(runs['delta'])}; ε: the largest over the seeds"
    strip = "Right strip: no noise, or no finite ε can be stated"
    marked = (CONDITIONAL_NOTE,) if is_conditional(runs) else ()
    looks = ((label, Style(styles[label].color, styles[label].marker, "none")) for label in in_order(runs["label"]))
    entries = [LegendEntry(*look) for look in looks]
    entries.append(LegendEntry("filled: provable ε", Style(GREY, "D", "none")))
    entries.append(LegendEntry("open: no guarantee (a claim, or none)", Style(GREY, "D", "none"), False))
    if (runs["mode"] == "sound").any():
        entries.append(LegendEntry("ring: run in sound mode", Style(GREY, "o", "none"), False))
    rows = tuple(tuple(_accuracy_panel(part, unit, styles) for unit in _units(part)) for part in parts.by_dataset(runs))
    notes = [told, strip, *marked, *notes]
    return Sheet(name, rows, tuple(entries), tuple(notes), tuple(runs["run_id"]), row_height=2.9)


def _units(runs: pd.DataFrame) -> list[str]:
    """The units of a data set's panels: items alone where nothing says whose they are."""
    return [unit for unit in UNITS if unit == "item" or (runs["subject_guarantee"] != NO_IDS).any()]


def _accuracy_panel(runs: pd.DataFrame, unit: str, styles: dict[str, Style]) -> Panel:
    values = _accuracy_values(runs, unit)
    facts = runs.groupby("series").first()
    looks = {str(name): (styles[row["label"]], row["mode"] == "sound") for name, row in facts.iterrows()}
    conditional = {str(name) for name, part in runs.groupby("series") if unit == "subject" and is_conditional(part)}
    draw = partial(_draw_accuracy, values=values, looks=looks, conditional=conditional)
    scale = f"accuracy_{runs['dataset'].iloc[0]}"
    return parts.dataset_panel(runs, unit, draw, values, f", {UNITS[unit][1]}", scale=scale)


def _accuracy_values(runs: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Accuracy of each series at its sound ε, and at the published one if a paper claims it for this unit.

    x is infinite if there is no finite ε, also if one seed has none.
    """
    rows = []
    for series, part in runs.groupby("series", sort=True):
        found = mean_interval(part["final_test_accuracy"] * 100)
        sound, published = largest_of(part[UNITS[unit][0]]), float(part[_CLAIM].max())
        places = {_SOUND_MARK: sound if math.isfinite(sound) else math.inf}
        # a run in sound mode has noise that is nobody's claim
        if math.isfinite(published) and part["claimed"].iloc[0] == unit and part["mode"].iloc[0] != "sound":
            places[_CLAIM_MARK] = published
        facts = {"series": series, "mean": found.mean, "low": found.low, "high": found.high}
        rows += [{**facts, "seeds": found.count, "quantity": kind, "x": x} for kind, x in places.items()]
    return parts.plotted(pd.DataFrame(rows), dataset=runs["dataset"].iloc[0])


def _draw_accuracy(
    axes: Axes, values: pd.DataFrame, looks: dict[str, tuple[Style, bool]], conditional: set[str]
) -> None:
    low, high = _finite_ends(values["x"])
    edge = max(high, 3 * low) * (max(high, 3 * low) / low) ** 0.16 * 1.3
    for series, part in values.groupby("series", sort=True):
        places = part["x"].clip(upper=edge)
        for (_, row), x in zip(part.iterrows(), places, strict=True):
            _draw_mark(axes, row, looks[str(series)], x)
            if series in conditional and row["quantity"] == _SOUND_MARK and math.isfinite(row["x"]):
                parts.write_beside(axes, CONDITIONAL_MARK, (x, row["mean"]), (4, 4), va="baseline", fontsize=8)
        if len(part) > 1:  # from the claim to what holds
            axes.plot(places, part["mean"], color=looks[str(series)][0].color, linewidth=1.0, alpha=0.45)
    _join_targets(axes, values, looks)
    axes.set_xscale("log")
    axes.set_xlim(low / (max(high, 3 * low) / low) ** 0.06 / 1.2, edge * (edge / low) ** 0.07 * 1.1)
    axes.axvspan(edge / (edge / low) ** 0.06, axes.get_xlim()[1], color="#EEEEEE", zorder=0)
    axes.set_ylim(0, min(100.0, max(1.0, 1.08 * parts.highest(values))))
    axes.set_xlabel("ε (smaller: better protected)")
    axes.set_ylabel("test accuracy (%)")
    claims = values.loc[values["quantity"] == _CLAIM_MARK, "x"]
    counts = claims.map(lambda claim: float(f"{claim:.2g}")).value_counts()
    _ticks(axes, (low, high, edge), sorted(counts.index, key=lambda claim: (-counts[claim], claim)))


def _join_targets(axes: Axes, values: pd.DataFrame, looks: dict[str, tuple[Style, bool]]) -> None:
    """Joins the marks of series that differ only in the target ε."""
    sound = values[(values["quantity"] == _SOUND_MARK) & np.isfinite(values["x"])]
    swept = sound[sound["series"].str.contains(_TARGET, regex=False)]
    for _, part in swept.groupby(swept["series"].str.partition(_TARGET, expand=False).str[0]):
        style, _ = looks[str(part["series"].iloc[0])]
        ordered = part.sort_values("x")
        axes.plot(ordered["x"], ordered["mean"], color=style.color, linestyle=":", linewidth=1.0, zorder=2)


def _draw_mark(axes: Axes, row: pd.Series, look: tuple[Style, bool], x: float) -> None:
    """A mark with its interval: filled at a finite sound ε, open at the claim or without one, ringed in sound mode."""
    (style, ringed), sound = look, row["quantity"] == _SOUND_MARK
    if sound and math.isfinite(row["low"]):
        axes.plot([x, x], [max(0.0, row["low"]), row["high"]], color=style.color, linewidth=1.2)
    filled = sound and math.isfinite(row["x"])
    # an open mark is larger and below: what holds stays in sight where it equals the claim
    size, above, face = (5.5, 3, style.color) if filled else (8.5, 2.5, "white")
    looks: list[dict[str, Any]] = [
        {"marker": style.marker, "color": style.color, "markerfacecolor": face, "markersize": size, "zorder": above}
    ]
    if ringed:
        looks.append({"marker": "o", "color": GREY, "markerfacecolor": "none", "markersize": 9.5, "zorder": 2})
    for each in looks:
        axes.plot([x], [row["mean"]], clip_on=False, **each)  # an accuracy of 0 % lies on the axis


def _ticks(axes: Axes, ends: tuple[float, float, float], claims: list[float]) -> None:
    """Ticks at the claims, at powers of ten, and "none" at the strip; overlapping ticks are left out.

    ``ends``: the lowest and the highest ε, and the place of the strip. Earlier ``claims`` take precedence.
    """
    low, high, edge = ends
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, math.ceil((last - first) / 6))
    places = [10.0**power for power in range(first, last + 1, step)]
    if high / low < 30:
        places = sorted({*places, *(3 * place for place in places)})
    left, right = axes.get_xlim()
    kept = [edge]
    for place in (*claims, *(place for place in places if left <= place <= high * 1.2)):
        if all(max(place / other, other / place) > (right / left) ** _APART for other in kept):
            kept.append(place)
    if len(kept) == 1:  # no claim, and no power of ten in sight
        kept.append(low)
    axes.xaxis.set_major_locator(FixedLocator(sorted(kept)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: "none" if value >= edge * 0.999 else format_epsilon(value))
    )


def over_rounds(inputs: FigureInputs, name: str) -> Sheet:
    """Sound ε after each round: two panels per data set, a subject over all its silos, and one item.

    Algorithms without a finite sound ε are named in a note. DataError if no run states a curve.
    """
    runs, notes = inputs.shown_runs()
    curves = _curves(runs)
    if curves.empty:
        wanted = "at least one that states ε over rounds"
        raise expected("runs to draw", sorted(set(runs["label"])), wanted, DataError)
    styles = styles_for(runs["label"])
    rows = tuple(
        tuple(_round_panel(part, curves, unit, styles) for unit in _units(part))
        for part in parts.by_dataset(runs[runs["dataset"].isin(curves["dataset"])])
    )
    marked = {label for label, part in runs.groupby("label") if is_conditional(part)}
    legend = [LegendEntry(f"{x}{CONDITIONAL_MARK * (x in marked)}", styles[x]) for x in in_order(curves["label"])]
    legend.append(LegendEntry("the target ε", Style(GREY, "none", "--")))
    told = [f"The largest ε over the seeds; δ = {parts.written(runs['delta'])}"]
    told += [CONDITIONAL_NOTE] * bool(marked)
    without = in_order(set(runs["label"]) - set(curves["label"]))
    if without:
        told.append(f"No finite sound ε, hence no line: {', '.join(without)}")
    return Sheet(name, rows, tuple(legend), (*told, *notes), tuple(runs["run_id"]), row_height=2.6)


def _curves(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per run, unit and number of rounds: dataset, label, unit, round, epsilon.

    Curves that would hold if noise and divisor were public constants are left out: they depend on data.
    """
    rows = []
    for dataset, label, text in runs[["dataset", "label", "epsilon_over_rounds"]].to_numpy():
        stated = json.loads(text)
        for unit in UNITS if stated and not stated["constant_noise_assumed"] else ():
            for round_, epsilon in zip(stated["rounds"], stated[unit] or (), strict=False):
                rows.append((dataset, label, unit, round_, np.nan if epsilon is None else float(epsilon)))
    table = pd.DataFrame(rows, columns=["dataset", "label", "unit", "round", "epsilon"])
    return table[table["epsilon"] > 0]


def _round_panel(runs: pd.DataFrame, curves: pd.DataFrame, unit: str, styles: dict[str, Style]) -> Panel:
    dataset = runs["dataset"].iloc[0]
    part = curves[(curves["dataset"] == dataset) & (curves["unit"] == unit)]
    found = part.groupby(["label", "round"], sort=True)["epsilon"].agg(mean=largest_of, seeds="size")
    found = found.reset_index().rename(columns={"label": "series", "round": "x"})
    values = parts.plotted(found, dataset=dataset, quantity=f"largest_sound_epsilon_{unit}")
    targets = sorted(runs.loc[np.isfinite(runs["epsilon"]), "epsilon"].unique())

    def draw(axes: Axes) -> None:
        parts.draw_lines(axes, values, styles)
        for target in targets:
            axes.axhline(target, color=GREY, linestyle="--", linewidth=1.2)
        axes.set_yscale("log")
        parts.rounds_axis(axes, values)
        axes.set_ylabel("sound ε")
        parts.decades(axes.yaxis, most=8)

    return parts.dataset_panel(runs, unit, draw, values, f", {UNITS[unit][1]}")
