"""The columns of noise.parquet, for readers without torch."""

from __future__ import annotations

SCENARIO, PAPERS = "scenario", "papers"
"""Schedules: the run's own rounds and local steps, or the papers' 100 rounds of 50 steps."""

COLUMNS = (
    "dataset",
    "synthetic",
    "algorithm",  # name or name:variant
    "label",
    "unit",  # of privacy that the noise was calibrated for
    "schedule",
    "rounds",
    "local_steps",
    "sampling_probability",  # of an item or a subject, mean over the silos
    "epsilon",
    "delta",
    "clip_norm",
    "subjects",  # of the run
    "predicted_subjects",  # NaN: the noise is for the run's own subjects
    "planned",  # std of the noise on the averaged gradient, in clip norms, by the plan
    "measured",  # the same, from two rounds of the run that differ only in the noise
    "coordinates",  # that the measurement averages over
)
"""Columns of noise.parquet: one row an algorithm and schedule."""
