"""The rows of ``subjectdp ledger``, from manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from subjectdp.accounting.ledger import LedgerEntry, composed_epsilon
from subjectdp.accounting.plan_from_manifest import plan_from_dict
from subjectdp.accounting.statements import condition, privacy_statements
from subjectdp.cli.run_folders import epsilon_of
from subjectdp.errors import ConfigError, DataError, PrivacyError, expected
from subjectdp.plan.plan import NoiseSource, PrivacyUnit

_UNITS = {
    "item": "one item",
    "subject_one_silo": "one subject, at one silo",
    "subject": "one subject, at all its silos",
}


_GIVEN_SEED = -1  # of all trainings whose seed no record has


def recorded_manifests(
    files: Sequence[Path], manifests: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """What a ledger reads of trainings outside the workflow: reports and states of ``SubjectPrivacyEngine`` as JSON.

    They are on the people of the ``manifests``. Seeds are in no record: trainings from given seeds count as of one.

    Raises:
        ConfigError: files beside runs on several data sets.
        DataError: a file that holds no plan.
    """
    named = {(m["config"]["data"]["dataset"], m["config"]["data"]["source"]) for m in manifests}
    data = [{"dataset": dataset, "source": source} for dataset, source in named]
    if files and len(data) > 1:
        raise expected(
            "data sets beside JSON files", len(data), "one: the people whose data the files are of"
        )
    where = data[0] if data else {"dataset": "people of the files", "source": "json"}
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            plan = plan_from_dict(content["plan"])
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise DataError(
                f"Expected {file} to hold a report or a state of an engine: {problem}."
            ) from problem
        plan = replace(plan, rounds=int(content.get("steps", plan.rounds)))
        yield {
            "run_id": str(file),
            "config": {"seed": _GIVEN_SEED, "data": where},
            "plan": plan.to_dict(),
            "identity": {"partition": str(file)},
            "privacy": privacy_statements(plan, over_rounds=False),
        }


def ledger_rows(manifests: Sequence[Mapping[str, Any]], delta: float | None) -> Iterator[dict[str, Any]]:
    """A row for each data set and unit of finished runs.

    ``each_run`` is the largest ε of one run, ``together`` that of all; None where none can be given, with the
    ``reason``. ``conditional``: an ε rests on a bound that was read from the data.

    Raises:
        ConfigError: δ that is not between 0 and 1.
    """
    if delta is not None and not 0 < delta < 1:
        raise expected("--delta", delta, "between 0 and 1", ConfigError)
    datasets: dict[str, list[Mapping[str, Any]]] = {}
    for manifest in manifests:
        data = manifest["config"]["data"]
        datasets.setdefault(f"{data['dataset']} ({data['source']})", []).append(manifest)
    for name, some in datasets.items():
        deltas = [run["plan"]["settings"]["delta"] for run in some]
        used = max(deltas) if delta is None else delta
        for unit, words in _UNITS.items():
            yield {
                "data": name,
                "unit": words,
                "runs": len(some),
                "delta": used,
                **_composed(some, unit, used),
            }


def _composed(manifests: Sequence[Mapping[str, Any]], unit: str, delta: float) -> dict[str, Any]:
    each = [epsilon_of(manifest["privacy"], unit) for manifest in manifests]
    kind = PrivacyUnit.ITEM if unit == "item" else PrivacyUnit.SUBJECT
    try:
        entries = [_entry(manifest) for manifest in manifests]
        together = composed_epsilon(entries, kind, unit == "subject", delta)
    except PrivacyError as problem:
        return {"each_run": _largest(each), "together": None, "conditional": False, "reason": str(problem)}
    conditional = any(condition(entry.plan, kind, unit == "subject") is not None for entry in entries)
    return {"each_run": _largest(each), "together": together, "conditional": conditional, "reason": None}


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _entry(manifest: Mapping[str, Any]) -> LedgerEntry:
    plan, run_id = plan_from_dict(manifest["plan"]), str(manifest["run_id"])
    shared = plan.settings.noise_source is NoiseSource.REPRODUCIBLE
    seed = f"seed {manifest['config']['seed']}" if shared else run_id
    return LedgerEntry(run_id, plan, seed, str(manifest["identity"]["partition"]))
