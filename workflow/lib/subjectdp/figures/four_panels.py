"""The papers' main panels for each data set: accuracy, loss, and mini-batches by group size and by subjects."""

from __future__ import annotations

import pandas as pd

from subjectdp.figures.curves import (
    algorithm_legend,
    curve_panel,
    present,
    privacy_footnote,
    seed_note,
    styles_of,
)
from subjectdp.figures.histograms import histogram_panel
from subjectdp.figures.panels import Panel, Sheet
from subjectdp.figures.style import Style, in_order
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.select import sampling_runs

GROUPS = ("LocalGroupDP",)
SUBJECTS = ("HiGradAvgDP (v1)", "HiGradAvgDP (v3)", "LocalGroupDP")


def curves_of(runs: pd.DataFrame, rounds: pd.DataFrame, dataset: str) -> list[Panel]:
    """Accuracy and loss panels of one data set."""
    part, styles = runs[runs["dataset"] == dataset], styles_of(runs)
    return [curve_panel(part, rounds, metric, styles) for metric in ("test_accuracy", "test_loss")]


def counts_of(runs: pd.DataFrame, steps: pd.DataFrame, dataset: str) -> list[Panel]:
    """Group-size and distinct-subjects panels of one data set."""
    part, styles = runs[runs["dataset"] == dataset], styles_of(runs)
    return [
        group_sizes_of(part, steps, styles),
        histogram_panel(sampling_runs(part, SUBJECTS), steps, "subjects", styles),
    ]


def group_sizes_of(part: pd.DataFrame, steps: pd.DataFrame, styles: dict[str, Style]) -> Panel:
    """The group-size panel of one data set's runs."""
    return histogram_panel(sampling_runs(part, GROUPS), steps, "largest_group", styles)


def counted_note(panels: list[Panel]) -> str:
    """A note that names the runs whose mini-batches the panels count."""
    words = []
    for endings, name in ((("_group_size", "_largest_group"), "Group sizes"), (("_subjects",), "subjects")):
        labels = {str(panel.values["series"].iloc[0]) for panel in panels if panel.key.endswith(endings)}
        if labels:
            words.append(f"{name} counted in the runs of {' and '.join(in_order(labels))}")
    return ", ".join(words)


def sheet_of(name: str, rows: list[list[Panel]], runs: pd.DataFrame, notes: list[str]) -> Sheet:
    """A sheet with the algorithms' legend and the notes that every training figure carries."""
    all_notes = [
        seed_note(runs),
        privacy_footnote(runs),
        counted_note([p for row in rows for p in row]),
        *notes,
    ]
    return Sheet(
        name=name,
        rows=tuple(tuple(row) for row in rows),
        legend=algorithm_legend(runs, styles_of(runs)),
        notes=tuple(note for note in all_notes if note),
        runs=tuple(runs["run_id"]),
    )


def build(inputs: FigureInputs, name: str) -> Sheet:
    """v1 Figure 1 (a)-(h): four panels per data set."""
    runs, notes = inputs.shown_runs()
    rounds, steps = inputs.read_rounds(), inputs.read_steps()
    rows = [curves_of(runs, rounds, dataset) + counts_of(runs, steps, dataset) for dataset in present(runs)]
    return sheet_of(name, rows, runs, notes)
