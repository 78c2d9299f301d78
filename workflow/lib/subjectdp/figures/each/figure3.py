"""v1 Figure 3: Small-FEMNIST (350 subjects), accuracy, loss, group sizes and subjects in mini-batches."""

from __future__ import annotations

from subjectdp.errors import DataError, expected
from subjectdp.figures import four_panels
from subjectdp.figures.panels import Sheet
from subjectdp.results.inputs import FigureInputs


def build(inputs: FigureInputs, name: str) -> Sheet:
    """The four panels, in two rows, of the FEMNIST runs of the scenario; DataError if there are none."""
    runs, notes = inputs.shown_runs()
    runs = runs[runs["dataset"] == "femnist"]
    if runs.empty:
        raise expected("data sets of the scenario", "no femnist", "femnist for this figure", DataError)
    curves = four_panels.curves_of(runs, inputs.read_rounds(), "femnist")
    counts = four_panels.counts_of(runs, inputs.read_steps(), "femnist")
    return four_panels.sheet_of(name, [curves, counts], runs, notes)
