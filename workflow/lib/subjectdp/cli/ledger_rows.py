"""The rows of ``subjectdp ledger``, from manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from subjectdp.accounting.ledger import LedgerEntry, composed_epsilon
from subjectdp.accounting.plan_from_manifest import plan_from_dict
from subjectdp.cli.run_folders import epsilon_of
from subjectdp.errors import ConfigError, PrivacyError, expected
from subjectdp.plan.plan import NoiseSource, PrivacyUnit

_UNITS = {
    "item": "one item",
    "subject_one_silo": "one subject, at one silo",
    "subject": "one subject, at all its silos",
}


def ledger_rows(manifests: Sequence[Mapping[str, Any]], delta: float | None) -> Iterator[dict[str, Any]]:
    """A row for each data set and unit of finished runs.

    ``each_run`` is the largest ε of one run, ``together`` that of all; None where none can be given, with the
    ``reason``.

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
        used = max(run["plan"]["settings"]["delta"] for run in some) if delta is None else delta
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
    largest = None if None in each else max(value for value in each if value is not None)
    kind = PrivacyUnit.ITEM if unit == "item" else PrivacyUnit.SUBJECT
    try:
        entries = [_entry(manifest) for manifest in manifests]
        together = composed_epsilon(entries, kind, unit == "subject", delta)
    except PrivacyError as problem:
        return {"each_run": largest, "together": None, "reason": str(problem)}
    return {"each_run": largest, "together": together, "reason": None}


def _entry(manifest: Mapping[str, Any]) -> LedgerEntry:
    plan, run_id = plan_from_dict(manifest["plan"]), str(manifest["run_id"])
    secure = plan.settings.noise_source is NoiseSource.SECURE
    seed = run_id if secure else f"seed {manifest['config']['seed']}"
    return LedgerEntry(run_id, plan, seed, str(manifest["identity"]["partition"]))
