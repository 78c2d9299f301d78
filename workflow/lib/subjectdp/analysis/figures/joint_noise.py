"""Joint noise by a trusted aggregator: accuracy and loss over rounds for different numbers of local steps."""

from __future__ import annotations

import pandas as pd

from subjectdp.analysis.figures.curves import curve_panel, present, privacy_footnote, seed_note
from subjectdp.analysis.inputs import FigureInputs
from subjectdp.analysis.panels import LegendEntry, Sheet
from subjectdp.analysis.select import choose_setting, local_steps_of, privacy_note
from subjectdp.analysis.style import sequence_styles
from subjectdp.errors import DataError, expected


def build(inputs: FigureInputs, name: str) -> Sheet:
    """A row of accuracy and loss for each data set, one line for each number of local steps."""
    runs = inputs.read_runs()
    runs = runs[runs["algorithm"] == "joint_noise"]
    if runs.empty:
        raise expected(
            "algorithms of the scenario", "no joint_noise", "joint_noise for this figure", DataError
        )
    runs, notes = choose_setting(runs, vary=("local_steps",))
    runs = runs.assign(series=[series_name(text) for text in runs["config"]])
    order = sorted(set(runs["series"]), key=_steps_key)
    styles = dict(zip(order, sequence_styles(len(order)), strict=True))
    rounds = inputs.read_rounds()
    rows = tuple(
        tuple(
            curve_panel(runs[runs["dataset"] == dataset], rounds, metric, styles, series="series")
            for metric in ("test_accuracy", "test_loss")
        )
        for dataset in present(runs)
    )
    legend = tuple(
        LegendEntry(f"{series}\n{privacy_note(runs[runs['series'] == series])}", styles[series])
        for series in order
    )
    all_notes = (_seeds(runs), privacy_footnote(runs), *notes)
    return Sheet(name, rows, legend, all_notes, tuple(runs["run_id"]))


def series_name(config: str) -> str:
    """The legend's name of a run: its local steps a round."""
    steps = local_steps_of(config)
    if steps is None:
        return "1 local epoch a round"
    return f"{steps} local step{'s' if steps > 1 else ''} a round"


def _steps_key(series: str) -> tuple[bool, int]:
    return "epoch" in series, int(series.split()[0])


def _seeds(runs: pd.DataFrame) -> str:
    return seed_note(runs.assign(label=runs["series"]))
