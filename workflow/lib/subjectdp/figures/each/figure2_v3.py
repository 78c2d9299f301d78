"""v3 Figure 2: mini-batches by the largest subject group in them, FEMNIST (a) and Shakespeare (b)."""

from __future__ import annotations

from subjectdp.figures import four_panels
from subjectdp.figures.curves import present, seed_note, styles_of
from subjectdp.figures.panels import Sheet
from subjectdp.results.inputs import FigureInputs


def build(inputs: FigureInputs, name: str) -> Sheet:
    """One panel for each data set in the scenario; DataError if there is none to draw."""
    runs, notes = inputs.shown_runs()
    steps, styles = inputs.read_steps(), styles_of(runs)
    panels = [
        four_panels.group_sizes_of(runs[runs["dataset"] == each], steps, styles) for each in present(runs)
    ]
    shown = {str(panel.values["series"].iloc[0]) for panel in panels}
    runs = runs[runs["label"].isin(shown)]
    counted = f"Mini-batches of {', '.join(sorted(shown))} over all silos and rounds"
    seeds = seed_note(runs).replace("band", "bar")
    return Sheet(name, (tuple(panels),), (), (counted, seeds, *notes), tuple(runs["run_id"]))
