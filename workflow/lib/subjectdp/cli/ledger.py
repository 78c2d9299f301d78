"""``subjectdp ledger``: what runs on the same people give away together; ``statement``: one page on a run's privacy."""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from subjectdp.accounting.calibration import kept_in
from subjectdp.accounting.ledger import LedgerEntry, composed_epsilon
from subjectdp.accounting.make_plan import plan_from_dict, plan_run
from subjectdp.accounting.statements import SCOPES, ItemFacts, condition, privacy_statements
from subjectdp.cli.parser import add_json, add_results, check_output
from subjectdp.cli.runs import epsilon_of, find_run, read_manifest, stated_units
from subjectdp.config.scenario import load_scenario
from subjectdp.data.partition import load_partition
from subjectdp.errors import ConfigError, DataError, PrivacyError, expected, whole_number
from subjectdp.io.atomic import SEAL, is_intact
from subjectdp.io.printing import print_json, print_table
from subjectdp.places import STATEMENT_SUFFIXES, Places
from subjectdp.plan.plan import NoiseSource, PrivacyPlan


def ledger_options(parser: argparse.ArgumentParser) -> None:
    help_ = "id of a finished run, or the beginning of it; or a JSON file"
    parser.add_argument("runs", nargs="*", metavar="RUN", help=help_)
    parser.add_argument("--scenario", nargs="+", metavar="FILE", help="all runs of these files as well")
    parser.add_argument("--delta", type=float, help="δ of all runs together (default: the largest of a run)")
    add_results(parser)
    add_json(parser)


def ledger(options: argparse.Namespace) -> None:
    """Composes the ε of finished runs that share subjects, unit by unit: each run alone, all together. Name every run
    that was made on these data, also those of other seeds and those that chose hyperparameters: a run that is left out
    is not counted. JSON files of a SubjectPrivacyEngine (report().to_dict(), state_dict()) and of account --json are
    taken too, on the people of the runs.
    """
    results = Path(options.results)
    files = [Path(name) for name in options.runs if name.endswith(".json")]
    folders = [find_run(results, name) for name in options.runs if not name.endswith(".json")]
    if options.scenario:
        folders += [results / "runs" / each.run_id for each in load_scenario(options.scenario).runs]
    if not folders and not files:
        raise expected("runs", "none", "at least one RUN or --scenario FILE")
    manifests = [read_manifest(folder) for folder in dict.fromkeys(folders)]  # a run named twice is one
    rows = list(ledger_rows([*manifests, *recorded_manifests(files, manifests)], options.delta))
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
    if len({row["data"] for row in rows}) > 1:
        print("Data sets and their sources are counted apart: who is in several loses more than any row says.")
    print("\nRuns that are not named are not counted: tuning runs and other seeds give away as much.")


def _epsilon(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def recorded_manifests(files: Sequence[Path], manifests: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """What a ledger reads of trainings outside the workflow: reports and states of ``SubjectPrivacyEngine`` as JSON.

    They are on the people of the ``manifests``. Seeds are in no record: trainings from given seeds count as of one.
    Raises ConfigError for files beside runs on several data sets, DataError for a file that holds no plan.
    """
    named = {(m["config"]["data"]["dataset"], m["config"]["data"]["source"]) for m in manifests}
    data = [{"dataset": dataset, "source": source} for dataset, source in named]
    if files and len(data) > 1:
        raise expected("data sets beside JSON files", len(data), "one: the people whose data the files are of")
    where = data[0] if data else {"dataset": "people of the files", "source": "json"}
    for file in files:
        _, plan = recorded(Path(), str(file))
        yield {
            "run_id": str(file),
            "config": {"seed": -1, "data": where},  # the seed of all trainings whose seed no record has
            "plan": plan.to_dict(),
            "identity": {"partition": str(file)},
            "privacy": privacy_statements(plan, over_rounds=False),
        }


def ledger_rows(manifests: Sequence[Mapping[str, Any]], delta: float | None) -> Iterator[dict[str, Any]]:
    """A row for each data set and unit of finished runs.

    ``each_run`` is the largest ε of one run, ``together`` that of all; None where none can be given, with the
    ``reason``. ``conditional``: an ε rests on a bound that was read from the data. Raises ConfigError for a wrong δ.
    """
    if delta is not None and not 0 < delta < 1:
        raise expected("--delta", delta, "between 0 and 1", ConfigError)
    datasets: dict[str, list[Mapping[str, Any]]] = {}
    for manifest in manifests:
        data = manifest["config"]["data"]
        datasets.setdefault(f"{data['dataset']} ({data['source']})", []).append(manifest)
    for name, some in datasets.items():
        used = max(run["plan"]["settings"]["delta"] for run in some) if delta is None else delta
        for unit, words in stated_units([run["privacy"] for run in some]).items():
            facts = {"data": name, "unit": words, "runs": len(some), "delta": used}
            yield facts | _composed(some, unit, used)


def _composed(manifests: Sequence[Mapping[str, Any]], unit: str, delta: float) -> dict[str, Any]:
    kind, every = SCOPES[unit]
    entries = [_entry(manifest) for manifest in manifests]
    stated = [epsilon_of(run["privacy"], unit) for run in manifests]
    known = [
        value if entry.plan.settings.delta <= delta else composed_epsilon([entry], kind, every, delta)
        for entry, value in zip(entries, stated, strict=True)
        if value is not None
    ]
    largest = max(known) if known and len(known) == len(manifests) else None
    try:
        together = composed_epsilon(entries, kind, every, delta)
    except PrivacyError as problem:
        return {"each_run": largest, "together": None, "conditional": False, "reason": str(problem)}
    conditional = any(condition(entry.plan, kind, every) is not None for entry in entries)
    return {"each_run": largest, "together": together, "conditional": conditional, "reason": None}


def _entry(manifest: Mapping[str, Any]) -> LedgerEntry:
    plan, run_id = plan_from_dict(manifest["plan"]), str(manifest["run_id"])
    seed = f"seed {manifest['config']['seed']}" if plan.settings.noise_source is NoiseSource.REPRODUCIBLE else run_id
    return LedgerEntry(run_id, plan, seed, str(manifest["identity"]["partition"]))


def statement_options(parser: argparse.ArgumentParser) -> None:
    help_ = "id of a finished run, or the beginning of it; or a silo's ledger file (JSON)"
    parser.add_argument("run_id", metavar="RUN", help=help_)
    add_results(parser)
    parser.add_argument("--output", metavar="FILE", help="write to FILE, by its suffix .md, .html or .pdf")


def statement(options: argparse.Namespace) -> None:
    """One page in plain language: who is protected, against whom, how well, what that means for a person, what must be
    true, and what is not covered (the questions of NIST SP 800-226).
    """
    check_output("--output", options.output, STATEMENT_SUFFIXES)
    record, plan = recorded(Path(options.results), options.run_id)
    privacy = record.get("privacy")
    if privacy is None or SEAL not in record:  # what anybody may have written is made anew from the plan
        alone = isinstance(privacy, Mapping) and privacy.get("own_subjects")
        privacy = privacy_statements(plan, over_rounds=False, items=ItemFacts(own_subjects=True) if alone else None)
    write_page(plan, privacy, f"run {record.get('run_id', options.run_id)}", options.output)


def write_page(plan: PrivacyPlan, privacy: Mapping[str, Any], of: str, output: str | None) -> None:
    """The statement on a plan: printed as Markdown, or written to ``output``."""
    # here: the template and the PDF need packages of the workflow
    from subjectdp.report.statement import rendered, statement_sections, write_statement

    sections, title = statement_sections(plan, privacy, of), f"Privacy statement: {plan.mechanism.title}"
    if output is None:
        print(rendered(sections, title))
    else:
        write_statement(Path(output), sections, title)


def recorded(results: Path, name: str) -> tuple[dict[str, Any], PrivacyPlan]:
    """What a JSON file, or a finished run's manifest, holds, and its plan; of an engine's state that of its steps.

    Raises DataError where there is none, or where a sealed file was changed.
    """
    of_run = not name.endswith(".json")
    file = find_run(results, name) / "manifest.json" if of_run else Path(name)
    manifest = read_manifest(file.parent) if of_run else None
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if manifest is None else manifest
        plan = plan_from_dict(content["plan"])
        plan = replace(plan, rounds=whole_number("steps or rounds", content.get("steps", plan.rounds)))
        if not plan.silos or (SEAL in content and not is_intact(content)):
            raise ValueError("it was changed after it was written")
        return content, plan
    except (OSError, ValueError, KeyError, TypeError, ConfigError) as problem:
        raise DataError(
            f"Expected {file} to hold a plan, as a manifest, a silo's ledger and what account --json prints do, or to "
            f"hold a report or a state of an engine: {str(problem).rstrip('.')}."
        ) from problem


def configured_plans(files: list[str], results: Path) -> Iterator[tuple[str, PrivacyPlan, bool]]:
    """Run id and plan of a scenario's runs, and whether there are no subject ids; DataError without a partition."""
    for run in load_scenario(files).runs:
        folder = results / "partitions" / run.partition_id
        if not folder.is_dir():
            raise DataError(f"Run {run.run_id} needs its partition, {folder}: subjectdp run makes it.")
        with kept_in(Places(str(results)).calibration_cache_dir()):
            plan = plan_run(run, load_partition(folder))
        yield run.run_id, plan, run.data.own_subjects
