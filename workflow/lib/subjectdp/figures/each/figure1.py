"""v1 Figure 1: accuracy, loss, mini-batches by group size and by distinct subjects.

FEMNIST (a)-(d), Shakespeare (e)-(h).
"""

from __future__ import annotations

from subjectdp.figures import four_panels
from subjectdp.figures.panels import Sheet
from subjectdp.results.inputs import FigureInputs


def build(inputs: FigureInputs, name: str) -> Sheet:
    """The four panels of each data set in the scenario; DataError when there is none to draw."""
    return four_panels.build(inputs, name)
