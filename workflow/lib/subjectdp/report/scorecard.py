"""The scorecard: each printed number of the papers, ours with its interval, the ε of the same runs, and a verdict.

One row per target, in the order of the targets' file; targets that nothing in the scenario measures come last. The rule
is :func:`subjectdp.report.targets.judge`, described in docs/findings.md.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from subjectdp.accounting import table1
from subjectdp.algorithms import registry
from subjectdp.data.statistics import SMALL_FEMNIST_SUBJECTS, comparison_settings, paper_settings
from subjectdp.plan.plan import AccountingMode, PrivacyUnit
from subjectdp.report.paper_accounting import COLUMNS as ACCOUNTING_COLUMNS
from subjectdp.report.paper_accounting import is_accounted
from subjectdp.report.targets import EvidenceKind, Kind, Measured, Setting, Target, Verdict, judge, read_targets
from subjectdp.results import select
from subjectdp.results.collect import FigureInputs
from subjectdp.results.shown_runs import dataset_name
from subjectdp.utility import EMPIRICAL, EXCESS_COLUMNS, POPULATION

COLUMNS = (
    *("target", "paper", "place", "statement", "verdict", "reason", "unit", "printed", "tolerance"),
    *("ours", "low", "high", "seeds", "epsilon_as_published", "epsilon_sound", "epsilon_sound_subject"),
    *("subject_guarantee", "scale", "note", "evidence", "counted"),
)
SAMPLED = {"subjects_per_batch": "subjects", "largest_group": "largest_group", "largest_group_mode": "largest_group"}
"""Metrics of mini-batches and the column of the statistics that they come from."""
_NORMAL = 1.959963984540054  # 97.5 % quantile of the normal distribution
_LEADS = {"test_loss": "nats ahead", "test_accuracy": "points ahead", "printed_bound": "nats above"}
_OF_DATA = ("subjects", "items_per_subject")

PAPER_MODELS = {
    "femnist": "leaf_cnn",
    "shakespeare": "leaf_lstm",
    "fashion_mnist": "tanh_cnn",
    "cifar10": "linear",
    "acs_income": "linear",
}
_SOURCES = {"embedded": "generated data", "leaf_json": "real data (LEAF's JSON)", "upstream": "real data"}
_SETTLES_DATA = ("subjects", "silos", "alpha")
_SETTLES_TRAINING = ("rounds", "batch_size", "local_steps", "model", "epsilon", "delta")


Tables = Mapping[str, pd.DataFrame]
"""What targets are measured by: ``runs``, ``rounds``, ``table1``, and those tables that the scenario makes of
``accounting``, ``statistics`` and ``utility``."""


def scorecard(targets: Sequence[Target], tables: Tables) -> pd.DataFrame:
    """A row (:data:`COLUMNS`) per target; those not run come last."""
    rows = [_row(target, measure(target, tables)) for target in targets]
    rows.sort(key=lambda row: row["verdict"] == Verdict.NOT_RUN.value)  # stable: the targets' order otherwise
    return pd.DataFrame(rows, columns=list(COLUMNS))


def measure(target: Target, tables: Tables) -> Measured | None:
    """Ours for one target; None if nothing here measures it."""
    if target.metric == "rounds_to_equal_accuracy":
        return measure_rounds(target, tables["runs"], tables["rounds"])
    if target.evidence is EvidenceKind.TRAINING or target.metric in _OF_DATA:
        return measure_run_target(target, tables["runs"], tables["rounds"])
    accounted = (measure_accounting, "accounting") if is_accounted(target) else (measure_table1, "table1")
    by, name = {
        EvidenceKind.BOUNDS: (measure_bound, "utility"),
        EvidenceKind.SAMPLING: (measure_sampling, "statistics"),
        EvidenceKind.ACCOUNTING: accounted,
    }[target.evidence]
    return by(target, tables[name]) if name in tables else None


def build(inputs: FigureInputs) -> pd.DataFrame:
    """The scorecard of a scenario's collected tables. Raises ConfigError for wrong targets, DataError for a table."""
    tables = {"runs": inputs.read_runs(), "rounds": inputs.read_rounds(), "table1": pd.DataFrame(table1.rows())}
    for name, columns in (("accounting", ACCOUNTING_COLUMNS), ("utility", EXCESS_COLUMNS)):
        if getattr(inputs, name) is not None:
            tables[name] = inputs.read(name, columns)
    if inputs.statistics is not None:
        tables["statistics"] = inputs.read_statistics()
    return scorecard(read_targets(inputs.path("targets")), tables)


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
    facts = ("subject_guarantee", "scale", "note")
    return row | {"seeds": seeds, **{name: getattr(measured, name) for name in facts}}


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
        return Measured.exact(mode, scale, note=f"in {100 * float((values == mode).mean()):.1f} % of the mini-batches")
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
    scale = _convex_scale(rows.iloc[0])
    if target.metric == "printed_bound":
        others = [tables[name, POPULATION]["bound_printed"] for name in target.versus]
        ahead = [select.mean_interval(rows["bound_printed"] - other) for other in others]
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
    return Measured.of(select.mean_interval(measured - allowed), scale, cannot_fail=trivial, note=note)


def _convex_scale(row: pd.Series) -> str:
    words = "generated data" if bool(row["synthetic"]) else "real data"
    return (
        f"logistic regression, {dataset_name(str(row['dataset']))}, {words}, {int(row['subjects']):,} subjects, "
        f"{int(row['items']):,} items, 1 silo, {int(row['steps'])} steps"
    )


@dataclass(frozen=True)
class Side:
    """The runs of one algorithm and setting, one per seed."""

    runs: pd.DataFrame
    at_setting: bool

    @property
    def synthetic(self) -> bool:
        """Whether any of the runs trained on generated data."""
        return bool(self.runs["synthetic"].any())


def measure_run_target(target: Target, runs: pd.DataFrame, rounds: pd.DataFrame) -> Measured | None:
    """Measures a target on the runs of a scenario (``runs``, ``rounds``: its collected tables); None if none fits.

    None too where a run would be compared with itself. Only runs as published represent a paper. If several settings
    fit, the one that agrees with the paper's in most points is taken, then the one with most seeds.
    """
    table = published_runs(runs)
    first = choose_side(table, target.algorithm, target.setting, target.metric)
    if first is None:
        return None
    if target.metric in _OF_DATA:
        row = first.runs.iloc[0]
        value = float(row["subjects"] if target.metric == "subjects" else row["train_items"] / row["subjects"])
        return Measured.exact(value, _data_words(row), at_setting=first.at_setting, synthetic=first.synthetic)
    if not target.versus:
        return measured_on(select.mean_interval(_values(first, target.metric)), first, [], first.at_setting)
    others, estimates = [], []
    for name in target.versus:
        other = choose_side(table, name, target.versus_setting, target.metric, first, target.setting)
        if other is None or set(first.runs["run_id"]) & set(other.runs["run_id"]):
            return None
        estimate = _difference(target, first, other, rounds)
        if estimate is None:
            return None
        others.append(other)
        estimates.append(estimate)
    worst = min(estimates, key=lambda each: each.low if math.isfinite(each.low) else each.mean)
    return measured_on(worst, first, others, all(side.at_setting for side in (first, *others)))


def published_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs as published, their subjects over all silos as the papers', with columns that distinguish settings."""
    steps = runs["local_steps"]
    table = runs.assign(
        local_steps=steps.astype(str).where(steps != 0, "epoch"),
        step_rank=steps.astype(float).where(steps > 0, math.inf),
        unit=select.claimed_units(runs),
        words=steps.map(select.steps_words),
    )
    return table[(table["mode"] == AccountingMode.AS_PUBLISHED.value) & (table["silos_per_subject"] == table["silos"])]


def choose_side(
    table: pd.DataFrame,
    algorithm: str,
    setting: Setting,
    metric: str,
    beside: Side | None = None,
    beside_setting: Setting | None = None,
) -> Side | None:
    """The runs that represent an algorithm in a setting; ``beside``: the side that they are compared with."""
    rows = _federation(table[table["dataset"] == setting.dataset], setting)
    if algorithm:
        name, _, variant = algorithm.partition(":")
        chosen = variant or registry.algorithm(name).variants[0] or ""
        rows = rows[(rows["algorithm"] == name) & (rows["variant"].fillna("") == chosen)]
    if setting.alpha is not None:
        rows = rows[rows["alpha"] == setting.alpha]
    if setting.horizontal is not None:
        rows = rows[rows["horizontal"] == setting.horizontal]
    rows = _by_local_steps(rows, setting, beside, beside_setting)
    if rows.empty:
        return None
    names = (*_SETTLES_DATA, *_SETTLES_TRAINING)
    agreeing = [sum(_agrees(row, setting, name) for name in names) for _, row in rows.iterrows()]
    ranked = rows.assign(agreeing=agreeing, seeds=rows.groupby("setting")["seed"].transform("nunique"))
    first = ranked.sort_values(["agreeing", "seeds", "run_id"], ascending=[False, False, True]).iloc[0]
    chosen = rows[rows["setting"] == first["setting"]].drop_duplicates("seed")
    return Side(chosen, is_at_setting(chosen.iloc[0], setting, metric))


def _federation(rows: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    if rows.empty or setting.subjects is None:
        return rows
    wanted, most = rows["subjects"].max(), rows["subjects"].max()
    if setting.subjects == SMALL_FEMNIST_SUBJECTS:
        exact = bool((rows["subjects"] == setting.subjects).any())
        wanted = setting.subjects if exact else rows["subjects"].min()
        if wanted == most and not exact:
            return rows[:0]
    chosen: pd.DataFrame = rows[rows["subjects"] == wanted]
    return chosen


def _by_local_steps(
    rows: pd.DataFrame, setting: Setting, beside: Side | None, beside_setting: Setting | None
) -> pd.DataFrame:
    partner = None if beside_setting is None else beside_setting.local_steps
    if rows.empty or "most" not in (setting.local_steps, partner):
        return rows
    kept: pd.DataFrame
    if setting.local_steps == "most":
        kept = rows[rows["step_rank"] == rows["step_rank"].max()] if rows["step_rank"].nunique() > 1 else rows[:0]
        return kept
    kept = rows[rows["local_steps"] == setting.local_steps]
    if beside is not None:
        same = beside.runs.iloc[0]
        for name in ("rounds", "subjects", "epsilon"):
            kept = kept[kept[name] == same[name]]
    return kept


def _agrees(row: pd.Series, setting: Setting, name: str) -> bool:
    if name == "model":
        return bool(row["model"] == PAPER_MODELS.get(setting.dataset))
    wanted = getattr(setting, name)
    return wanted is None or bool(row[name] == wanted)


def is_at_setting(row: pd.Series, setting: Setting, metric: str) -> bool:
    """Whether a run was made at the paper's own setting, as far as the metric depends on it."""
    if bool(row["synthetic"]):
        return False
    if metric == "subjects":
        return row["source"] == "upstream" and not row["trimmed"]
    if metric == "items_per_subject":
        return _agrees(row, setting, "subjects")
    chosen = json.loads(row["setting"])  # no paper caps a subject, or evaluates on a part of the test items
    own = chosen["partition"].get("max_items_per_subject"), chosen["training"].get("evaluation_items")
    if own != (None, None):
        return False
    private = row["unit"] != ""
    names = [name for name in _SETTLES_TRAINING if private or name not in ("epsilon", "delta")]
    return all(_agrees(row, setting, name) for name in (*_SETTLES_DATA, *names))


def _values(side: Side, metric: str) -> pd.Series:
    column, factor = ("final_test_loss", 1.0) if metric == "test_loss" else ("final_test_accuracy", 100.0)
    return side.runs.set_index("seed")[column].astype(float) * factor


def _difference(target: Target, first: Side, other: Side, rounds: pd.DataFrame) -> select.Estimate | None:
    """The lead, or the difference in per cent, over common seeds (of means where none); None if the other is 0.

    At equal rounds the other side's accuracy is that of its last evaluated round up to the first's.
    """
    one, two = _values(first, target.metric), _values(other, target.metric)
    if target.metric == "accuracy_at_equal_rounds":
        table = rounds.merge(other.runs[["run_id", "seed"]], on="run_id")
        table = table[table["round"] <= int(first.runs["rounds_executed"].max())].sort_values("round")
        two = table.groupby("seed")["test_accuracy"].last() * 100
    ordered = target.kind is Kind.ORDER
    if not ordered and (two == 0).any():
        return None
    seeds = sorted(set(one.index) & set(two.index))
    if not seeds:
        a, b = float(np.mean(one)), float(np.mean(two))
        return select.Estimate(a - b if ordered else 100 * (a / b - 1), math.nan, math.nan, 1)
    if ordered:
        return select.paired_difference(one[seeds], two[seeds])
    return select.mean_interval(100 * (one[seeds] / two[seeds] - 1))


def measured_on(estimate: select.Estimate, side: Side, others: Sequence[Side], at_setting: bool) -> Measured:
    """An estimate with the scale and the ε of the runs that it is made from."""
    row, runs = side.runs.iloc[0], side.runs
    unit = row["unit"]
    sound = "epsilon_sound_item" if unit == PrivacyUnit.ITEM else "epsilon_sound_subject"
    return Measured.of(
        estimate,
        _scale([each.runs.iloc[0] for each in (side, *others)]),
        at_setting=at_setting,
        synthetic=side.synthetic or any(other.synthetic for other in others),
        epsilon_published=select.largest_of(runs["epsilon_as_published"]),
        epsilon_sound=math.nan if unit == "" else select.largest_of(runs[sound]),
        epsilon_sound_subject=select.largest_of(runs["epsilon_sound_subject"]),
        subject_guarantee=select.guarantees(runs),
    )


def _data_words(row: pd.Series) -> str:
    source = _SOURCES.get(str(row["source"]), str(row["source"]))
    alpha = "" if row["alpha"] == 1 else f", α = {row['alpha']:g}"
    items = f"{int(row['train_items']):,} training items"
    return f"{dataset_name(str(row['dataset']))}, {source}, {int(row['subjects']):,} subjects, {items}{alpha}"


def _scale(rows: Sequence[pd.Series]) -> str:
    def schedule(row: pd.Series) -> str:
        rule = ", s·T·R" if row["horizontal"] == "steps_times_s" else ""
        rounds = f"{int(row['rounds_executed'])} rounds of {row['words']}"
        return f"{row['label']}{rule}: {rounds}, B = {int(row['batch_size'])}"

    common = f"{_data_words(rows[0])}, {int(rows[0]['silos'])} silos, {rows[0]['model']}"
    return f"{common}; {'; '.join(map(schedule, rows))}"


def measure_rounds(target: Target, runs: pd.DataFrame, rounds: pd.DataFrame) -> Measured | None:
    """Orders of magnitude between the rounds of one local step and those of the target's, at equal accuracy.

    Each mark is a run of so many rounds; its accuracy is that of its best round, as the paper reports it. For each mark
    of the many steps, the rounds of one step are interpolated on a logarithmic scale, and the orders averaged over the
    marks that one step reaches. None without two marks of one step, or where one step reaches no mark.
    """
    table = published_runs(runs)
    table = table[(table["dataset"] == target.setting.dataset) & (table["algorithm"] == target.algorithm)]
    for name in ("epsilon", "delta", "silos", "model"):  # of several, the paper's or the most frequent
        values = list(table[name].value_counts().index)
        wanted = getattr(target.setting, name, None)
        table = table[table[name].isin([wanted] if wanted in values else values[:1])]
    table = table.assign(best=table["run_id"].map(rounds.groupby("run_id")["test_accuracy"].max()))
    many, one = (table[table["local_steps"] == steps] for steps in (target.setting.local_steps, "1"))

    def orders(seed: int) -> float:
        """Mean of log10(rounds of one / rounds of many) over the marks that one step reaches; NaN without any."""
        curves = [rows[rows["seed"] == seed].groupby("rounds")["best"].max() for rows in (many, one)]
        marks, single = (curve.sort_index() for curve in curves)
        reached = single.cummax().to_numpy()
        inside = marks[(marks >= reached[0]) & (marks <= reached[-1])]
        if len(single) < 2 or inside.empty:
            return math.nan
        needed = np.interp(inside.to_numpy(), reached, np.log10(single.index.to_numpy(dtype=np.float64)))
        return float(np.mean(needed - np.log10(inside.index.to_numpy(dtype=np.float64))))

    by_seed = [orders(seed) for seed in sorted(set(many["seed"]) & set(one["seed"]))]
    if not any(math.isfinite(order) for order in by_seed):
        return None
    sides = [Side(rows, is_at_setting(rows.iloc[0], target.setting, target.metric)) for rows in (many, one)]
    return measured_on(select.mean_interval(by_seed), sides[0], sides[1:], sides[0].at_setting)
