"""Chooses the runs that a figure shows, says what their algorithms claim and guarantee, and averages over seeds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from subjectdp.algorithms.registry import is_private, mechanism
from subjectdp.errors import DataError, expected
from subjectdp.plan.plan import AccountingMode, PrivacyUnit
from subjectdp.results import shown_runs


@dataclass(frozen=True)
class Estimate:
    """A mean over ``count`` seeds with its interval; ``low`` and ``high`` are NaN for a single seed."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def half_width(self) -> float:
        """Half the length of the interval, NaN for a single seed."""
        return (self.high - self.low) / 2


def t_half_width(deviation: ArrayLike, count: ArrayLike) -> NDArray[np.float64]:
    """Half widths of t-intervals: t_{0.975, n-1} · s / √n, NaN where n < 2; s has the divisor n-1, arrays broadcast."""
    size = np.where(np.asarray(count) >= 2, count, np.nan)
    return np.asarray(stdtrit(size - 1, 0.975) * np.asarray(deviation, dtype=np.float64) / np.sqrt(size))


def mean_interval(values: ArrayLike) -> Estimate:
    """Mean and t-interval of one value per seed, of finite values alone; DataError if none is left."""
    array = np.asarray(values, dtype=np.float64).ravel()
    array = array[np.isfinite(array)]
    if array.size == 0:
        raise expected("values", values, "at least one finite number", DataError)
    mean, deviation = float(array.mean()), array.std(ddof=1) if array.size > 1 else np.nan
    half = float(t_half_width(deviation, array.size))
    return Estimate(mean, mean - half, mean + half, array.size)


def paired_difference(first: ArrayLike, second: ArrayLike) -> Estimate:
    """Mean of first - second over the same seeds, with the t-interval of the pairs' differences.

    Sharper than two separate intervals, because algorithms with the same seed share partition and sampling. Raises
    DataError if the lengths differ.
    """
    one, two = np.ravel(first), np.ravel(second)
    if one.shape != two.shape:
        raise expected("paired values", (one.size, two.size), "of the same length", DataError)
    return mean_interval(one - two)


def largest_of(values: ArrayLike) -> float:
    """The largest value over the seeds, which holds for each of them; NaN if one seed has none."""
    return float(np.max(np.asarray(values, dtype=np.float64)))


def bands(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Mean and t-interval of ``value`` for each group of ``by``: columns ``by`` + mean, low, high, seeds.

    ``low`` and ``high`` are NaN for one seed; groups without a finite value are dropped. DataError for an empty frame.
    """
    finite = frame.loc[np.isfinite(frame[value].to_numpy(dtype=np.float64)), [*by, value]]
    if finite.empty:
        raise expected(value, "no finite value", "finite in at least one row", DataError)
    groups = finite.groupby(list(by), sort=True, observed=True)[value]
    table = groups.agg(["mean", "std", "count"]).reset_index()
    half = t_half_width(table["std"].to_numpy(), table["count"].to_numpy())
    table["low"], table["high"] = table["mean"] - half, table["mean"] + half
    ordered: pd.DataFrame = table.rename(columns={"count": "seeds"})[[*by, "mean", "low", "high", "seeds"]]
    return ordered


_SOUND_OF_UNIT = {"item": "epsilon_sound_item", "subject": "epsilon_sound_subject"}


def choose_setting(runs: pd.DataFrame, shown: shown_runs.Shown) -> tuple[pd.DataFrame, list[str]]:
    """The runs that a figure shows, in their order, and a note for each choice that left runs out: ``shown_rows``."""
    places, notes = shown_runs.shown_rows(runs.to_dict("records"), shown)
    return runs.iloc[places], notes


def sampling_runs(runs: pd.DataFrame, preferred: Sequence[str]) -> pd.DataFrame:
    """The runs whose mini-batches a figure counts: those of the first label in ``preferred`` that was run.

    Algorithms with the same seed share their sampling and differ only in the number of rounds; the papers count
    LocalGroupDP's group sizes and HiGradAvgDP's subjects. Without them the algorithm with the most rounds is taken.
    """
    longest = runs.sort_values(["rounds_executed", "label"], ascending=[False, True])["label"].iloc[0]
    chosen = next((label for label in preferred if (runs["label"] == label).any()), longest)
    return runs[runs["label"] == chosen]


def steps_words(local_steps: int) -> str:
    """The column ``local_steps`` in words: ``1 local step``, ``10 local steps``, ``1 local epoch`` (0)."""
    kind, count = ("step", local_steps) if local_steps > 0 else ("epoch", max(1, -local_steps))
    return f"{count} local {kind}{'s' if count > 1 else ''}"


def claimed_units(runs: pd.DataFrame) -> pd.Series:
    """The privacy unit that each run's algorithm claims (:class:`PrivacyUnit` as text); empty: no privacy."""
    units = [
        mechanism(name, None if pd.isna(variant) else variant, AccountingMode(mode)).claimed_unit or ""
        for name, variant, mode in zip(runs["algorithm"], runs["variant"], runs["mode"], strict=True)
    ]
    return pd.Series([str(unit) for unit in units], index=runs.index, dtype=object)


def are_private(runs: pd.DataFrame) -> pd.Series:
    return runs["algorithm"].map(is_private).astype(bool)


def is_conditional(rows: pd.DataFrame) -> bool:
    """Whether a subject's finite sound ε of any of the runs rests on a bound that was read from private data."""
    finite = np.isfinite(rows["epsilon_sound_subject"].astype(float))
    return bool((finite & (rows["subject_guarantee"] == "conditional")).any())


def guarantees(rows: pd.DataFrame) -> str:
    """What a subject's sound ε of the runs is: ``yes``, ``conditional``, ``no``, or several of them."""
    return " or ".join(sorted(set(rows["subject_guarantee"])))


def privacy_note(rows: pd.DataFrame) -> str:
    """The ε that one algorithm's runs claim (*) and guarantee (†: conditionally), with slashes between data sets."""
    claimed = set(claimed_units(rows))
    if claimed == {""}:
        return "no privacy"
    mark = shown_runs.CONDITIONAL_MARK if is_conditional(rows) else ""
    columns = [("epsilon_sound_subject", f"{mark} subject")]
    if not claimed & {"", PrivacyUnit.SUBJECT}:
        columns.insert(0, ("epsilon_sound_item", " item"))
    stated = [_spread(rows, column) + words for column, words in columns if rows[column].notna().any()]
    sound = f"sound ε {', '.join(stated)}" if stated else "no sound ε"
    if (rows["mode"] == "sound").all():
        return sound
    return f"published ε {_spread(rows, 'epsilon_as_published')}*; {sound}"


def _spread(rows: pd.DataFrame, column: str) -> str:
    values = [
        shown_runs.format_epsilon(float(rows.loc[rows["dataset"] == dataset, column].max(skipna=False)))
        for dataset in shown_runs.datasets_in_order(rows["dataset"])
    ]
    return values[0] if len(set(values)) == 1 else " / ".join(values)


def sound_runs(runs: pd.DataFrame, vary: Collection[str]) -> tuple[pd.DataFrame, list[str]]:
    """The runs in sound mode of one setting except for the columns ``vary``, and notes on what was left out.

    Added columns: ``name`` (the algorithm's label), ``unit`` (that its ε is for; empty: no privacy), ``epsilon_stated``
    (that the noise was calibrated to, at that unit), ``noise_subjects`` (the number of subjects that the noise is for).
    Runs without privacy are kept. DataError for no sound run, or several settings of one algorithm and place.
    """
    runs = runs.assign(unit=claimed_units(runs))
    sound = runs[(runs["mode"] == "sound") | (runs["unit"] == "")]
    if not (runs["mode"] == "sound").any():
        raise expected("privacy.mode of the runs", sorted(set(runs["mode"])), "sound for some", DataError)
    own = [float(run.get(_SOUND_OF_UNIT.get(run["unit"], ""), np.nan)) for _, run in sound.iterrows()]
    predicted = sound["predicted_subjects"].notna()
    sound = sound.assign(
        name=sound["label"].map(shown_runs.algorithm_label),
        noise_subjects=sound["predicted_subjects"].fillna(sound["subjects"]).astype(float),
        epsilon_stated=sound["epsilon_predicted"].astype(float).where(predicted, own),
    )
    given = np.isinf(sound["epsilon"])
    notes = ["Runs with a given noise multiplier left out: no ε was their target"] if given.any() else []
    sound = sound[~given]
    if (sound["unit"] == "").all():
        allowed = "null for some, which have a target ε"
        raise expected("privacy.noise_multiplier of the runs", "given", allowed, DataError)
    if "noise_subjects" not in vary:
        sound, told = _one_noise(sound)
        notes += told
    chosen, more = choose_setting(sound, shown_runs.Shown(vary=("mode", "horizontal", "batch_size", "rounds", *vary)))
    shown_runs.require_one_setting(chosen.to_dict("records"), ("dataset", *vary))
    return chosen, [*notes, *more]


def _one_noise(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    plain = runs["unit"] == ""
    counts = runs.loc[~plain, "noise_subjects"].value_counts()
    if len(counts) < 2:
        return runs, []
    chosen = counts[counts == counts.max()].index.max()
    kept = runs[plain | (runs["noise_subjects"] == chosen)]
    return kept, [f"Only runs with the noise of {chosen:,.0f} subjects shown"]
