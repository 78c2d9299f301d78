"""The result of a private selection: which repetition is released, and the ε that it has with the selection."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from subjectdp.accounting.selection_promise import Promise, check_promise, group_plans, promise
from subjectdp.accounting.statements import CONDITIONAL
from subjectdp.config import paths
from subjectdp.config.private_selection import PrivateSelection, SelectionGroup
from subjectdp.config.run import load_run
from subjectdp.config.scenario import Scenario
from subjectdp.data.partition import Partition
from subjectdp.errors import DataError, expected
from subjectdp.plan.plan import PrivacyPlan
from subjectdp.training.build import read_inputs
from subjectdp.training.record.manifest import MANIFEST, is_complete
from subjectdp.training.selection_score import noisy_score

SEEN_BY = "whoever sees the released run alone: its model, all its noisy steps, its score"
PROVIDED = (
    "the number of repetitions, their settings, models and scores stay secret, and so does private_selection.seed",
    "all settings of private_selection.candidates are counted, drawn or not",
    "validation items are covered: a subject's move the score by at most 1, under Gaussian noise",
)
NOT_COVERED = (
    "whoever sees the other repetitions too (a server that is not trusted): ε is that of all runs (subjectdp ledger)",
    "the test accuracy, which is computed without noise, and what each run's own privacy report leaves out",
)


def select(scenario: Scenario, results: str, cache: Path | None) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """A row for each repetition, and a statement for each selection.

    Raises:
        PrivacyError: a selection that exceeds its ε.
        DataError: a run that is not finished, or was changed.
    """
    selection, rows, statements = scenario.private_selection, [], []
    if not selection.wanted:
        raise expected("private_selection.candidates", {}, "given in the scenario")
    for group in scenario.selection_groups:
        if not group.runs:
            continue
        scored = [_scored(run.run_id, results, selection, cache) for run in group.runs]
        plans = group_plans(group, scored[0].partition, cache) + [each.plan for each in scored]
        found = promise(plans, selection)
        check_promise(found, plans, selection)
        best = max(scored, key=lambda each: each.score).run_id
        rows += [_row(group, number, each, best, found) for number, each in enumerate(scored)]
        statements.append(_statement(group, best, found, selection, scored))
    return pd.DataFrame(rows), statements


@dataclass(frozen=True, eq=False)
class _Scored:
    run_id: str
    plan: PrivacyPlan
    partition: Partition
    manifest: Mapping[str, Any]
    score: float


def _scored(run_id: str, results: str, selection: PrivateSelection, cache: Path | None) -> _Scored:
    folder = Path(paths.run_dir(run_id, results))
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as problem:
        raise DataError(f"Expected run {run_id} to be finished: {problem}.") from None
    if not is_complete(folder, manifest["identity"]):
        raise DataError(
            f"The results in {folder} were changed. Remove {MANIFEST} and run the workflow again."
        )
    run = load_run(manifest["config"])
    partition = Path(paths.partition_dir(run.partition_id, results))
    inputs = read_inputs(manifest["config"], paths.prepared_dir(run.data_key, results), partition, cache)
    noise, model = selection.score_noise_multiplier, folder / "model.safetensors"
    score = noisy_score(inputs, partition, model, noise, selection.seed, cache)
    return _Scored(run_id, inputs.plan, inputs.partition, manifest, score)


def _row(group: SelectionGroup, number: int, one: _Scored, best: str, found: Promise) -> dict[str, Any]:
    return {
        "selection": group.run.run_id,
        "repetition": number,
        **group.drawn[number],
        "noisy_score": round(one.score, 4),
        "released": "yes" if one.run_id == best else "no",
        "test_accuracy_percent": round(100 * one.manifest["final"]["test_accuracy"], 2),
        "epsilon_of_this_run": one.manifest["privacy"]["sound"][found.unit]["epsilon"],
        **{f"epsilon_of_the_selection_{unit}": value for unit, value in found.epsilon.items()},
        "delta": found.delta,
        "run_id": one.run_id,
    }


def _statement(
    group: SelectionGroup, best: str, found: Promise, selection: PrivateSelection, scored: Sequence[_Scored]
) -> dict[str, Any]:
    conditional = CONDITIONAL in (
        each.manifest["privacy"]["sound"][found.unit]["guarantee"] for each in scored
    )
    return {
        "selection": group.run.run_id,
        "released": best,
        "private_selection": selection.model_dump(mode="json", exclude={"seed"}),  # which stays secret
        "epsilon": dict(found.epsilon),
        "delta": found.delta,
        "unit": found.unit,
        "guarantee": CONDITIONAL if conditional else True,
        "seen_by": SEEN_BY,
        "provided_that": list(PROVIDED),
        "not_covered": list(NOT_COVERED),
    }
