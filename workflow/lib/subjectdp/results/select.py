"""Chooses the runs that a figure shows, and words about them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd

from subjectdp.plan.plan import PrivacyUnit
from subjectdp.results.claims import claimed_units
from subjectdp.results.labels import datasets_in_order, format_epsilon
from subjectdp.results.shown_runs import Shown, local_steps_of, shown_rows

CONDITIONAL_MARK = "†"
CONDITIONAL_NOTE = "† conditional: no cap is enforced, the most items of a subject were read from the data"


def choose_setting(runs: pd.DataFrame, shown: Shown) -> tuple[pd.DataFrame, list[str]]:
    """The runs that a figure shows, in their order, and a note for each choice that left runs out.

    See :func:`results.shown_runs.shown_rows`; DataError if no run is left, or two of an algorithm and seed.
    """
    places, notes = shown_rows(runs.to_dict("records"), shown)
    return runs.iloc[places], notes


def sampling_runs(runs: pd.DataFrame, preferred: Sequence[str]) -> pd.DataFrame:
    """The runs whose mini-batches a figure counts: those of the first label in ``preferred`` that was run.

    Algorithms with the same seed share their sampling and differ only in the number of rounds; the papers count
    LocalGroupDP's group sizes and HiGradAvgDP's subjects. Without any of them the algorithm with the most rounds is
    taken.
    """
    present = set(runs["label"])
    for label in preferred:
        if label in present:
            return runs[runs["label"] == label]
    longest = runs.sort_values(["rounds_executed", "label"], ascending=[False, True])["label"].iloc[0]
    chosen: pd.DataFrame = runs[runs["label"] == longest]
    return chosen


def silos_of_subject(config: str) -> int:
    """The most silos that may hold one subject's items in a run."""
    partition = json.loads(config)["partition"]
    most = partition.get("silos_per_subject")
    return int(partition["silos"] if most is None else most)


def steps_words(config: str) -> str:
    """A run's local steps in words: ``1 local step``, ``10 local steps``, ``1 local epoch``."""
    steps = local_steps_of(config)
    if steps is None:
        return "1 local epoch"
    return f"{steps} local step{'s' if steps > 1 else ''}"


def is_conditional(rows: pd.DataFrame) -> bool:
    """Whether a subject's finite sound ε of any of the runs rests on a bound that was read from private data."""
    finite = np.isfinite(rows["epsilon_sound_subject"].astype(float))
    return bool((finite & (rows["subject_guarantee"] == "conditional")).any())


def privacy_note(rows: pd.DataFrame) -> str:
    """The ε that one algorithm's runs claim and guarantee, as one line of a legend.

    A star marks a mere claim, a dagger (:data:`CONDITIONAL_MARK`) a subject's ε that is conditional.

    Slashes separate data sets.
    """
    claimed = set(claimed_units(rows))
    if claimed == {""}:
        return "no privacy"
    columns = {"epsilon_sound_subject": "subject"}
    if not claimed & {"", PrivacyUnit.SUBJECT}:
        columns = {"epsilon_sound_item": "item", **columns}
    marks = {"epsilon_sound_subject": CONDITIONAL_MARK if is_conditional(rows) else ""}
    stated = [
        f"{_spread(rows, column)}{marks.get(column, '')} {unit}"
        for column, unit in columns.items()
        if rows[column].notna().any()
    ]
    sound = f"sound ε {', '.join(stated)}" if stated else "no sound ε"
    if (rows["mode"] == "sound").all():
        return sound
    return f"published ε {_spread(rows, 'epsilon_as_published')}*; {sound}"


def _spread(rows: pd.DataFrame, column: str) -> str:
    values = [
        format_epsilon(float(rows.loc[rows["dataset"] == dataset, column].max(skipna=False)))
        for dataset in datasets_in_order(rows["dataset"])
    ]
    return values[0] if len(set(values)) == 1 else " / ".join(values)
