"""Runs in sound mode: those of one setting, with the ε that their noise was calibrated to."""

from __future__ import annotations

import math
from collections.abc import Collection

import pandas as pd

from subjectdp.errors import DataError, expected
from subjectdp.plan.plan import PrivacyUnit
from subjectdp.results.claims import claimed_units
from subjectdp.results.labels import algorithm_label
from subjectdp.results.select import choose_setting, silos_of_subject
from subjectdp.results.shown_runs import Shown

_SOUND_OF_UNIT = {PrivacyUnit.ITEM: "epsilon_sound_item", PrivacyUnit.SUBJECT: "epsilon_sound_subject"}


def sound_runs(runs: pd.DataFrame, vary: Collection[str]) -> tuple[pd.DataFrame, list[str]]:
    """The sound runs of one setting except for the columns ``vary``, and notes on what was left out.

    Columns added to those of runs.parquet: ``name`` (the algorithm's label without the mark of predicted noise),
    ``unit`` (that its ε is for; empty: no privacy), ``epsilon_stated`` (at that unit; of the subjects that predicted
    noise is for), ``silos_per_subject``, and ``noise_subjects`` (the number of subjects that the noise is for).

    Runs without privacy have no mode and are always kept.

    Raises:
        DataError: no sound run, or two runs of one algorithm, seed and place.
    """
    runs = runs.assign(unit=claimed_units(runs))
    sound = runs[(runs["mode"] == "sound") | (runs["unit"] == "")]
    if not (runs["mode"] == "sound").any():
        raise expected("privacy.mode of the runs", sorted(set(runs["mode"])), "sound for some", DataError)
    sound = sound.assign(
        name=sound["label"].map(algorithm_label),
        silos_per_subject=[float(silos_of_subject(text)) for text in sound["config"]],
        noise_subjects=sound["predicted_subjects"].fillna(sound["subjects"]).astype(float),
        epsilon_stated=[_stated(row) for _, row in sound.iterrows()],
    )
    notes: list[str] = []
    if "noise_subjects" not in vary:
        sound, notes = _one_noise(sound)
    chosen, more = choose_setting(sound, Shown(vary=("mode", "horizontal", "batch_size", "rounds", *vary)))
    return chosen, [*notes, *more]


def _one_noise(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Private runs with noise for one number of subjects, the most frequent one; runs without privacy stay."""
    plain = runs["unit"] == ""
    counts = runs.loc[~plain, "noise_subjects"].value_counts()
    if len(counts) < 2:
        return runs, []
    chosen = counts[counts == counts.max()].index.max()
    kept = runs[plain | (runs["noise_subjects"] == chosen)]
    return kept, [f"Only runs with the noise of {chosen:,.0f} subjects shown"]


def _stated(run: pd.Series) -> float:
    """The ε that the run's noise was calibrated to, at the unit that the algorithm protects; NaN if there is none."""
    if not math.isnan(run["predicted_subjects"]):
        return float(run["epsilon_predicted"])
    return float(run.get(_SOUND_OF_UNIT.get(run["unit"], ""), math.nan))
