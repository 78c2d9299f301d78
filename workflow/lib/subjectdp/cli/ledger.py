"""``subjectdp ledger``: what runs on the same people give away together."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from subjectdp.cli.options import add_json, add_results
from subjectdp.cli.run_folders import epsilon_of, find_run, read_manifest
from subjectdp.config import load_scenario
from subjectdp.errors import ConfigError, PrivacyError, expected
from subjectdp.io.printing import print_json, print_table

_UNITS = {
    "item": "one item",
    "subject_one_silo": "one subject, at one silo",
    "subject": "one subject, at all its silos",
}


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "ledger",
        help="compose the ε of runs on the same people",
        description="Composes the ε of finished runs that share subjects, unit by unit: each run alone, all together. "
        "Name every run that was made on these data, also those of other seeds and those that chose hyperparameters: "
        "a run that is left out is not counted.",
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="id of a finished run, or the beginning of it")
    parser.add_argument("--scenario", nargs="+", metavar="FILE", help="all runs of these files as well")
    parser.add_argument("--delta", type=float, help="δ of all runs together (default: the largest of a run)")
    add_results(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints each run's largest ε and that of all runs, for each data set and unit."""
    results = Path(options.results)
    folders = [find_run(results, name) for name in options.runs]
    if options.scenario:
        folders += [results / "runs" / each.run_id for each in load_scenario(options.scenario).runs]
    if not folders:
        raise expected("runs", "none", "at least one RUN or --scenario FILE")
    manifests = {folder.name: read_manifest(folder) for folder in folders}
    rows = list(ledger_rows(list(manifests.values()), options.delta))
    if options.json:
        print_json(rows)
    else:
        _print(rows)


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
    from subjectdp.accounting.ledger import composed_epsilon  # here, to keep --help light
    from subjectdp.plan.plan import PrivacyUnit

    each = [epsilon_of(manifest["privacy"], unit) for manifest in manifests]
    largest = None if None in each else max(value for value in each if value is not None)
    kind = PrivacyUnit.ITEM if unit == "item" else PrivacyUnit.SUBJECT
    try:
        entries = [_entry(manifest) for manifest in manifests]
        together = composed_epsilon(entries, kind, unit == "subject", delta)
    except PrivacyError as problem:
        return {"each_run": largest, "together": None, "reason": str(problem)}
    return {"each_run": largest, "together": together, "reason": None}


def _entry(manifest: Mapping[str, Any]) -> Any:
    from subjectdp.accounting.ledger import LedgerEntry
    from subjectdp.accounting.plan_from_manifest import plan_from_dict
    from subjectdp.plan.plan import NoiseSource

    plan, run_id = plan_from_dict(manifest["plan"]), str(manifest["run_id"])
    secure = plan.settings.noise_source is NoiseSource.SECURE
    seed = run_id if secure else f"seed {manifest['config']['seed']}"
    return LedgerEntry(run_id, plan, seed, str(manifest["identity"]["partition"]))


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    shown = [
        (
            row["data"],
            row["unit"],
            row["runs"],
            _epsilon(row["each_run"]),
            _epsilon(row["together"]),
            row["delta"],
        )
        for row in rows
    ]
    print_table(("data", "unit", "runs", "ε of each run, at most", "ε of all together", "δ"), shown)
    for reason in dict.fromkeys(row["reason"] for row in rows if row["reason"]):
        print(f"none: {reason}")
    print("\nRuns that are not named are not counted: tuning runs and other seeds give away as much.")


def _epsilon(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
