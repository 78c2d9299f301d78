"""The scorecard: each printed number of the papers, ours with its interval, the ε of the same runs, and a verdict.

One row per target, in the order of the targets' file; targets that nothing in the scenario measures come last. The rule
is :func:`subjectdp.scorecard.verdicts.judge`, described in docs/findings.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from subjectdp.accounting import table1
from subjectdp.data.statistics import comparison_settings, paper_settings
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.intervals import mean_interval
from subjectdp.results.labels import dataset_name
from subjectdp.scorecard import run_measures
from subjectdp.scorecard.paper_accounting import COLUMNS as ACCOUNTING_COLUMNS
from subjectdp.scorecard.paper_accounting import is_accounted
from subjectdp.scorecard.targets import Kind, Target, read_targets
from subjectdp.scorecard.verdicts import Measured, Verdict, judge
from subjectdp.utility import EMPIRICAL, EXCESS_COLUMNS, POPULATION

COLUMNS = (
    *("target", "paper", "place", "statement", "verdict", "reason", "unit", "printed", "tolerance"),
    *("ours", "low", "high", "seeds", "epsilon_as_published", "epsilon_sound", "epsilon_sound_subject"),
    *("scale", "note", "evidence", "counted"),
)
SAMPLED = {"subjects_per_batch": "subjects", "largest_group": "largest_group", "largest_group_mode": "largest_group"}
"""Metrics of mini-batches and the column of the statistics that they come from."""
_NORMAL = 1.959963984540054  # 97.5 % quantile of the normal distribution
ON_CONVEX_LOSS = ("excess_loss", "excess_training_loss", "generalisation_gap", "printed_bound")
"""Metrics of section 4 of v3, measured with the convex model."""
_LEADS = {"test_loss": "nats ahead", "test_accuracy": "points ahead", "printed_bound": "nats above"}


@dataclass(frozen=True)
class Evidence:
    """The tables of a scenario that targets are measured by; None for a table that it does not make."""

    runs: pd.DataFrame
    rounds: pd.DataFrame
    table1: pd.DataFrame
    accounting: pd.DataFrame | None = None
    statistics: pd.DataFrame | None = None
    utility: pd.DataFrame | None = None

    def measure(self, target: Target) -> Measured | None:
        """Ours for one target; None if nothing here measures it."""
        if target.metric in run_measures.TRAINED:
            return run_measures.measure_run_target(target, self.runs, self.rounds)
        if target.metric == "rounds_to_equal_accuracy":
            return run_measures.measure_rounds(target, self.runs, self.rounds)
        tables = (
            (target.metric in ON_CONVEX_LOSS, measure_bound, self.utility),
            (target.metric in SAMPLED, measure_sampling, self.statistics),
            (is_accounted(target), measure_accounting, self.accounting),
            (target.metric in ("epsilon", "noise_multiplier"), measure_table1, self.table1),
        )
        measure, table = next(((measure, table) for fits, measure, table in tables if fits), (None, None))
        return None if measure is None or table is None else measure(target, table)


def scorecard(targets: Sequence[Target], evidence: Evidence) -> pd.DataFrame:
    """A row (:data:`COLUMNS`) per target; those not run come last."""
    rows = [_row(target, evidence.measure(target)) for target in targets]
    rows.sort(key=lambda row: row["verdict"] == Verdict.NOT_RUN.value)  # stable: the targets' order otherwise
    return pd.DataFrame(rows, columns=list(COLUMNS))


def build(inputs: FigureInputs) -> pd.DataFrame:
    """The scorecard of a scenario's collected tables, by the targets that ``inputs`` names.

    Raises ConfigError for a wrong file of targets, DataError for a damaged table.
    """
    evidence = Evidence(
        runs=inputs.read_runs(),
        rounds=inputs.read_rounds(),
        table1=pd.DataFrame(table1.rows()),
        accounting=None if inputs.accounting is None else inputs.read("accounting", ACCOUNTING_COLUMNS),
        statistics=None if inputs.statistics is None else inputs.read_statistics(),
        utility=None if inputs.utility is None else inputs.read("utility", EXCESS_COLUMNS),
    )
    return scorecard(read_targets(inputs.path("targets")), evidence)


def _row(target: Target, measured: Measured | None) -> dict[str, Any]:
    verdict, reason = judge(target, measured)
    # of an order its lead, of a bound the loss above it
    unit = "nats above the bound" if target.kind is Kind.BOUND else target.unit
    unit = _LEADS[target.metric] if target.kind is Kind.ORDER else unit
    same = ("paper", "place", "statement", "printed", "tolerance")
    row: dict[str, Any] = {name: getattr(target, name) for name in same}
    row |= {"target": target.id, "verdict": verdict.value, "reason": reason, "unit": unit}
    row |= {"evidence": target.evidence.value, "counted": not target.not_counted}
    if measured is None:
        return row
    numbers = {"ours": "mean", "low": "low", "high": "high", "epsilon_as_published": "epsilon_published"}
    numbers |= {name: name for name in ("epsilon_sound", "epsilon_sound_subject")}
    # six significant digits: further ones differ between machines
    row |= {column: float(f"{getattr(measured, name):.6g}") for column, name in numbers.items()}
    seeds = measured.seeds if measured.seeds > 0 else math.nan
    return row | {"seeds": seeds, "scale": measured.scale, "note": measured.note}


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
