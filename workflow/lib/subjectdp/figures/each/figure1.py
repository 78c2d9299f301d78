"""v1 Figure 1: accuracy, loss, and mini-batches by group size and by subjects; FEMNIST (a)-(d), Shakespeare (e)-(h)."""

from __future__ import annotations

from subjectdp.figures import four_panels
from subjectdp.figures.panels import Sheet
from subjectdp.results.inputs import FigureInputs


def build(inputs: FigureInputs, name: str) -> Sheet:
    """The four panels of each data set in the scenario; DataError if there is none to draw."""
    return four_panels.build(inputs, name)
