"""The lines of the joint-noise paper's figures: local steps a round, published and made sound; means and SEM."""

from __future__ import annotations

import pandas as pd

from subjectdp.errors import DataError, expected
from subjectdp.figures.panels import VALUE_COLUMNS
from subjectdp.figures.style import Style, sequence_styles
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.select import steps_words

_JOINT = "joint_noise"


def joint_runs(inputs: FigureInputs) -> pd.DataFrame:
    """The runs of joint noise with their line, the column ``series``.

    Raises DataError without one, and for two runs of one data set, line, number of rounds and seed.
    """
    runs = inputs.read_runs()
    runs = runs[runs["algorithm"] == _JOINT]
    if runs.empty:
        raise expected("algorithms of the scenario", f"no {_JOINT}", f"{_JOINT} for this figure", DataError)
    own = runs["own_noise_only"].map({True: ", each silo's own noise", False: ""})
    runs = runs.assign(series=runs["local_steps"].map(steps_words) + own)
    if runs.duplicated(["dataset", "series", "rounds", "seed"]).any():
        raise expected("runs of one line and seed", "several", "one: select them for this figure", DataError)
    return runs


def line_styles(runs: pd.DataFrame) -> dict[str, Style]:
    """The style of each line, one step first, what is sound for an epoch last."""
    order = sorted(runs["series"].unique(), key=lambda series: ("own noise" in series, "epoch" in series))
    return dict(zip(order, sequence_styles(len(order)), strict=True))


def seeds_note(runs: pd.DataFrame) -> str:
    """What bands and bars are, and of how many seeds."""
    seeds = runs.groupby(["dataset", "series", "rounds"])["seed"].nunique()
    fewest = int(seeds.min())
    return "One seed" if fewest == 1 else f"Mean of {fewest} seeds, band or bar: standard error"


def standard_errors(table: pd.DataFrame) -> pd.DataFrame:
    """Mean and mean ± SEM of ``value`` for each data set, quantity, series and x; no band for one seed."""
    found = (
        table.groupby(["dataset", "quantity", "series", "x"])["value"]
        .agg(["mean", "sem", "count"])
        .reset_index()
    )
    found = found.assign(low=found["mean"] - found["sem"], high=found["mean"] + found["sem"])
    return found.rename(columns={"count": "seeds"})[VALUE_COLUMNS]
