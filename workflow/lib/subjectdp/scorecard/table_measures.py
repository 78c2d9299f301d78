"""Targets measured without the scenario's runs: by sampling alone, by accounting, by the convex model."""

import math

import pandas as pd

from subjectdp.data.statistics import comparison_settings, paper_settings
from subjectdp.results.intervals import mean_interval
from subjectdp.results.labels import dataset_name
from subjectdp.scorecard.targets import Kind, Target
from subjectdp.scorecard.verdicts import Measured
from subjectdp.utility import EMPIRICAL, POPULATION

SAMPLED = {"subjects_per_batch": "subjects", "largest_group": "largest_group", "largest_group_mode": "largest_group"}
"""Metrics of mini-batches and the column of the statistics that they come from."""
_NORMAL = 1.959963984540054  # 97.5 % quantile of the normal distribution


def measure_sampling(target: Target, statistics: pd.DataFrame) -> Measured | None:
    """Measures a target on mini-batches drawn at the papers' scale (``data.statistics``); None for another setting.

    The interval is that of the mean over the mini-batches of one partition; a mode has none. The note has the mean
    under the other spreads of subject sizes, where they were drawn.
    """
    setting, column = target.setting, SAMPLED[target.metric]
    wanted = (setting.dataset, setting.subjects, setting.alpha, setting.batch_size)
    names = [s.name for s in paper_settings() if (s.dataset, s.subjects, s.alpha, s.batch_size) == wanted]
    part = statistics[statistics["setting"].isin(names[:1])]
    if part.empty:
        return None
    values = part[column].astype(float)
    scale = f"{dataset_name(setting.dataset)}, {len(part):,} mini-batches drawn at the paper's setting"
    if target.metric == "largest_group_mode":
        mode = float(values.mode().iloc[0])
        share = 100 * float((values == mode).mean())
        return Measured.exact(mode, scale, note=f"in {share:.1f} % of the mini-batches")
    mean, half = float(values.mean()), _NORMAL * float(values.std()) / math.sqrt(len(values))
    means = statistics.groupby("setting", observed=True)[column].mean()
    others = [s for s in comparison_settings() if s.name == f"{names[0]}_{s.sizes}" and s.name in means]
    note = ", ".join(f"{s.sizes.value.replace('_', ' ')}: {means[s.name]:.4g}" for s in others)
    return Measured(mean, mean - half, mean + half, 0, scale, note=note)


def measure_table1(target: Target, table1: pd.DataFrame) -> Measured | None:
    """Measures a target of the joint-noise paper by its recomputed Table 1; None if it has no such row."""
    setting = target.setting
    rows = table1[(table1["local_steps"].astype(str) == setting.local_steps) & (table1["parties"] == setting.silos)]
    if rows.empty:
        return None
    row = rows.iloc[0]
    wanted = "sigma_total" if target.metric == "noise_multiplier" else "epsilon"
    return Measured.exact(
        float(row["epsilon_sound" if target.kind is Kind.CLAIM else wanted]),
        f"accounting, q = 0.1, {int(row['local_steps'])} local steps, {int(row['parties'])} parties",
        epsilon_published=float(row["epsilon_printed"]),
        epsilon_sound=float(row["epsilon_sound"]),
        epsilon_lower=float(row["epsilon_lower"]),
    )


def measure_accounting(target: Target, accounting: pd.DataFrame) -> Measured | None:
    """Measures a target by accounting at the paper's setting; None if the table has no row for it."""
    rows = accounting[accounting["target"] == target.id]
    if rows.empty:
        return None
    row, setting = rows.iloc[0], target.setting
    federation = f"{setting.subjects:,} subjects, {setting.silos} silos, R = {setting.rounds}"
    columns = ("epsilon_published", "epsilon_sound", "epsilon_sound_subject", "epsilon_lower")
    return Measured.exact(
        float(row["value"]),
        f"accounting at the paper's setting: {dataset_name(setting.dataset)}, {federation}",
        **{name: float(row[name]) for name in columns},
        note=str(row["note"]),
    )


ON_CONVEX_LOSS = ("excess_loss", "excess_training_loss", "generalisation_gap", "printed_bound")
"""Metrics of section 4 of v3, measured with the convex model."""


def measure_bound(target: Target, utility: pd.DataFrame) -> Measured | None:
    """Measures a statement of v3's section 4 on the convex model, over the seeds; None if it is not in the table.

    A bound on the population or training loss: excess minus bound. The generalisation gap: loss on the test items minus
    loss on the training items, minus what uniform stability allows. Printed bounds: the least lead of the algorithm's
    over the others'. The theorems hold for generated data too.
    """
    quantity = EMPIRICAL if target.metric == "excess_training_loss" else POPULATION
    tables = {  # the rows of the last step, by seed
        key: rows.set_index("seed").sort_index()
        for key, rows in utility[utility["last"]].groupby(["algorithm", "quantity"])
    }
    names = {(target.algorithm, quantity), *((name, POPULATION) for name in target.versus)}
    if target.metric == "generalisation_gap":
        names |= {(target.algorithm, EMPIRICAL)}
    if not names <= set(tables):
        return None
    rows = tables[target.algorithm, quantity]
    scale = _scale(rows.iloc[0])
    if target.metric == "printed_bound":
        others = [tables[name, POPULATION]["bound_printed"] for name in target.versus]
        ahead = [mean_interval(rows["bound_printed"] - other) for other in others]
        return Measured.of(min(ahead, key=lambda each: each.low), scale)
    measured, allowed, start = rows["excess"], rows["bound"], rows["excess_at_start"]
    if target.metric == "generalisation_gap":
        training = tables[target.algorithm, EMPIRICAL]
        measured, allowed = rows["loss"] - training["loss"], rows["bound"] - training["bound"]
        note = f"gap {measured.mean():.3g} nats, bound {allowed.mean():.3g}"
    else:
        printed = float(rows["bound_printed"].mean())
        as_printed = "" if math.isnan(printed) else f", {printed:.3g} as printed"
        note = (
            f"excess {measured.mean():.3g} nats, bound {allowed.mean():.3g} with the noise that was added{as_printed}; "
            f"excess before the first step {start.mean():.3g}"
        )
    trivial = bool((allowed >= start).all())
    return Measured.of(mean_interval(measured - allowed), scale, cannot_fail=trivial, note=note)


def _scale(row: pd.Series) -> str:
    words = "generated data" if bool(row["synthetic"]) else "real data"
    return (
        f"logistic regression, {dataset_name(str(row['dataset']))}, {words}, {int(row['subjects']):,} subjects, "
        f"{int(row['items']):,} items, 1 silo, {int(row['steps'])} steps"
    )
