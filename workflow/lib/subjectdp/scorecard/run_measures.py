"""Targets measured on trained runs: the choice of runs for a target's setting, and the metric over their seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from subjectdp.algorithms import registry
from subjectdp.data.statistics import SMALL_FEMNIST_SUBJECTS
from subjectdp.plan.plan import AccountingMode, PrivacyUnit
from subjectdp.results.intervals import Estimate, largest_of, mean_interval, paired_difference
from subjectdp.results.labels import dataset_name, format_number
from subjectdp.results.select import claimed_units, steps_words
from subjectdp.scorecard.targets import Kind, Setting, Target
from subjectdp.scorecard.verdicts import Measured

_OF_DATA = ("subjects", "items_per_subject")
TRAINED = ("test_accuracy", "test_loss", "accuracy_at_equal_rounds", *_OF_DATA)
"""Metrics that :func:`measure_run_target` measures."""

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
        return measured_on(mean_interval(_values(first, target.metric)), first, [], first.at_setting)
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
    """The runs as published, with columns that distinguish settings."""
    steps = runs["local_steps"]
    table = runs.assign(
        local_steps=steps.astype(str).where(steps > 0, "epoch"),
        step_rank=steps.astype(float).where(steps > 0, math.inf),
        unit=claimed_units(runs),
        words=steps.map(steps_words),
    )
    return table[table["mode"] == AccountingMode.AS_PUBLISHED.value]


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
        swept = rows["step_rank"].nunique() > 1
        kept = rows[rows["step_rank"] == rows["step_rank"].max()] if swept else rows[:0]
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
    private = row["unit"] != ""
    names = [name for name in _SETTLES_TRAINING if private or name not in ("epsilon", "delta")]
    return all(_agrees(row, setting, name) for name in (*_SETTLES_DATA, *names))


def _values(side: Side, metric: str) -> pd.Series:
    column, factor = ("final_test_loss", 1.0) if metric == "test_loss" else ("final_test_accuracy", 100.0)
    return side.runs.set_index("seed")[column].astype(float) * factor


def _difference(target: Target, first: Side, other: Side, rounds: pd.DataFrame) -> Estimate | None:
    """The lead, or the difference in per cent of the other side, over common seeds.

    Of the means, without an interval, where there are none. At equal rounds the other side's accuracy is that of its
    last evaluated round up to the first's. None if it is 0, so that no percentage exists.
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
        return Estimate(a - b if ordered else 100 * (a / b - 1), math.nan, math.nan, 1)
    if ordered:
        return paired_difference(one[seeds], two[seeds])
    return mean_interval(100 * (one[seeds] / two[seeds] - 1))


def measured_on(estimate: Estimate, side: Side, others: Sequence[Side], at_setting: bool) -> Measured:
    """An estimate with the scale and the ε of the runs that it is made from."""
    row, runs = side.runs.iloc[0], side.runs
    unit = row["unit"]
    sound = "epsilon_sound_item" if unit == PrivacyUnit.ITEM else "epsilon_sound_subject"
    return Measured.of(
        estimate,
        _scale([each.runs.iloc[0] for each in (side, *others)]),
        at_setting=at_setting,
        synthetic=side.synthetic or any(other.synthetic for other in others),
        epsilon_published=largest_of(runs["epsilon_as_published"]),
        epsilon_sound=math.nan if unit == "" else largest_of(runs[sound]),
        epsilon_sound_subject=largest_of(runs["epsilon_sound_subject"]),
    )


def _data_words(row: pd.Series) -> str:
    source = _SOURCES.get(str(row["source"]), str(row["source"]))
    alpha = "" if row["alpha"] == 1 else f", α = {format_number(row['alpha'])}"
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
    return measured_on(mean_interval(by_seed), sides[0], sides[1:], sides[0].at_setting)
