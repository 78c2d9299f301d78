"""``subjectdp doctor``: checks whether this machine is ready for a run, and changes nothing."""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any

from subjectdp.cli.parser import add_json, add_results
from subjectdp.cli.run_folders import State, count_states, recorded_runs
from subjectdp.config import load_scenario, schema
from subjectdp.errors import SubjectDPError
from subjectdp.forecast.cluster import cluster_settings
from subjectdp.io.printing import print_json, print_table
from subjectdp.places import CHECKOUT

LEAST_DISK_GB = 5.0
"""Free disk below which a scenario at the papers' scale will not fit; the embedded one takes under 1 GB."""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)$")
_SLURM_SECONDS = 10


class Level(StrEnum):
    """How bad a finding is."""

    GOOD = "good"
    WARNING = "warning"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    level: Level
    detail: str
    advice: str = ""


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "doctor",
        description="Checks Python and packages against the lock, devices, configuration files, data that scenarios "
        "name, disk and memory, the results folder and Slurm. Exit code 1 if something will not work; a warning alone "
        "is exit code 0.",
    )
    parser.add_argument("--scenario", nargs="+", metavar="FILE", help="check the data of these files")
    add_results(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints all findings and what to do; 1 if a check failed."""
    findings = examine(Path(options.results), options.scenario)
    failed = sum(finding.level is Level.FAIL for finding in findings)
    warned = sum(finding.level is Level.WARNING for finding in findings)
    if options.json:
        print_json({"failed": failed, "warned": warned, "findings": [vars(each) for each in findings]})
        return 1 if failed else 0
    print_table(("", "check", "found"), [(each.level, each.check, each.detail) for each in findings])
    advice = [f"{each.check}: {each.advice}" for each in findings if each.advice]
    if advice:
        print("\nWhat to do")
        for line in advice:
            print(f"  - {line}")
    print(f"\n{failed} failed, {warned} warnings, {len(findings) - failed - warned} good")
    return 1 if failed else 0


def examine(results: Path, scenario: Sequence[str] | None = None) -> list[Finding]:
    """All findings, in the order in which a run needs things."""
    machine = [_python(), *_packages(CHECKOUT / "requirements.lock"), _torch()]
    files = [*_generated(CHECKOUT / "config"), *_data(scenario)]
    return [*machine, *files, _disk(results), _memory(), _writable(results), *_runs(results), *_slurm()]


def _python() -> Finding:
    found = f"Python {platform.python_version()} at {sys.executable}"
    version = tuple(int(part) for part in platform.python_version_tuple()[:2])
    if (3, 11) <= version <= (3, 13):
        return Finding("python", Level.GOOD, found)
    level = Level.FAIL if version < (3, 11) else Level.WARNING
    return Finding("python", level, found, "the lock is for Python 3.11 to 3.13: make venv")


def _packages(lock: Path) -> Iterator[Finding]:
    """Installed versions against the lock; a local part (2.13.0+cpu) satisfies the version without it."""
    if not lock.is_file():
        yield Finding("packages", Level.WARNING, f"{lock} is not there: nothing to compare with")
        return
    pins = [match for line in lock.read_text().splitlines() if (match := _PIN.match(line.strip()))]
    missing, other = [], []
    for pin in pins:
        name, wanted = pin.groups()
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if wanted not in (found, found.partition("+")[0]):
            other.append(f"{name} {found} (lock: {wanted})")
    if missing:
        yield Finding("packages", Level.FAIL, f"missing: {', '.join(missing)}", "make venv")
    if other:
        advice = "make venv; results and ε were checked with the lock's versions only"
        yield Finding("packages", Level.WARNING, f"not the lock's: {', '.join(other)}", advice)
    if not missing and not other:
        yield Finding("packages", Level.GOOD, f"all {len(pins)} of the lock, to the version")


def _torch() -> Finding:
    try:
        import torch  # here, to keep --help light
    except (ImportError, OSError) as problem:
        return Finding("devices", Level.FAIL, f"torch cannot be imported: {problem}", "make venv")
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if not torch.cuda.is_available():
        build = "without CUDA" if torch.version.cuda is None else f"for CUDA {torch.version.cuda}, no device"
        return Finding("devices", Level.GOOD, f"CPU, {cpus} cores; torch {torch.__version__} is built {build}")
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    listed = ", ".join(f"cuda:{index} {name}" for index, name in enumerate(names))
    return Finding("devices", Level.GOOD, f"{listed}; {cpus} cores; torch {torch.__version__}")


def _generated(folder: Path) -> Iterator[Finding]:
    stale = schema.stale_files(folder)
    if stale:
        names = ", ".join(path.name for path in stale)
        yield Finding("configuration", Level.WARNING, f"not current: {names}", "subjectdp schema --write")
    else:
        yield Finding("configuration", Level.GOOD, f"the generated files in {folder.name}/ are current")


def _data(files: Sequence[str] | None) -> Iterator[Finding]:
    """The data of the scenario; without one, the paths in environment variables ``SUBJECTDP_*``."""
    if files is None:
        named = {
            name: value for name, value in sorted(os.environ.items()) if name.startswith("SUBJECTDP_") and "/" in value
        }
        for name, value in named.items():
            yield _path(f"data ({name})", value)
        if not named:
            yield Finding("data", Level.GOOD, "no paths in SUBJECTDP_*; embedded data need none")
        return
    try:
        scenario = load_scenario(files)
    except SubjectDPError as problem:
        yield Finding("scenario", Level.FAIL, str(problem).replace("\n", " "), "correct the scenario")
        return
    yield Finding("scenario", Level.GOOD, f"{scenario.name}: {len(scenario.runs)} runs")
    for key, data in scenario.datasets_by_key.items():
        if data.path is not None:
            yield _path(f"data ({key})", data.path)
        elif data.source == "embedded":
            yield Finding(f"data ({key})", Level.GOOD, "generated by the project, synthetic")
        else:
            detail = "is fetched from the mirrors of config/datasets.yaml, which needs a network"
            yield Finding(f"data ({key})", Level.GOOD, detail)


def _path(check: str, value: str) -> Finding:
    if Path(value).exists():
        return Finding(check, Level.GOOD, f"{value} is there")
    return Finding(check, Level.FAIL, f"{value} is not there", "correct the path or the variable")


def _existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())


def _disk(results: Path) -> Finding:
    there = _existing(results)
    free = shutil.disk_usage(there).free / 1e9
    found = f"{free:,.1f} GB free at {there}"
    if free >= LEAST_DISK_GB:
        return Finding("disk", Level.GOOD, found)
    return Finding("disk", Level.WARNING, found, "subjectdp plan FILE says what a scenario takes")


def _memory() -> Finding:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (ValueError, OSError):
        return Finding("memory", Level.WARNING, "unknown on this system")
    level = Level.GOOD if total >= 3.5 else Level.WARNING
    advice = "" if level is Level.GOOD else "one run at a time"
    return Finding("memory", level, f"{total:,.1f} GB in this machine", advice)


def _writable(results: Path) -> Finding:
    there = _existing(results)
    if os.access(there, os.W_OK | os.X_OK):
        return Finding("results", Level.GOOD, f"{results} can be written")
    return Finding("results", Level.FAIL, f"{there} cannot be written", "use --results or change its permissions")


def _runs(results: Path) -> Iterator[Finding]:
    if not (results / "runs").is_dir():
        return
    runs = list(recorded_runs(results))
    broken = [run.run_id for run in runs if run.state is State.BROKEN]
    counts = ", ".join(f"{count} {state}" for state, count in count_states(runs).items())
    if broken:
        advice = f"remove the manifest.json of {', '.join(broken[:3])} and run the workflow again"
        yield Finding("runs", Level.FAIL, counts, advice)
    else:
        yield Finding("runs", Level.GOOD, counts or "none yet")


def _slurm() -> Iterator[Finding]:
    if shutil.which("sinfo") is None:
        yield Finding("slurm", Level.GOOD, "not on this machine; runs are local")
        return
    try:
        cluster_settings()
        done = subprocess.run(
            ["sinfo", "--noheader", "--format=%P %a %D %G"],
            capture_output=True,
            text=True,
            timeout=_SLURM_SECONDS,
            check=True,
        )
    except SubjectDPError as problem:
        yield Finding("slurm", Level.FAIL, str(problem), "docs/running.md lists the variables")
    except subprocess.TimeoutExpired:
        detail = f"sinfo did not answer within {_SLURM_SECONDS} s: the controller is down"
        yield Finding("slurm", Level.WARNING, detail, "ask the site, or run locally")
    except (OSError, subprocess.CalledProcessError) as problem:
        yield Finding("slurm", Level.WARNING, f"sinfo failed: {problem}", "run locally")
    else:
        partitions = "; ".join(done.stdout.split("\n")[:-1]) or "no partition"
        yield Finding("slurm", Level.GOOD, partitions)
