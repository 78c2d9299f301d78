"""``subjectdp ledger``: what runs on the same people give away together."""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from subjectdp.accounting.ledger import LedgerEntry, composed_epsilon
from subjectdp.accounting.plan_run import plan_from_dict
from subjectdp.accounting.statements import condition, privacy_statements
from subjectdp.cli.parser import add_json, add_results
from subjectdp.cli.run_folders import UNITS, epsilon_of, find_run, read_manifest
from subjectdp.config import load_scenario
from subjectdp.errors import ConfigError, DataError, PrivacyError, expected
from subjectdp.io.printing import print_json, print_table
from subjectdp.plan.plan import NoiseSource, PrivacyUnit


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "ledger",
        description="Composes the ε of finished runs that share subjects, unit by unit: each run alone, all together. "
        "Name every run that was made on these data, also those of other seeds and those that chose hyperparameters: "
        "a run that is left out is not counted. JSON files of a "
        "SubjectPrivacyEngine (report().to_dict(), state_dict()) and of account --json are taken too, on the people of "
        "the runs.",
    )
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="id of a finished run, or the beginning of it; or a JSON file"
    )
    parser.add_argument("--scenario", nargs="+", metavar="FILE", help="all runs of these files as well")
    parser.add_argument("--delta", type=float, help="δ of all runs together (default: the largest of a run)")
    add_results(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints each run's largest ε and that of all runs, for each data set and unit."""
    results = Path(options.results)
    files = [Path(name) for name in options.runs if name.endswith(".json")]
    folders = [find_run(results, name) for name in options.runs if not name.endswith(".json")]
    scenario = load_scenario(options.scenario) if options.scenario else None
    if scenario is not None:
        folders += [results / "runs" / each.run_id for each in scenario.runs]
    if not folders and not files:
        raise expected("runs", "none", "at least one RUN or --scenario FILE")
    manifests = {folder.name: read_manifest(folder) for folder in folders}
    runs = [*manifests.values(), *recorded_manifests(files, list(manifests.values()))]
    rows = list(ledger_rows(runs, options.delta))
    if options.json:
        print_json(rows)
    else:
        _print(rows)


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    shown = []
    for row in rows:
        mark = "†" if row["conditional"] and row["together"] is not None else ""
        epsilons = (_epsilon(row["each_run"]), _epsilon(row["together"]) + mark)
        shown.append((row["data"], row["unit"], row["runs"], *epsilons, row["delta"]))
    print_table(("data", "unit", "runs", "ε of each run, at most", "ε of all together", "δ"), shown)
    for reason in dict.fromkeys(row["reason"] for row in rows if row["reason"]):
        print(f"none: {reason}")
    if any(row["conditional"] for row in rows):
        print("† conditional: a bound that it rests on was read from the data")
    print("\nRuns that are not named are not counted: tuning runs and other seeds give away as much.")


def _epsilon(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


_GIVEN_SEED = -1  # of all trainings whose seed no record has


def recorded_manifests(files: Sequence[Path], manifests: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """What a ledger reads of trainings outside the workflow: reports and states of ``SubjectPrivacyEngine`` as JSON.

    They are on the people of the ``manifests``. Seeds are in no record: trainings from given seeds count as of one.

    Raises:
        ConfigError: files beside runs on several data sets.
        DataError: a file that holds no plan.
    """
    named = {(m["config"]["data"]["dataset"], m["config"]["data"]["source"]) for m in manifests}
    data = [{"dataset": dataset, "source": source} for dataset, source in named]
    if files and len(data) > 1:
        raise expected("data sets beside JSON files", len(data), "one: the people whose data the files are of")
    where = data[0] if data else {"dataset": "people of the files", "source": "json"}
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            plan = plan_from_dict(content["plan"])
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise DataError(
                f"Expected {file} to hold a report or a state of an engine, or what account --json prints: {problem}."
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
        for unit, words in UNITS.items():
            facts = {"data": name, "unit": words, "runs": len(some), "delta": used}
            yield facts | _composed(some, unit, used)


def _composed(manifests: Sequence[Mapping[str, Any]], unit: str, delta: float) -> dict[str, Any]:
    known = [value for run in manifests if (value := epsilon_of(run["privacy"], unit)) is not None]
    largest = max(known) if known and len(known) == len(manifests) else None
    kind = PrivacyUnit.ITEM if unit == "item" else PrivacyUnit.SUBJECT
    try:
        entries = [_entry(manifest) for manifest in manifests]
        together = composed_epsilon(entries, kind, unit == "subject", delta)
    except PrivacyError as problem:
        return {"each_run": largest, "together": None, "conditional": False, "reason": str(problem)}
    conditional = any(condition(entry.plan, kind, unit == "subject") is not None for entry in entries)
    return {"each_run": largest, "together": together, "conditional": conditional, "reason": None}


def _entry(manifest: Mapping[str, Any]) -> LedgerEntry:
    plan, run_id = plan_from_dict(manifest["plan"]), str(manifest["run_id"])
    shared = plan.settings.noise_source is NoiseSource.REPRODUCIBLE
    seed = f"seed {manifest['config']['seed']}" if shared else run_id
    return LedgerEntry(run_id, plan, seed, str(manifest["identity"]["partition"]))
