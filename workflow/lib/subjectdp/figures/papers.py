"""The papers' figures: v1's Figures 1 to 3, v3's 1 to 3, and their mini-batches at full scale, from sampling alone.

For each data set: accuracy and loss over rounds, and histograms of mini-batches by their largest group of one subject's
items and by distinct subjects.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from subjectdp.data.statistics import Setting, paper_settings
from subjectdp.errors import DataError, expected
from subjectdp.figures import parts
from subjectdp.figures.panels import ALGORITHM_STYLES, Panel, Sheet, Style, styles_for
from subjectdp.figures.parts import METRICS, curve_panel
from subjectdp.results.collect import FigureInputs
from subjectdp.results.select import bands, sampling_runs, t_half_width
from subjectdp.results.shown_runs import dataset_name, datasets_in_order, in_order

COUNTED = {  # whose mini-batches are counted, in order of preference
    "largest_group": ("LocalGroupDP",),
    "subjects": ("HiGradAvgDP (v1)", "HiGradAvgDP (v3)", "LocalGroupDP"),
}
_SWEPT = {
    "final_accuracy": "final test accuracy (%)",
    "mean_largest_group": "mean largest group (items)",
    "mean_subjects": "mean distinct subjects",
}
AXIS_LABELS = {
    "largest_group": "largest subject group in a mini-batch (items)",
    "subjects": "distinct subjects in a mini-batch",
}
_INK = "#202020"
_MAX_BARS = 45
_MAX_ERROR_BARS = 12  # more would hide the histogram's shape
_MAX_CURVES = 5
_SCALE_STYLES = {"largest_group": ALGORITHM_STYLES["LocalGroupDP"], "subjects": ALGORITHM_STYLES["HiGradAvgDP (v1)"]}


def training_and_batches(inputs: FigureInputs, name: str) -> Sheet:
    """v1's Figure 1: four panels for each data set; DataError if there is none to draw."""
    runs, notes = inputs.shown_runs()
    rounds, steps, styles = inputs.read_rounds(), inputs.read_steps(), styles_for(runs["label"])
    rows = [_curves(part, rounds, styles) + _counts(part, steps, styles) for part in parts.by_dataset(runs)]
    return _sheet(name, rows, runs, notes)


def training(inputs: FigureInputs, name: str) -> Sheet:
    """v3's Figure 1: accuracy and loss over rounds; DataError if there is nothing to draw."""
    runs, notes = inputs.shown_runs()
    rounds, styles = inputs.read_rounds(), styles_for(runs["label"])
    return _sheet(name, [_curves(part, rounds, styles) for part in parts.by_dataset(runs)], runs, notes)


def small_femnist(inputs: FigureInputs, name: str) -> Sheet:
    """v1's Figure 3: the four panels, in two rows, of the FEMNIST runs; DataError if there are none."""
    runs, notes = inputs.shown_runs()
    runs = runs[runs["dataset"] == "femnist"]
    if runs.empty:
        raise expected("data sets of the scenario", "no femnist", "femnist for this figure", DataError)
    styles = styles_for(runs["label"])
    rows = [_curves(runs, inputs.read_rounds(), styles), _counts(runs, inputs.read_steps(), styles)]
    return _sheet(name, rows, runs, notes)


def group_sizes(inputs: FigureInputs, name: str) -> Sheet:
    """v3's Figure 2: mini-batches by their largest group; DataError if there is nothing to draw."""
    runs, notes = inputs.shown_runs()
    steps, styles = inputs.read_steps(), styles_for(runs["label"])
    panels = tuple(_counts(part, steps, styles)[0] for part in parts.by_dataset(runs))
    shown = {str(panel.values["series"].iloc[0]) for panel in panels}
    runs = runs[runs["label"].isin(shown)]
    counted = f"Mini-batches of {', '.join(sorted(shown))} over all silos and rounds"
    seeds = parts.seed_note(runs).replace("band", "bar")
    return Sheet(name, (panels,), (), (counted, seeds, *notes), tuple(runs["run_id"]))


def _curves(runs: pd.DataFrame, rounds: pd.DataFrame, styles: dict[str, Style]) -> list[Panel]:
    return [curve_panel(runs, rounds, metric, styles) for metric in METRICS]


def _counts(runs: pd.DataFrame, steps: pd.DataFrame, styles: dict[str, Style]) -> list[Panel]:
    """Bars of the mini-batches of a whole run by group size and by subjects, with a line at the mean."""
    panels = []
    for quantity, preferred in COUNTED.items():
        counted = sampling_runs(runs, preferred)
        values = counts_by_value(counted, steps, quantity)
        mean = float(run_means(steps[steps["run_id"].isin(counted["run_id"])], quantity)["value"].mean())
        draw = histogram(values, quantity, styles[in_order(counted["label"])[0]], mean)
        key = "group_size" if quantity == "largest_group" else "subjects"
        panels.append(parts.dataset_panel(counted, key, draw, values))
    return panels


def _sheet(name: str, rows: Sequence[Sequence[Panel]], runs: pd.DataFrame, notes: list[str]) -> Sheet:
    """A sheet with the algorithms' legend and the notes that every training figure carries."""
    told = (parts.seed_note(runs), parts.privacy_footnote(runs), _counted_note([p for row in rows for p in row]))
    legend = parts.privacy_legend(runs, styles_for(runs["label"]))
    return Sheet(name, tuple(map(tuple, rows)), legend, tuple(filter(None, (*told, *notes))), tuple(runs["run_id"]))


def _counted_note(panels: list[Panel]) -> str:
    """A note that names the runs whose mini-batches the panels count."""
    words = []
    for endings, name in ((("_group_size", "_largest_group"), "Group sizes"), (("_subjects",), "subjects")):
        labels = {str(panel.values["series"].iloc[0]) for panel in panels if panel.key.endswith(endings)}
        if labels:
            words.append(f"{name} counted in the runs of {' and '.join(in_order(labels))}")
    return ", ".join(words)


def uneven(inputs: FigureInputs, name: str) -> Sheet:
    """v1's Figure 2 = v3's Figure 3: for each data set accuracy, group size and subjects by α, then curves."""
    runs, notes = inputs.shown_runs()
    rounds, steps, styles = inputs.read_rounds(), inputs.read_steps(), styles_for(runs["label"])
    rows = [
        row
        for part in parts.by_dataset(runs)
        for row in (_sweep_row(part, steps, styles), _curve_row(part, rounds, styles))
    ]
    base = runs[runs["alpha"] == runs.groupby("dataset")["alpha"].transform("min")]
    seeds = parts.seed_note(runs.assign(place=runs["label"] + runs["alpha"].map(str)), "place")
    told = f"{seeds}. ε in the legend at α = {parts.written(base['alpha'])}"
    counted = _counted_note([panel for row in rows for panel in row])
    notes = [told, parts.privacy_footnote(base), counted, *notes]
    legend, run_ids = parts.privacy_legend(base, styles), tuple(runs["run_id"])
    return Sheet(name, tuple(rows), legend, tuple(notes), run_ids, row_height=2.1, panel_width=2.33)


def _sweep_row(runs: pd.DataFrame, steps: pd.DataFrame, styles: dict[str, Style]) -> tuple[Panel, ...]:
    tables = {"final_accuracy": runs.assign(value=runs["final_test_accuracy"] * 100)}
    places = runs.groupby("label")["alpha"].nunique()
    widest = runs[runs["label"].isin(places[places == places.max()].index)]  # run at as many α as any other
    for quantity, preferred in COUNTED.items():
        means = run_means(steps, quantity)
        counted = sampling_runs(widest, preferred)
        tables[f"mean_{quantity}"] = counted.merge(means, on="run_id", validate="one_to_one")
    return tuple(_sweep_panel(table, quantity, styles) for quantity, table in tables.items())


def _sweep_panel(runs: pd.DataFrame, quantity: str, styles: dict[str, Style]) -> Panel:
    values = bands(runs, ["dataset", "label", "alpha"], "value")
    values = parts.plotted(values.rename(columns={"label": "series", "alpha": "x"}), quantity=quantity)
    draw = partial(_draw_sweep, values=values, styles=styles, label=_SWEPT[quantity])
    return parts.dataset_panel(runs, quantity, draw, values, scale="accuracy" if quantity == "final_accuracy" else None)


def _draw_sweep(axes: Axes, values: pd.DataFrame, styles: dict[str, Style], label: str) -> None:
    """Lines over α on a base-2 logarithmic axis with ticks at the values that were run."""
    parts.draw_lines(axes, values, styles)
    axes.set_xscale("log", base=2)
    parts.ticks_at(axes, sorted(values["x"].unique()))
    axes.set_xlabel("power α of the distribution")
    axes.set_ylabel(label)
    top = max(1.0, float(values["high"].fillna(values["mean"]).max()) * 1.08)
    axes.set_ylim(0, min(top, 100.0) if "%" in label else top)


def _curve_row(runs: pd.DataFrame, rounds: pd.DataFrame, styles: dict[str, Style]) -> tuple[Panel, ...]:
    """Accuracy over rounds at five values of α at most, both ends among them."""
    found = sorted(runs["alpha"].unique())
    last, count = len(found) - 1, min(len(found), _MAX_CURVES)
    picks = sorted({round(index * last / max(1, count - 1)) for index in range(count)})
    panels = []
    for alpha in (found[pick] for pick in picks):
        named = {"words": f", α = {alpha:g}", "key": f"accuracy_alpha_{alpha:g}"}
        panels.append(curve_panel(runs[runs["alpha"] == alpha], rounds, "test_accuracy", styles, **named))
    return tuple(panels)


def at_paper_scale(inputs: FigureInputs, name: str) -> Sheet:
    """Mini-batches at the papers' numbers of subjects and items, from sampling alone; nothing is trained.

    A histogram for each setting at α = 1, and the mean over α for a data set with several. The papers' own numbers are
    marked (:func:`subjectdp.data.statistics.paper_settings`).
    """
    quantity = "largest_group" if name.startswith("group_sizes") else "subjects"
    table = inputs.read_statistics()
    drawn = {str(setting): part for setting, part in table.groupby("setting")}
    settings = [setting for setting in paper_settings() if setting.name in drawn]
    settings.sort(key=lambda setting: (_is_small(setting), setting.dataset, setting.alpha))
    panels = [_histogram(s, drawn[s.name], quantity) for s in settings if s.alpha == 1.0]
    for dataset in datasets_in_order(setting.dataset for setting in settings):
        swept = [s for s in settings if s.dataset == dataset and not _is_small(s)]
        if len({setting.alpha for setting in swept}) > 1:
            panels.append(_means(swept, drawn, quantity))
    least = int(table.groupby("setting")["step"].size().min())
    notes = (
        f"Sampling only, no training; at least {least:,} mini-batches a setting over its 16 silos",
        "Dotted lines and open circles: the papers' numbers (v1 sections 4.1 to 4.3)",
    )
    columns = len(panels) if len(panels) <= 3 else -(-len(panels) // 2)
    rows = tuple(tuple(panels[start : start + columns]) for start in range(0, len(panels), columns))
    return Sheet(name, rows, (), notes, panel_width=4.0)


def _is_small(setting: Setting) -> bool:
    return setting.name.startswith("small")


def _heading(setting: Setting) -> str:
    small = "Small-" if _is_small(setting) else ""
    return f"{small}{dataset_name(setting.dataset)}, {setting.subjects:,} subjects"


def _histogram(setting: Setting, part: pd.DataFrame, quantity: str) -> Panel:
    values, mean = shares(part, quantity, setting.dataset), float(part[quantity].mean())
    draw = histogram(values, quantity, _SCALE_STYLES[quantity], mean, getattr(setting.published, quantity))
    return Panel(setting.name, _heading(setting), draw, values, False)


def _means(settings: Sequence[Setting], drawn: dict[str, pd.DataFrame], quantity: str) -> Panel:
    """Means over α of one data set, and those that the papers state."""
    dataset = settings[0].dataset
    means = [float(drawn[setting.name][quantity].mean()) for setting in settings]
    facts = {"dataset": dataset, "series": dataset_name(dataset), "quantity": f"mean_{quantity}"}
    values = parts.plotted(pd.DataFrame({"x": [s.alpha for s in settings], "mean": means}), **facts)
    stated = {s.alpha: value for s in settings if (value := getattr(s.published, quantity)) is not None}

    def draw(axes: Axes) -> None:
        label = "mean " + AXIS_LABELS[quantity].replace(" in a mini-batch", "")
        _draw_sweep(axes, values, {facts["series"]: _SCALE_STYLES[quantity]}, label)
        for x, mean in zip(values["x"], values["mean"], strict=True):
            parts.write_beside(axes, f"{mean:.3g}", (x, mean), (0, -12), ha="center", va="top", color="black")
        if stated:
            axes.plot([*stated], [*stated.values()], "o", color="#202020", markersize=10, markerfacecolor="none")
            axes.set_ylim(0, max(axes.get_ylim()[1], 1.15 * max(stated.values())))

    return Panel(f"{dataset}_alpha", _heading(settings[0]), draw, values, False)


def run_means(steps: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Mean of ``quantity`` over the mini-batches of each run: columns run_id, value."""
    part = steps[steps["quantity"] == quantity]
    total = (part["value"] * part["minibatches"]).groupby(part["run_id"]).sum()
    count = part["minibatches"].groupby(part["run_id"]).sum()
    return (total / count).rename("value").rename_axis("run_id").reset_index()


def counts_by_value(runs: pd.DataFrame, steps: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Mini-batches by value of ``quantity``, mean over the runs' seeds; a value that a seed lacks counts as 0.

    ``x`` is the lower end of one of at most 45 bins of equal whole width, which is the name of the index. Columns
    :data:`VALUE_COLUMNS`. Raises DataError without mini-batches.
    """
    part = steps[(steps["quantity"] == quantity) & steps["run_id"].isin(runs["run_id"])]
    if part.empty:
        wanted = "some for the runs of this figure"
        raise expected(f"mini-batches counted by {quantity}", "none", wanted, DataError)
    table, width = _binned(
        part.pivot_table(index="value", columns="run_id", values="minibatches", aggfunc="sum", fill_value=0)
    )
    half = t_half_width(table.std(axis=1, ddof=1).to_numpy(), table.shape[1])
    mean = table.mean(axis=1).to_numpy()
    values = pd.DataFrame({"x": table.index.astype(float), "mean": mean, "low": mean - half, "high": mean + half})
    facts = {"quantity": f"minibatches_by_{quantity}", "series": runs["label"].iloc[0]}
    facts |= {"dataset": runs["dataset"].iloc[0], "seeds": table.shape[1]}
    return parts.plotted(values, **facts).rename_axis(str(width))


def shares(part: pd.DataFrame, quantity: str, dataset: str) -> pd.DataFrame:
    """Share (%) of one setting's mini-batches by value, in bins as :func:`counts_by_value` has them."""
    counts = part[quantity].value_counts()
    table, width = _binned(100.0 * counts / counts.sum())
    values = pd.DataFrame({"x": table.index.astype(float), "mean": table.to_numpy()})
    facts = {"dataset": dataset, "quantity": f"share_by_{quantity}", "series": part["setting"].iloc[0]}
    return parts.plotted(values, **facts).rename_axis(str(width))


def _binned(table: pd.Series | pd.DataFrame) -> tuple[Any, int]:
    """Sums over at most 45 bins of equal whole width, by their lower ends; and the width."""
    first, last = int(table.index.min()), int(table.index.max())
    width = -(-(last - first + 1) // _MAX_BARS)
    places = first + (table.index.to_numpy() - first) // width * width
    return table.groupby(places).sum().reindex(range(first, last + 1, width), fill_value=0), width


def histogram(
    values: pd.DataFrame, quantity: str, style: Style, mean: float, paper: float | None = None
) -> Callable[[Axes], None]:
    """Draws bars over the values of a quantity (a key of :data:`AXIS_LABELS`), with error bars if they are few.

    A solid line stands at ``mean``, a dotted one at the number that a ``paper`` prints.
    """
    width = int(str(values.index.name or 1))
    x, height = values["x"].to_numpy(dtype=float) + (width - 1) / 2, values["mean"].to_numpy(dtype=float)

    def draw(axes: Axes) -> None:
        axes.bar(x, height, width=0.86 * width, color=style.color, alpha=0.55, edgecolor=style.color, linewidth=0.6)
        if values["low"].notna().any() and len(values) <= _MAX_ERROR_BARS:
            error = np.clip(values["high"].to_numpy(dtype=float) - height, 0, None)
            axes.errorbar(x, height, yerr=error, fmt="none", ecolor=_INK, elinewidth=0.9, capsize=2)
        axes.axvline(mean, color=_INK, linewidth=1.2, label=f"mean {mean:.{1 if mean >= 100 else 2}f}")
        if paper is not None:
            axes.axvline(paper, color=_INK, linewidth=1.2, linestyle=":", label=f"paper {paper:g}")
        axes.set_ylim(0, parts.highest(values) * 1.22)
        axes.set_xlabel(AXIS_LABELS[quantity])
        share = str(values["quantity"].iloc[0]).startswith("share")
        axes.set_ylabel("share of mini-batches (%)" if share else "mini-batches in a run")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, min_n_ticks=1))
        axes.set_xlim(x.min() - 0.8 * width, x.max() + 0.8 * width)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.0f}" if value == round(value) else f"{value:g}")
        )
        axes.grid(visible=False, axis="x")
        axes.legend(loc="upper right", handlelength=1.6, fontsize=7.5)

    return draw
