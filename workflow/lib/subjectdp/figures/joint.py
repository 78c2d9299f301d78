"""Joint noise by a trusted aggregator: our runs over rounds, and the joint-noise paper's Figures 1 to 3."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from subjectdp.errors import DataError, expected
from subjectdp.figures import parts
from subjectdp.figures.panels import LegendEntry, Panel, Sheet, Style, sequence_styles
from subjectdp.figures.parts import METRICS, curve_panel, draw_curves
from subjectdp.results.collect import FigureInputs
from subjectdp.results.select import bands, choose_setting, largest_of, steps_words
from subjectdp.results.shown_runs import Shown, require_one_setting

_JOINT, _LOCAL = "joint_noise", "LocalItemDP"
_ONCE, _OWN = "one noised update", f", {_LOCAL}"
_SKELLAM, _GAUSSIAN = "Skellam noise", "Gaussian noise, no rounding"
_BITS_STYLES = {_SKELLAM: Style("#7b3294", "o", "-"), _GAUSSIAN: Style("#404040", "none", "--")}
_BITS_METRICS = {
    "final_test_accuracy": ("final_accuracy", "test accuracy (%)", 100.0),
    "epsilon_sound_item": ("epsilon_item", "sound ε, item", 1.0),
}
_DATASETS = {"joint_figure2": "cifar10", "joint_figure3": "acs_income"}
_PLACES = ("best round", "last round")


def over_rounds(inputs: FigureInputs, name: str) -> Sheet:
    """A row per data set: accuracy, with LocalItemDP's of the same steps dotted if it was run, and loss of joint noise.

    Further rows, if the scenario has such runs: updates clipped and noised once, by the number of silos, and integer
    noise by the bits of its grid. Raises DataError without a run of joint noise.
    """
    runs = _with_kinds(inputs.read_runs())
    steps, notes = _noised_steps(runs)
    updates = _with_series(runs[runs["kind"] == "update"], f", {_ONCE}")
    # noise on the mean of updates falls with the number of silos
    updates["series"] += ", " + updates["silos"].astype(str) + " silos"
    require_one_setting(updates.to_dict("records"), ("dataset", "series"))
    integers, shown = runs[runs["kind"] == "integers"], pd.concat([steps, updates])
    order = sorted(set(shown["series"]), key=_steps_key)
    styles, rounds = _step_styles(order), inputs.read_rounds()
    rows = [
        _row(part[part["dataset"] == dataset], rounds, styles, kind)
        for kind, part in (("", steps), (_ONCE, updates))
        for dataset in part.loc[part["joint"], "dataset"].unique()
    ]
    rows += [_bits_row(runs, part) for part in parts.by_dataset(integers)]
    if not steps["joint"].all():
        notes = [f"{_LOCAL}: each silo's own noise at the same ε for an item", *notes]
    joint = shown[shown["joint"]]
    told = joint if not joint.empty else integers.assign(series="")
    legend = list(parts.privacy_legend(shown, styles, "series", order))
    if len(integers):
        legend += [LegendEntry(text, style) for text, style in _BITS_STYLES.items()]
    notes = [parts.seed_note(told, "series"), parts.privacy_footnote(told), *notes]
    run_ids = tuple(dict.fromkeys([*shown["run_id"], *integers["run_id"]]))
    return Sheet(name, tuple(rows), tuple(legend), tuple(notes), run_ids)


def _with_kinds(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of joint noise (column ``joint``) and those beside it, with the kind of panels that show them."""
    _require_joint(runs)
    kind = np.where(runs["joint_noise"] == "skellam", "integers", "steps")
    kind = np.where(runs["joint_clipping"] == "update", "update", kind)
    runs = runs.assign(joint=runs["algorithm"] == _JOINT, kind=kind)
    return runs[runs["joint"] | (runs["label"] == _LOCAL)]


def _require_joint(runs: pd.DataFrame) -> None:
    if not (runs["algorithm"] == _JOINT).any():
        raise expected("algorithms of the scenario", f"no {_JOINT}", f"{_JOINT} for this figure", DataError)


def _noised_steps(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Runs of one setting that add noise in every local step; none if all runs are of another kind."""
    steps = runs[runs["kind"] == "steps"]
    if steps.empty:
        return _with_series(steps), []
    chosen, notes = choose_setting(steps, Shown(vary=("local_steps",)))
    if len(steps) < len(runs):  # other panels show the runs that these notes call left out
        notes = [f"Panels of noised steps, {note}" for note in notes]
    return _with_series(chosen), notes


def _with_series(runs: pd.DataFrame, more: str = "") -> pd.DataFrame:
    words = runs["local_steps"].map(steps_words).astype(str) + f" a round{more}"
    return runs.assign(series=words.where(runs["joint"], words + _OWN))


def _steps_key(series: str) -> tuple[bool, bool, bool, int, int]:
    silos = int(series.split()[-2]) if _ONCE in series else 0
    return _ONCE in series, series.endswith(_OWN), "epoch" in series, int(series.split()[0]), silos


def _step_styles(order: list[str]) -> dict[str, Style]:
    """A colour for each number of steps; LocalItemDP's lines are dotted, in the colour of the same steps."""
    steps = list(dict.fromkeys(series.removesuffix(_OWN) for series in order))
    known = dict(zip(steps, sequence_styles(len(steps)), strict=True))
    dotted = {series: replace(known[series.removesuffix(_OWN)], line=":") for series in order}
    return {series: dotted[series] if series.endswith(_OWN) else known[series] for series in order}


def _row(runs: pd.DataFrame, rounds: pd.DataFrame, styles: dict[str, Style], kind: str) -> tuple[Panel, ...]:
    panels = []
    for metric, (word, *_) in METRICS.items():
        part = runs if word == "accuracy" else runs[runs["joint"]]
        words, key = f", {kind or 'joint noise'}", f"{word}{'_updates' if kind else ''}"
        # A scale of its own: with few silos the loss of noised updates explodes.
        scale = f"{word}_{runs['dataset'].iloc[0]}{kind}"
        panels.append(curve_panel(part, rounds, metric, styles, "series", words=words, key=key, scale=scale))
    return tuple(panels)


def _bits_row(runs: pd.DataFrame, integers: pd.DataFrame) -> tuple[Panel, ...]:
    """Accuracy and ε over bits for one data set's runs with Skellam noise, beside otherwise equal Gaussian runs.

    ``runs``: all runs, for the Gaussian ones; ``integers``: those of the data set with Skellam noise.
    """
    table = integers.assign(series=_SKELLAM, x=integers["joint_bits"])
    alike = set(integers["setting"].map(_but_noise))
    real = runs[(runs["joint_noise"] == "gaussian") & runs["setting"].map(_but_noise).isin(alike)]
    both = pd.concat([integers, real])
    both = both.assign(setting=both["setting"].map(_but_noise))
    require_one_setting(both.to_dict("records"), ("joint_noise", "joint_bits"))
    ends = (table["x"].min(), table["x"].max())  # runs without rounding do not depend on the bits
    table = pd.concat([table, *(real.assign(series=_GAUSSIAN, x=bits) for bits in dict.fromkeys(ends))])
    return tuple(_bits_panel(table, metric) for metric in _BITS_METRICS)


def _but_noise(setting: str) -> str:
    """The setting without the kind of noise, which compared runs have in common."""
    content = json.loads(setting)
    left_out = ("noise", "bits")
    content["joint"] = {key: value for key, value in content["joint"].items() if key not in left_out}
    return json.dumps(content, sort_keys=True)


def _largest(runs: pd.DataFrame, by: list[str]) -> pd.Series:
    """For each run the largest ε of an item over the seeds of its place, which holds for all of them."""
    return runs.groupby(by)["epsilon_sound_item"].transform(largest_of)


def _bits_panel(table: pd.DataFrame, metric: str) -> Panel:
    quantity, label, factor = _BITS_METRICS[metric]
    value = _largest(table, ["series", "x"]) if metric.startswith("epsilon") else table[metric] * factor
    values = bands(table.assign(value=value), ["dataset", "series", "x"], "value")
    values = parts.plotted(values, quantity=quantity)

    def draw(axes: Axes) -> None:
        parts.draw_lines(axes, values, _BITS_STYLES)
        axes.xaxis.set_major_locator(FixedLocator(sorted(values["x"].unique())))
        axes.set_xlabel("bits of a clipped gradient's grid")
        axes.set_ylabel(label)
        axes.set_ylim(0, max(1e-3, 1.15 * parts.highest(values)))

    return parts.dataset_panel(table, f"{quantity}_by_bits", draw, values, ", rounded gradients")


def one_step_or_epoch(inputs: FigureInputs, name: str) -> Sheet:
    """The paper's Figure 1: accuracy and loss over rounds, and the accuracy of each run's best and last round.

    Lines are one local step and one local epoch a round, published and made sound; mean and standard error of the mean
    (SEM) over the seeds, as in the paper, which reports the best round. Data sets whose runs all have one number of
    rounds. Raises DataError without a run of joint noise, and for two runs of one line and seed.
    """
    runs = _line_runs(inputs)
    runs = runs[runs.groupby("dataset")["rounds"].transform("nunique") == 1]  # others: by_rounds
    if runs.empty:
        raise expected("rounds of a data set's runs", "several", "one for this figure", DataError)
    styles, rounds = _line_styles(runs), inputs.read_rounds()
    rows = tuple(_line_row(part, rounds, styles) for part in parts.by_dataset(runs))
    legend = parts.privacy_legend(runs, styles, "series", styles)
    return Sheet(name, rows, legend, (_seeds_note(runs), parts.privacy_footnote(runs)), tuple(runs["run_id"]))


def _line_runs(inputs: FigureInputs) -> pd.DataFrame:
    """The runs of joint noise with their line, the column ``series``."""
    runs = inputs.read_runs()
    _require_joint(runs)
    runs = runs[runs["algorithm"] == _JOINT]
    own = runs["own_noise_only"].map({True: ", each silo's own noise", False: ""})
    runs = runs.assign(series=runs["local_steps"].map(steps_words) + own)
    require_one_setting(runs.to_dict("records"), ("dataset", "series", "rounds"))
    return runs


def _line_styles(runs: pd.DataFrame) -> dict[str, Style]:
    """The style of each line, one step first, what is sound for an epoch last."""
    order = sorted(runs["series"].unique(), key=lambda series: ("own noise" in series, "epoch" in series))
    return dict(zip(order, sequence_styles(len(order)), strict=True))


def _seeds_note(runs: pd.DataFrame) -> str:
    counts = runs.groupby(["dataset", "series", "rounds"])["seed"].nunique()
    low, high = int(counts.min()), int(counts.max())
    seeds = str(high) if low == high else f"{low} to {high}"
    return "One seed" if high == 1 else f"Mean of {seeds} seeds, band or bar: standard error"


def _standard_errors(table: pd.DataFrame) -> pd.DataFrame:
    """Mean and mean ± SEM of ``value`` for each data set, quantity, series and x; no band for one seed."""
    groups = table.groupby(["dataset", "quantity", "series", "x"])["value"]
    found = groups.agg(mean="mean", sem="sem", seeds="count").reset_index()
    return parts.plotted(found, low=found["mean"] - found["sem"], high=found["mean"] + found["sem"])


def _line_row(runs: pd.DataFrame, rounds: pd.DataFrame, styles: dict[str, Style]) -> tuple[Panel, ...]:
    facts = runs[["run_id", "dataset", "series", "synthetic"]]
    table = rounds[["run_id", "round", *METRICS]].merge(facts, on="run_id", validate="many_to_one")
    panels = []
    for metric, (quantity, _, factor) in METRICS.items():
        values = _standard_errors(table.assign(value=factor * table[metric], x=table["round"], quantity=quantity))
        draw = partial(draw_curves, values=values, metric=metric, styles=styles)
        panels.append(parts.dataset_panel(table, quantity, draw, values, scale=quantity))
    ends = _best_and_last(runs, rounds, "test_accuracy")
    values = _standard_errors(ends.assign(x=ends["quantity"].str.endswith("_last").astype(int)))

    def draw_points(axes: Axes) -> None:
        offsets = np.linspace(-0.15, 0.15, len(styles))
        for offset, (series, style) in zip(offsets, styles.items(), strict=True):
            part = values[values["series"] == series]
            errors = (part["mean"] - part["low"]).fillna(0.0)
            axes.errorbar(part["x"] + offset, part["mean"], errors, fmt=style.marker, color=style.color, capsize=2)
        axes.set_xticks(range(len(_PLACES)), _PLACES)
        axes.set_xlim(-0.5, len(_PLACES) - 0.5)
        axes.set_ylabel("test accuracy (%)")

    return (*panels, parts.dataset_panel(table, "best_and_last", draw_points, values, ", best and last"))


def by_rounds(inputs: FigureInputs, name: str) -> Sheet:
    """The paper's Figures 2 and 3: accuracy, loss and the ε that holds against the number of rounds of a run.

    The paper reports the best accuracy and the lowest loss over each run. They stand beside the last round's, because
    choosing a round by the test items flatters. Raises DataError without runs of the figure's data set, and for two
    runs of one line, number of rounds and seed.
    """
    dataset, runs = _DATASETS[name.partition("-")[0]], _line_runs(inputs)
    runs = runs[runs["dataset"] == dataset]
    if runs.empty:
        raise expected("data sets of the scenario", f"no {dataset}", f"{dataset} for this figure", DataError)
    # all lines solid: dotted ones are last rounds
    styles = {text: replace(style, line="-") for text, style in _line_styles(runs).items()}
    epsilon = runs.assign(value=_largest(runs, ["series", "rounds"]), quantity="epsilon")
    rounds = inputs.read_rounds()
    panels = [
        _rounds_panel(_best_and_last(runs, rounds, metric), quantity, words, styles)
        for metric, (quantity, words, _) in METRICS.items()
    ]
    panels.append(_rounds_panel(epsilon, "epsilon", "ε that holds", styles))
    held = (
        "ε that holds: of an item, provable for the same run; claimed for every line: "
        f"ε = {parts.written(runs['epsilon'])}; δ = {parts.written(runs['delta'])}"
    )
    legend = tuple(LegendEntry(text, style) for text, style in styles.items())
    notes = (_seeds_note(runs), "Filled: best round of each run; hollow: its last round", held)
    return Sheet(name, (tuple(panels),), legend, notes, tuple(runs["run_id"]))


def _best_and_last(runs: pd.DataFrame, rounds: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The runs twice: with the ``value`` of their best round, and of their last one, as their ``quantity`` says."""
    quantity, _, factor = METRICS[metric]
    by_run = rounds.sort_values("round").groupby("run_id")[metric]
    found = {"best": by_run.max() if quantity == "accuracy" else by_run.min(), "last": by_run.last()}
    tables = [
        runs.assign(value=factor * runs["run_id"].map(value), quantity=f"{quantity}_{which}")
        for which, value in found.items()
    ]
    return pd.concat(tables)


def _rounds_panel(table: pd.DataFrame, key: str, words: str, styles: dict[str, Style]) -> Panel:
    values = _standard_errors(table.assign(x=table["rounds"]))

    def draw(axes: Axes) -> None:
        for (series, quantity), part in values.groupby(["series", "quantity"], sort=True):
            hollow = str(quantity).endswith("_last")
            parts.draw_marks(axes, part, styles[str(series)], hollow)
        parts.logarithmic(axes, sorted(values["x"].unique()), "rounds of the run")
        axes.set_ylabel(words)

    return parts.dataset_panel(table, key, draw, values, weight=2 / 3)  # three beside one another
