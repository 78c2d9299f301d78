"""v3 Figure 1: accuracy and loss over rounds with v3's HiGradAvgDP; FEMNIST (a), (b), Shakespeare (c), (d)."""

from __future__ import annotations

from subjectdp.figures import four_panels
from subjectdp.figures.curves import present
from subjectdp.figures.panels import Sheet
from subjectdp.results.inputs import FigureInputs


def build(inputs: FigureInputs, name: str) -> Sheet:
    """Two panels for each data set in the scenario; DataError if there is none to draw."""
    runs, notes = inputs.shown_runs()
    rounds = inputs.read_rounds()
    rows = [four_panels.curves_of(runs, rounds, dataset) for dataset in present(runs)]
    return four_panels.sheet_of(name, rows, runs, notes)
