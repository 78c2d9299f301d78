"""``subjectdp run``: runs a scenario with Snakemake behind one line of progress; the long log goes to a file."""

import argparse
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from subjectdp.cli.parser import Line
from subjectdp.cli.run_folders import RunFolder, State, scenario_run
from subjectdp.config import RunConfig, Scenario, load_scenario, paths
from subjectdp.errors import expected
from subjectdp.forecast.before_start import check_before_start

_PLAIN = {"-n", "--dry-run", "--dryrun", "--unlock", "--summary", "--list-rules", "--touch"}
"""Options of Snakemake that print something and train nothing."""

_EVERY_SECONDS = 1.0
_NEWEST = 3
_FAILED = re.compile(r"^(?:Error in|RuleException in|.*Exception in) rule (\w+)", re.MULTILINE)
_LOG = re.compile(r"^    log: (\S+)", re.MULTILINE)
_STEPS = re.compile(r"^(\d+ of \d+) steps", re.MULTILINE)


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "run",
        description="Checks scenario files, runs them with Snakemake and makes the report. Shows one line: runs done, "
        "a guess of the time left, the newest accuracies. Snakemake's own output goes to results/logs/workflow. "
        "Options for Snakemake follow after --, e.g. -- figure1 or -- -n.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="scenario file; more are overlays")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="cores (default: all)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs the scenario; Snakemake's exit code."""
    if not Path("Snakefile").is_file():
        raise expected("the working directory", str(Path.cwd()), "the checkout: the folder of the Snakefile")
    scenario = load_scenario(options.files)
    check_before_start(scenario, files=options.files)
    command = _command(options.files, options.cores, options.passed_on)
    if _PLAIN & set(options.passed_on):
        return subprocess.run(command, check=False).returncode
    log = Path(paths.RESULTS) / "logs" / "workflow" / f"{scenario.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    code = _followed(command, scenario, options.cores, log)
    if code == 0:
        code = _report(command, scenario, log)
    if code != 0:
        _tell_failures(log)
    return code


def _command(files: Sequence[str], cores: int, passed_on: Sequence[str]) -> list[str]:
    # targets stand before --configfile, which takes every word that follows it
    return [
        *(sys.executable, "-m", "snakemake", "--cores", str(cores)),
        *("--workflow-profile", "workflow/profiles/local", *passed_on, "--configfile", *files),
    ]


def _followed(command: Sequence[str], scenario: Scenario, cores: int, log: Path) -> int:
    """Runs Snakemake with its output in ``log`` and shows a line of progress."""
    finished, line = dict[str, RunFolder](), Line(sys.stderr)

    def seen() -> str:
        return f"{progress(scenario.runs, Path(paths.RESULTS), finished, cores)}{_steps(log)}"

    print(f"{scenario.name}: {len(scenario.runs)} runs; log: {log}", file=sys.stderr)
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())  # Snakemake ends its jobs
        try:
            while process.poll() is None:
                time.sleep(_EVERY_SECONDS)
                line.show(seen())
        except KeyboardInterrupt:
            line.end("stopping: finished rounds are kept")
            process.wait()
            raise
    line.end(seen())
    return process.returncode


def progress(runs: Sequence[RunConfig], results: Path, finished: dict[str, RunFolder], at_once: int) -> str:
    """``12 of 63 runs, 2 training, about 7 min left · newest: FedAvg 78.1 %``.

    ``finished`` keeps what has ended, which is read once; ``at_once``: runs that are trained at the same time.
    """
    folders = [finished.get(run.run_id) or scenario_run(run, results) for run in runs]
    finished |= {run.run_id: run for run in folders if run.state is State.DONE}
    parts = [f"{len(finished)} of {len(runs)} runs"]
    if training := sum(run.state is State.TRAINING for run in folders):
        parts.append(f"{training} training")
    left = seconds_left(folders, at_once)
    if left is not None and len(finished) < len(runs):
        parts.append(f"about {span(left)} left")
    newest = [run for run in reversed(finished.values()) if run.test_accuracy is not None][:_NEWEST]
    words = ", ".join(f"{run.label} {100 * (run.test_accuracy or 0.0):.1f} %" for run in newest)
    return ", ".join(parts) + (f" · newest: {words}" if words else "")


def seconds_left(runs: Iterable[RunFolder], at_once: int) -> float | None:
    """Seconds until all runs are done, as the finished and training ones suggest; None if none has told its pace.

    A run that has not begun is taken to last as those of its data set and algorithm, else as the mean of all.
    """
    known: dict[tuple[object, ...], list[float]] = {}
    open_runs, left = [], 0.0
    for run in runs:
        kind = ((run.config or {}).get("data") or {}).get("dataset"), run.label
        if run.state is State.DONE and run.wall_seconds is not None:
            known.setdefault(kind, []).append(run.wall_seconds)
        elif run.seconds_left is not None and run.rounds and run.rounds_done:
            left += run.seconds_left
            known.setdefault(kind, []).append(run.seconds_left * run.rounds / max(run.rounds - run.rounds_done, 1))
        elif run.state is not State.DONE:
            open_runs.append(kind)
    if not known:
        return None
    usual = mean(seconds for found in known.values() for seconds in found)
    return (left + sum(mean(known.get(kind, [usual])) for kind in open_runs)) / max(at_once, 1)


def span(seconds: float) -> str:
    """A time in words: 40 s, 7 min, 3.2 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _report(command: Sequence[str], scenario: Scenario, log: Path) -> int:
    target = Path(paths.scenario_dir(scenario.name)) / "report.html"
    options = ["--report", str(target), "--report-stylesheet", "workflow/report/report.css"]
    with log.open("a") as stream:
        done = subprocess.run([*command, *options], stdout=stream, stderr=subprocess.STDOUT, check=False)
    if done.returncode == 0:
        print(f"figures, tables and report: open {target.parent / 'index.html'}")
    return done.returncode


def _steps(log: Path) -> str:
    """How many of the workflow's steps are done, by the end of its log."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 20_000))
        found = _STEPS.findall(stream.read().decode(errors="replace"))
    return f" · {found[-1]} steps" if found else ""


def _tell_failures(log: Path) -> None:
    text = log.read_text(errors="replace")
    for line in dict.fromkeys(_failures(text)):
        print(f"error: {line}", file=sys.stderr)
    print(f"error: The workflow did not finish; all of its output: {log}", file=sys.stderr)


def _failures(text: str) -> Iterator[str]:
    """A line for each failed rule with its log; without one, the end of the workflow's log."""
    starts = [found.start() for found in _FAILED.finditer(text)]
    for start, end in itertools.pairwise([*starts, len(text)]):
        rule, log = _FAILED.match(text, start), _LOG.search(text, start, end)
        if rule is not None:
            yield f"Rule {rule[1]} failed" + (f": see {log[1]}." if log is not None else ".")
    if not starts:
        yield from (line for line in text.strip().split("\n")[-8:] if line.strip())
