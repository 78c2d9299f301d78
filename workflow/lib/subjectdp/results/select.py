"""Chooses the runs that a figure shows: one setting, one run per algorithm and seed."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

from subjectdp.errors import DataError, expected
from subjectdp.plan.plan import PrivacyUnit
from subjectdp.results.claims import claimed_units
from subjectdp.results.labels import dataset_name, datasets_in_order, format_epsilon, format_number

CONDITIONAL_MARK = "†"
CONDITIONAL_NOTE = "† conditional: no cap is enforced, the most items of a subject were read from the data"

_REFERENCE: dict[str, Any] = {"mode": "as_published", "horizontal": "rounds_over_sqrt_s", "alpha": 1.0}
_COLUMNS = ("mode", "horizontal", "alpha", "epsilon", "delta", "silos", "rounds", "batch_size")


def choose_setting(runs: pd.DataFrame, vary: Collection[str] = ()) -> tuple[pd.DataFrame, list[str]]:
    """The runs of one setting for each data set, and a note for each choice that left runs out.

    ``vary`` lists the swept columns that the figure shows. For other swept columns the papers' value is taken if
    present (as published, α = 1), else the most frequent one. An algorithm that was run at a single other value keeps
    it. Raises DataError if two runs of an algorithm and seed remain.
    """
    parts, notes = [], []
    for dataset in datasets_in_order(runs["dataset"]):
        part = runs[runs["dataset"] == dataset]
        for column in _COLUMNS:
            if column in vary or part[column].nunique() < 2:
                continue
            value = _preferred(part[column], column)
            kept = pd.concat([_at(rows, column, value) for _, rows in part.groupby("label", sort=True)])
            if len(kept) < len(part):
                notes.append(f"{dataset_name(dataset)}: only {_words(column, value)} shown")
            part = kept
        _require_one_run_a_seed(part, vary)
        parts.append(part)
    if not parts:
        raise expected("runs to draw", "none", "at least one run", DataError)
    return pd.concat(parts).sort_index(), notes


def without_labels(runs: pd.DataFrame, hidden: Collection[str]) -> pd.DataFrame:
    """The runs of all algorithms except ``hidden``; DataError if none is left."""
    kept = runs[~runs["label"].isin(list(hidden))]
    if kept.empty:
        raise expected(
            "algorithms to draw", sorted(set(runs["label"])), f"others than {', '.join(hidden)}", DataError
        )
    return kept


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


def local_steps_of(config: str) -> int | None:
    """The configured local steps per round of a run (``config`` as in runs.parquet); None for one epoch."""
    steps = json.loads(config)["training"].get("local_steps")
    return None if steps is None else int(steps)


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


def _preferred(values: pd.Series, column: str) -> Any:
    reference = _REFERENCE.get(column)
    if reference is not None and (values == reference).any():
        return reference
    counts = values.value_counts()
    return counts[counts == counts.max()].index.min()


def _at(rows: pd.DataFrame, column: str, value: Any) -> pd.DataFrame:
    exact: pd.DataFrame = rows[rows[column] == value]
    near: pd.DataFrame = rows[rows[column] == _preferred(rows[column], column)]
    return near if exact.empty else exact


def _words(column: str, value: Any) -> str:
    names = {"alpha": "α", "epsilon": "ε", "delta": "δ", "batch_size": "batch size"}
    shown = format_number(value) if isinstance(value, int | float) else str(value).replace("_", " ")
    return f"{names.get(column, column)} = {shown}"


def _require_one_run_a_seed(runs: pd.DataFrame, vary: Collection[str]) -> None:
    keys = ["label", "seed", *[name for name in vary if name in runs.columns]]
    extra = [local_steps_of(text) for text in runs["config"]] if "local_steps" in vary else [None] * len(runs)
    groups = runs.assign(_extra=[str(value) for value in extra]).groupby([*keys, "_extra"], sort=True)
    for key, rows in groups:
        if len(rows) > 1:
            differing = differing_keys(*[json.loads(text) for text in rows["config"].iloc[:2]])
            raise expected(
                f"runs of {key[0]} with seed {key[1]}",
                f"{len(rows)} that differ in {', '.join(differing) or 'nothing but their ids'}",
                "one in this figure; sweep these keys in a scenario of their own",
                DataError,
            )


def differing_keys(first: Any, second: Any, prefix: str = "") -> list[str]:
    """The dotted keys in which two configurations differ, sorted."""
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return [] if first == second else [prefix]
    names = sorted(set(first) | set(second))
    inner = (
        differing_keys(first.get(name), second.get(name), f"{prefix}.{name}" if prefix else name)
        for name in names
    )
    return [key for keys in inner for key in keys]
