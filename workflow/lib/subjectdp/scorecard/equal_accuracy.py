"""How many more rounds one local step needs than many, for equal accuracy; each mark is a run of so many rounds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from subjectdp.results.intervals import mean_interval
from subjectdp.scorecard.run_measures import Side, is_at_setting, measured_on, published_runs
from subjectdp.scorecard.targets import Target
from subjectdp.scorecard.verdicts import Measured


def measure_rounds(target: Target, runs: pd.DataFrame, rounds: pd.DataFrame) -> Measured | None:
    """Orders of magnitude between the rounds of one local step and those of the target's, at equal accuracy.

    Accuracy is that of a run's best round, as the paper reports it. For each mark of the many steps, the rounds of one
    step are interpolated on a logarithmic scale, and the orders averaged over the marks that one step reaches.
    None without two marks of one step, or where one step reaches no mark.
    """
    table = published_runs(runs)
    table = table[(table["dataset"] == target.setting.dataset) & (table["algorithm"] == target.algorithm)]
    table = table.assign(best=table["run_id"].map(rounds.groupby("run_id")["test_accuracy"].max()))
    many, one = (table[table["local_steps"] == steps] for steps in (target.setting.local_steps, "1"))
    orders = [
        _orders(_curve(many, seed), _curve(one, seed))
        for seed in sorted(set(many["seed"]) & set(one["seed"]))
    ]
    if not any(math.isfinite(order) for order in orders):
        return None
    sides = [Side(rows, is_at_setting(rows.iloc[0], target.setting, target.metric)) for rows in (many, one)]
    return measured_on(mean_interval(orders), sides[0], sides[1:], sides[0].at_setting)


def _curve(rows: pd.DataFrame, seed: int) -> pd.Series:
    """Best accuracy by rounds, ascending."""
    return rows[rows["seed"] == seed].groupby("rounds")["best"].max().sort_index()


def _orders(many: pd.Series, one: pd.Series) -> float:
    """Mean of log10(rounds of one / rounds of many) over the marks that one step reaches; NaN without any."""
    reached = one.cummax().to_numpy()
    if len(one) < 2:
        return math.nan
    inside = many[(many >= reached[0]) & (many <= reached[-1])]
    if inside.empty:
        return math.nan
    needed = np.interp(inside.to_numpy(), reached, np.log10(one.index.to_numpy(dtype=np.float64)))
    return float(np.mean(needed - np.log10(inside.index.to_numpy(dtype=np.float64))))
