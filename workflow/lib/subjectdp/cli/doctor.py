"""``subjectdp doctor`` checks whether this machine is ready for a run, ``schema`` the generated files of config/."""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.cli.parser import add_json, add_results
from subjectdp.cli.runs import State, count_states, recorded_runs
from subjectdp.config.messages import allowed_text, section_of, walk_fields
from subjectdp.config.run import VARIANTS_OF_ALGORITHM, RunConfig
from subjectdp.config.scenario import RUN_KEYS, Scenario, load_scenario
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import SubjectDPError
from subjectdp.forecast.before_start import cluster_settings, unread_variables
from subjectdp.io.atomic import write_text
from subjectdp.io.printing import print_json, print_table
from subjectdp.places import CHECKOUT

LEAST_DISK_GB = 5.0
"""Free disk below which a scenario at the papers' scale will not fit; the embedded one takes under 1 GB."""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)$")
_SLURM_SECONDS = 10


class Level(StrEnum):
    GOOD = "good"
    WARNING = "warning"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    check: str
    level: Level
    detail: str
    advice: str = ""


def _judged(check: str, good: bool, detail: str, advice: str, otherwise: Level = Level.FAIL) -> Finding:
    return Finding(check, Level.GOOD, detail) if good else Finding(check, otherwise, detail, advice)


def doctor_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenario", nargs="+", metavar="FILE", help="check the data of these files")
    add_results(parser)
    add_json(parser)


def doctor(options: argparse.Namespace) -> int:
    """Checks Python and packages against the lock, devices, configuration files, data that scenarios name, disk, the
    results folder and Slurm. Exit code 1 if something will not work; a warning alone is exit code 0.
    """
    findings = examine(Path(options.results), options.scenario or ())
    failed, warned = (sum(each.level is level for each in findings) for level in (Level.FAIL, Level.WARNING))
    if options.json:
        print_json({"failed": failed, "warned": warned, "findings": [vars(each) for each in findings]})
        return int(failed > 0)
    print_table(("", "check", "found"), [(each.level, each.check, each.detail) for each in findings])
    if advice := [f"  - {each.check}: {each.advice}" for each in findings if each.advice]:
        print("\n".join(["\nWhat to do", *advice]))
    print(f"\n{failed} failed, {warned} warnings, {len(findings) - failed - warned} good")
    return int(failed > 0)


def examine(results: Path, scenario: Sequence[str] = ()) -> list[Finding]:
    """All findings, in the order in which a run needs things."""
    found = f"Python {platform.python_version()} at {sys.executable}"
    right = (3, 11) <= sys.version_info[:2] <= (3, 13)
    stale = ", ".join(path.name for path in stale_files(CHECKOUT / "config"))
    current = f"not current: {stale}" if stale else "the generated files in config/ are current"
    return [
        _judged("python", right, found, "the lock is for Python 3.11 to 3.13: make venv"),
        *_packages(CHECKOUT / "requirements.lock"),
        _torch(),
        _judged("configuration", not stale, current, "subjectdp schema --write", Level.WARNING),
        *(_data(scenario) if scenario else ()),
        *(Finding("variables", Level.WARNING, told) for told in unread_variables(scenario)),
        *_results(results),
        _slurm(),
    ]


def _packages(lock: Path) -> Iterator[Finding]:
    """Installed versions against the lock; a local part (2.13.0+cpu) satisfies the version without it."""
    if not lock.is_file():
        yield Finding("packages", Level.WARNING, f"{lock} is not there: nothing to compare with")
        return
    pins = {match[1]: match[2] for line in lock.read_text().splitlines() if (match := _PIN.match(line.strip()))}
    present = {name: found[0].version for name in pins if (found := list(metadata.distributions(name=name)))}
    missing = ", ".join(name for name in pins if name not in present)
    unequal = [name for name, found in present.items() if pins[name] not in (found, found.partition("+")[0])]
    other = ", ".join(f"{name} {present[name]} (lock: {pins[name]})" for name in unequal)
    if missing:
        yield Finding("packages", Level.FAIL, f"missing: {missing}", "make venv")
    if other:
        advice = "make venv; results and ε were checked with the lock's versions only"
        yield Finding("packages", Level.WARNING, f"not the lock's: {other}", advice)
    if not missing and not other:
        yield Finding("packages", Level.GOOD, f"all {len(pins)} of the lock, to the version")


def _torch() -> Finding:
    try:
        import torch  # here, to keep --help light
    except (ImportError, OSError) as problem:
        return Finding("devices", Level.FAIL, f"torch cannot be imported: {problem}", "make venv")
    devices = [f"cuda:{number} {torch.cuda.get_device_name(number)}" for number in range(torch.cuda.device_count())]
    found = ", ".join([*devices, f"{os.cpu_count()} cores", f"torch {torch.__version__}"])
    return Finding("devices", Level.GOOD, found)


def _data(files: Sequence[str]) -> Iterator[Finding]:
    try:
        scenario = load_scenario(files)
    except SubjectDPError as problem:
        yield Finding("scenario", Level.FAIL, str(problem).replace("\n", " "), "correct the scenario")
        return
    yield Finding("scenario", Level.GOOD, f"{scenario.name}: {len(scenario.runs)} runs")
    fetched = "is fetched from the mirrors of config/datasets.yaml, which needs a network"
    for key, data in scenario.datasets_by_key.items():
        detail = "generated by the project, synthetic" if data.source == "embedded" else fetched
        there = data.path is None or Path(data.path).exists()
        if data.path is not None:
            detail = f"{data.path} is {'' if there else 'not '}there"
        yield _judged(f"data ({key})", there, detail, "correct the path or the variable")


def _results(results: Path) -> Iterator[Finding]:
    """Disk, broken runs, and whether the results folder, or the nearest parent that exists, can be written."""
    there = next(each for each in (results.absolute(), *results.absolute().parents) if each.exists())
    free = shutil.disk_usage(there).free / 1e9
    found = f"{free:,.1f} GB free at {there}"
    yield _judged("disk", free >= LEAST_DISK_GB, found, "make room: checkpoints and tables", Level.WARNING)
    writable = os.access(there, os.W_OK | os.X_OK)
    found = f"{results} can be written" if writable else f"{there} cannot be written"
    yield _judged("results", writable, found, "use --results or change its permissions")
    if (results / "runs").is_dir():
        runs = list(recorded_runs(results))
        broken = [run.run_id for run in runs if run.state is State.BROKEN]
        advice = f"remove the manifest.json of {', '.join(broken[:3])} and run the workflow again"
        yield _judged("runs", not broken, count_states(runs) or "none yet", advice)


def _slurm() -> Finding:
    try:
        cluster_settings()
    except SubjectDPError as problem:
        return Finding("slurm", Level.FAIL, str(problem), "docs/running.md lists the variables")
    if shutil.which("sinfo") is None:
        return Finding("slurm", Level.GOOD, "not on this machine; runs are local")
    command = ["sinfo", "--noheader", "--format=%P %a %D %G"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SLURM_SECONDS)
    except subprocess.TimeoutExpired:
        detail = f"sinfo did not answer within {_SLURM_SECONDS} s: the controller is down"
        return Finding("slurm", Level.WARNING, detail, "ask the site, or run locally")
    except OSError as problem:
        return Finding("slurm", Level.WARNING, f"sinfo failed: {problem}", "run locally")
    if done.returncode != 0:
        told = " ".join(done.stderr.split()) or f"status {done.returncode}"
        return Finding("slurm", Level.WARNING, f"sinfo failed: {told}", "ask the site, or run locally")
    return Finding("slurm", Level.GOOD, "; ".join(done.stdout.split("\n")[:-1]) or "no partition")


def schema_options(parser: argparse.ArgumentParser) -> None:
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="write the files that differ")
    action.add_argument("--check", action="store_true", help="exit 1 if a file differs")
    parser.add_argument("--folder", default="config", help="configuration folder (default: %(default)s)")


def schema(options: argparse.Namespace) -> int:
    """Prints the JSON schema of scenario files. With --write, brings config.schema.json and README.md in the
    configuration folder up to date; with --check, exits 1 if they are not.
    """
    stale = stale_files(options.folder) if options.write or options.check else []
    for path in stale:
        if options.write:
            write_text(path, generated_files(options.folder)[path.name])
        print(f"wrote {path}" if options.write else f"{path} is not up to date: run subjectdp schema --write")
    if not options.write and not options.check:
        print(scenario_schema_text(), end="")
    return int(options.check and len(stale) > 0)


GENERATED = "Generated by `subjectdp schema --write`; do not edit."
_HEADER = "| key | allowed | default | meaning |\n| --- | --- | --- | --- |"


def generated_files(folder: Path | str) -> dict[str, str]:
    """File name below ``config/`` (``folder``) -> content."""
    return {"config.schema.json": scenario_schema_text(), "README.md": readme_text(folder)}


def stale_files(folder: Path | str) -> list[Path]:
    """The generated files in ``folder`` that are missing or out of date."""
    paths = [(Path(folder) / name, content) for name, content in generated_files(folder).items()]
    return [path for path, content in paths if not path.is_file() or path.read_text() != content]


def scenario_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of a scenario file, for editors. Rules that relate several keys are not part of it."""
    run = RunConfig.model_json_schema()
    definitions = run.pop("$defs")
    for name in ("algorithm", "model"):  # which may also be text
        of_section = run["properties"][name]
        of_section["anyOf"] = [{"$ref": of_section.pop("$ref")}, {"type": "string"}]
    by_dataset = _per_name(DATASETS, "RunConfig")
    nested = {**run, "properties": {**run["properties"], "datasets": {"type": "object", **by_dataset}}}
    variants = [f"{name}:{v}" for name, known in VARIANTS_OF_ALGORITHM.items() for v in known]
    axes = {"anyOf": [{"enum": ["name", *RUN_KEYS]}, {"pattern": r"^(model\.parameters|data\.expected)\."}]}
    schema = Scenario.model_json_schema()
    properties = schema["properties"]
    description = properties["run"]["description"]
    properties["run"] = {"$ref": "#/$defs/RunConfig", "description": description}
    properties["datasets"] |= by_dataset
    properties["algorithms"] |= _per_name((*ALGORITHMS, *variants), "AlgorithmRunConfig")
    properties["sweep"]["items"] = {"type": "object", "propertyNames": axes}
    schema["$defs"] = schema.get("$defs", {}) | definitions | {"RunConfig": run, "AlgorithmRunConfig": nested}
    heading = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": GENERATED}
    return heading | schema


def _per_name(names: Iterable[str], definition: str) -> dict[str, Any]:
    reference = {"$ref": f"#/$defs/{definition}"}
    return {"propertyNames": {"enum": [*names]}, "additionalProperties": reference}


def scenario_schema_text() -> str:
    return json.dumps(scenario_schema(), indent=2).replace("\\n", " ") + "\n"


def readme_text(folder: Path | str) -> str:
    """``README.md`` of ``folder`` with the reference of every key, as Markdown, between its marks."""
    path = Path(folder) / "README.md"
    text = path.read_text() if path.is_file() else ""
    runs = ((key, field) for key, field in walk_fields(RunConfig) if section_of(field) is None)
    for name, fields in (("scenario", walk_fields(Scenario)), ("run", runs)):
        start, end = f"<!-- Keys of a {name}. {GENERATED} -->", f"<!-- End of the keys of a {name}. -->"
        rows = "\n".join(_row(key, field) for key, field in fields)
        before, _, rest = text.partition(start)
        after = rest.partition(end)[2]
        text = f"{before}{start}\n{_HEADER}\n{rows}\n{end}{after}"
    return text


def _row(key: str, field: FieldInfo) -> str:
    description = " ".join((field.description or "").split())
    if section_of(field) is not None:
        return f"| `{key}` | a mapping of the keys below | | {description} |"
    value = "" if field.is_required() else field.get_default()
    text = value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True).splitlines()[0]
    default = "required" if field.is_required() else f"`{text}`"
    cells = (f"`{key}`", allowed_text(field), default, description)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
