"""Joint noise by a trusted aggregator: local steps, updates that are noised once, and integer noise by its bits."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from subjectdp.errors import DataError, expected
from subjectdp.figures.curves import curve_panel, present, privacy_footnote, seed_note
from subjectdp.figures.each.joint_bits import LEGEND, bits_row, joint_of
from subjectdp.figures.panels import LegendEntry, Panel, Sheet
from subjectdp.figures.style import Style, sequence_styles
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.labels import dataset_name
from subjectdp.results.select import choose_setting, privacy_note, steps_words

_LOCAL = "LocalItemDP"
_ONCE = "one noised update"


def build(inputs: FigureInputs, name: str) -> Sheet:
    """A row for each data set: accuracy and loss of joint noise, and LocalItemDP's accuracy where it was run.

    Further rows where the scenario has such runs: updates that are clipped and noised once, by the number of silos, and
    integer noise. Raises DataError without a run of joint noise.
    """
    runs = inputs.read_runs()
    if not (runs["algorithm"] == "joint_noise").any():
        raise expected(
            "algorithms of the scenario", "no joint_noise", "joint_noise for this figure", DataError
        )
    runs = runs[runs["algorithm"].isin(["joint_noise", "local_item_dp"])]
    kinds = runs["config"].map(_kind)
    steps, notes = _steps(runs[kinds == "steps"], kinds)
    updates = _by_silos(_with_series(runs[kinds == "update"], f", {_ONCE}"))
    shown, rounds = pd.concat([steps, updates]), inputs.read_rounds()
    order = sorted(set(shown["series"]), key=_steps_key)
    styles = dict(zip(order, sequence_styles(len(order)), strict=True))
    joint = shown[shown["algorithm"] == "joint_noise"]
    rows = [
        _row(part[part["dataset"] == dataset], rounds, styles, name)
        for name, part in (("", steps), (_ONCE, updates))
        for dataset in present(part[part["algorithm"] == "joint_noise"])
    ]
    integers = runs[kinds == "integers"]
    for dataset in present(integers):
        rows.append(bits_row(runs[runs["dataset"] == dataset], integers[integers["dataset"] == dataset]))
    if (steps["label"] == _LOCAL).any():
        notes = [
            f"Panels of {_LOCAL}: each silo's own noise at the same ε for an item; ε in the legend: joint noise's, "
            f"but for steps that only {_LOCAL} took",
            *notes,
        ]
    told = joint if not joint.empty else integers.assign(series="")
    all_notes = (seed_note(told.assign(label=told["series"])), privacy_footnote(told), *notes)
    legend = (*_legend(shown, order, styles), *(LEGEND if not integers.empty else ()))
    drawn = dict.fromkeys([*shown["run_id"], *integers["run_id"]])
    return Sheet(name, tuple(rows), legend, all_notes, tuple(drawn))


def _kind(config: str) -> str:
    joint = joint_of(config)
    if joint["clipping"] == "update":
        return "update"
    return "integers" if joint["noise"] == "skellam" else "steps"


def _steps(runs: pd.DataFrame, kinds: pd.Series) -> tuple[pd.DataFrame, list[str]]:
    """Runs that noise every local step, of one setting; none where all runs are of another kind."""
    if runs.empty and not kinds.empty:
        return _with_series(runs), []
    chosen, notes = choose_setting(runs, vary=("local_steps",))
    if len(runs) < len(kinds):  # other panels show what this note leaves out
        notes = [f"Panels of noised steps, {note}" for note in notes]
    return _with_series(chosen), notes


def _with_series(runs: pd.DataFrame, more: str = "") -> pd.DataFrame:
    return runs.assign(series=[f"{steps_words(text)} a round{more}" for text in runs["config"]])


def _by_silos(updates: pd.DataFrame) -> pd.DataFrame:
    """The noise on the mean of the updates falls with the silos: a line for each number of them."""
    names = [
        f"{series}, {silos} silos" for series, silos in zip(updates["series"], updates["silos"], strict=True)
    ]
    return updates.assign(series=names)


def _legend(shown: pd.DataFrame, order: list[str], styles: dict[str, Style]) -> tuple[LegendEntry, ...]:
    """An entry for each line; its ε are joint noise's, LocalItemDP's where that alone took so many steps."""
    entries = []
    for series in order:
        rows = shown[shown["series"] == series]
        joint = rows[rows["algorithm"] == "joint_noise"]
        name, told = (series, joint) if not joint.empty else (f"{series}, {_LOCAL}", rows)
        entries.append(LegendEntry(f"{name}\n{privacy_note(told)}", styles[series]))
    return tuple(entries)


def _row(
    runs: pd.DataFrame, rounds: pd.DataFrame, styles: dict[str, Style], kind: str = ""
) -> tuple[Panel, ...]:
    dataset = str(runs["dataset"].iloc[0])
    heading = f"{dataset_name(dataset)}, {kind or 'joint noise'}"
    joint, local = runs[runs["algorithm"] == "joint_noise"], runs[runs["label"] == _LOCAL]
    panels = [
        curve_panel(
            joint, rounds, metric, styles, "series", heading, f"{dataset}_{word}{'_updates' if kind else ''}"
        )
        for metric, word in (("test_accuracy", "accuracy"), ("test_loss", "loss"))
    ]
    if not local.empty:
        own, key = f"{dataset_name(dataset)}, {_LOCAL}", f"{dataset}_accuracy_local_noise"
        panels.append(curve_panel(local, rounds, "test_accuracy", styles, "series", own, key))
    # with few silos the loss of noised updates explodes, and would flatten every other curve
    return tuple(replace(panel, scale=f"{panel.scale}{kind}") for panel in panels)


def _steps_key(series: str) -> tuple[bool, bool, int, int]:
    silos = int(series.split()[-2]) if _ONCE in series else 0
    return _ONCE in series, "epoch" in series, int(series.split()[0]), silos
