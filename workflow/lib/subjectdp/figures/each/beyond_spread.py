"""Accuracy against the distribution of subjects: by its power α, and by the number of silos of a subject."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from subjectdp.errors import DataError, expected
from subjectdp.figures.panels import Panel, Sheet
from subjectdp.figures.sweeps import Sweep, notes_of, sweep_legend, sweep_panels
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.select import sound_runs

ALPHA = Sweep("alpha", "α (1: even over the silos, 16: mostly at one)")
SILOS = Sweep("silos_per_subject", "silos that hold one subject")
_EVEN = 1.0


def build(inputs: FigureInputs, name: str) -> Sheet:
    """Two panels per data set; DataError if the runs sweep neither."""
    runs, notes = sound_runs(inputs.read_runs(), vary=("alpha", "silos_per_subject"))
    everywhere = runs["silos_per_subject"] == runs["silos"]
    kinds = [
        (ALPHA, runs[everywhere], "alpha", "spread by a power"),
        (SILOS, runs[runs["alpha"] == _EVEN], "silos", "evenly over some silos"),
    ]
    panels = [
        replace(panel, heading=f"{panel.heading}, {words}")
        for sweep, part, key, words in kinds
        for panel in _swept(part, sweep, f"accuracy_by_{key}")
    ]
    if not panels:
        allowed = "partition.alpha or partition.silos_per_subject at more than one value"
        raise expected("runs of the figure", "one spread of the subjects", allowed, DataError)
    epsilons = ", ".join(f"{value:g}" for value in sorted(runs.loc[runs["unit"] != "", "epsilon"].unique()))
    told = (*notes_of(runs), f"ε = {epsilons}", *notes)
    return Sheet(
        name,
        tuple((panel,) for panel in panels) if len(panels) > 2 else (tuple(panels),),
        sweep_legend(runs),
        told,
        tuple(runs["run_id"]),
        row_height=3.3,
        panel_width=5.2,
    )


def _swept(runs: pd.DataFrame, sweep: Sweep, quantity: str) -> tuple[Panel, ...]:
    """The panels of the data sets with more than one value of the swept setting."""
    counts = runs.groupby("dataset")[sweep.column].transform("nunique")
    part = runs[counts > 1]
    return () if part.empty else sweep_panels(part, sweep, quantity)
