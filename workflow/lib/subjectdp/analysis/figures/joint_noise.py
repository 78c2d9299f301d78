"""Joint noise by a trusted aggregator: accuracy and loss over rounds for different numbers of local steps."""

from __future__ import annotations

import pandas as pd

from subjectdp.analysis.figures.curves import curve_panel, present, privacy_footnote, seed_note
from subjectdp.analysis.inputs import FigureInputs
from subjectdp.analysis.panels import LegendEntry, Panel, Sheet
from subjectdp.analysis.select import choose_setting, privacy_note, steps_words
from subjectdp.analysis.style import Style, dataset_name, sequence_styles
from subjectdp.errors import DataError, expected

_LOCAL = "LocalItemDP"


def build(inputs: FigureInputs, name: str) -> Sheet:
    """A row for each data set: accuracy and loss of joint noise, and LocalItemDP's accuracy where it was run."""
    runs = inputs.read_runs()
    if not (runs["algorithm"] == "joint_noise").any():
        raise expected(
            "algorithms of the scenario", "no joint_noise", "joint_noise for this figure", DataError
        )
    runs = runs[runs["algorithm"].isin(["joint_noise", "local_item_dp"])]
    runs, notes = choose_setting(runs, vary=("local_steps",))
    runs = runs.assign(series=[f"{steps_words(text)} a round" for text in runs["config"]])
    order = sorted(set(runs["series"]), key=_steps_key)
    styles = dict(zip(order, sequence_styles(len(order)), strict=True))
    rounds = inputs.read_rounds()
    joint = runs[runs["algorithm"] == "joint_noise"]
    rows = tuple(_row(runs[runs["dataset"] == dataset], rounds, styles) for dataset in present(joint))
    legend = tuple(
        LegendEntry(f"{series}\n{privacy_note(joint[joint['series'] == series])}", styles[series])
        for series in order
        if series in set(joint["series"])
    )
    if (runs["label"] == _LOCAL).any():
        notes = [
            f"Panels of {_LOCAL}: each silo's own noise at the same ε for an item; ε in the legend: joint noise",
            *notes,
        ]
    all_notes = (seed_note(joint.assign(label=joint["series"])), privacy_footnote(joint), *notes)
    return Sheet(name, rows, legend, all_notes, tuple(runs["run_id"]))


def _row(runs: pd.DataFrame, rounds: pd.DataFrame, styles: dict[str, Style]) -> tuple[Panel, ...]:
    dataset = str(runs["dataset"].iloc[0])
    joint, local = runs[runs["algorithm"] == "joint_noise"], runs[runs["label"] == _LOCAL]
    panels = [
        curve_panel(
            joint, rounds, metric, styles, series="series", heading=f"{dataset_name(dataset)}, joint noise"
        )
        for metric in ("test_accuracy", "test_loss")
    ]
    if not local.empty:
        heading, key = f"{dataset_name(dataset)}, {_LOCAL}", f"{dataset}_accuracy_local_noise"
        panels.append(curve_panel(local, rounds, "test_accuracy", styles, "series", heading, key))
    return tuple(panels)


def _steps_key(series: str) -> tuple[bool, int]:
    return "epoch" in series, int(series.split()[0])
