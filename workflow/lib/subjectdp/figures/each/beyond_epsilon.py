"""Test accuracy of sound subject-level privacy against ε, below two ceilings: no privacy, and item level."""

from __future__ import annotations

from subjectdp.figures.panels import Sheet
from subjectdp.figures.sweeps import Sweep, notes_of, sweep_legend, sweep_panels
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.select import sound_runs

SWEEP = Sweep("epsilon", "ε (smaller: better protected)")


def build(inputs: FigureInputs, name: str) -> Sheet:
    """A panel per data set; DataError without sound runs, or with two of one algorithm, seed and ε."""
    runs, notes = sound_runs(inputs.read_runs(), vary=("epsilon",))
    panels = sweep_panels(runs, SWEEP, "accuracy_by_epsilon")
    return Sheet(
        name,
        (panels,),
        sweep_legend(runs),
        (*notes_of(runs), *notes),
        tuple(runs["run_id"]),
        row_height=3.6,
        panel_width=5.4,
    )
