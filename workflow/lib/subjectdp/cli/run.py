"""``subjectdp plan``: what a scenario will cost and guarantee; ``run``: runs it with Snakemake behind one line of
progress, and the long log goes to a file."""

import argparse
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from subjectdp.cli.parser import Line, add_json, add_results
from subjectdp.config.scenario import Scenario, load_scenario
from subjectdp.errors import ConfigError, expected, whole_number
from subjectdp.forecast.before_start import check_before_start, figures_to_mend, replaced_runs, unread_variables
from subjectdp.io.loaded_jobs import loaded_jobs
from subjectdp.io.printing import print_json
from subjectdp.places import RESULTS, Places


def plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="scenario file; more are overlays")
    add_results(parser)
    add_json(parser, "print JSON, a row for runs that differ only in their seed")


def plan(options: argparse.Namespace) -> int:
    """Predicts what the runs of scenario files will guarantee and cost, without fetching, preparing or training
    anything, and writes plan.csv and plan.txt into the scenario's results. Exit code 1 if a run will not start.
    """
    from subjectdp.forecast.plan_report import plan_scenario  # here: accounting takes seconds to load

    scenario = load_scenario(options.files)
    line = Line(sys.stderr)
    frame, text = plan_scenario(scenario, options.results, lambda done, of: line.show(f"{done} of {of} rows planned"))
    line.end("")
    if options.json:
        print_json(frame.to_dict("records"))
    else:
        print(text, end="")
    for told in replaced_runs(scenario, options.results):
        print(told, file=sys.stderr)
    return 1 if frame["problem"].notna().any() or any(figures_to_mend(scenario)[0]) else 0


_PLAIN = {"-n", "--dry-run", "--dryrun", "--unlock", "--summary", "--list-rules", "--touch"}
"""Options of Snakemake that print something and train nothing."""

_EVERY_SECONDS = 1.0
_FAILED = re.compile(r"^(?:Error in|RuleException in|.*Exception in) rule (\w+)", re.MULTILINE)
_LOG = re.compile(r"^    log: (\S+)", re.MULTILINE)
_TOLD = re.compile(r"^(?:error: )?((?<=error: ).*|[\w.]*(?:Error|Exception)(?:: .*)?)$", re.MULTILINE)
_STEPS = re.compile(r"^(\d+ of \d+) steps", re.MULTILINE)


def run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="scenario file; more are overlays")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="cores (default: all)")


def run(options: argparse.Namespace) -> int:
    """Checks scenario files, runs them with Snakemake and makes the report. Shows one line: runs and steps done
    (subjectdp runs says more). Snakemake's own output goes to results/logs/workflow. Options for Snakemake follow after
    --, e.g. -- figure1 or -- -n.
    """
    whole_number("--cores", options.cores)
    if others := [word for word in options.passed_on if word.startswith("--configfile")]:
        raise expected("what follows --", others[0], "without it: name all scenario files before --")
    if not Path("Snakefile").is_file():
        raise expected("the working directory", str(Path.cwd()), "the checkout: the folder of the Snakefile")
    scenario = load_scenario(options.files)
    for told in (*check_before_start(scenario, files=options.files), *unread_variables(options.files)):
        print(told, file=sys.stderr)
    command = _command(options.files, options.cores, options.passed_on)
    if _PLAIN & set(options.passed_on):
        return subprocess.run(command, check=False).returncode
    _refuse_stale_lock(Path.cwd(), options.files)
    log = Path(RESULTS) / "logs" / "workflow" / f"{scenario.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    elsewhere = any(word.startswith(("--profile", "--executor", "-e")) for word in options.passed_on)
    with nullcontext(os.environ) if elsewhere else loaded_jobs() as environment:
        code = _followed(command, scenario, log, environment) or _report(command, scenario, log)
    if code != 0:
        for line in dict.fromkeys(_failures(log.read_text(errors="replace"))):
            print(f"error: {line}", file=sys.stderr)
        print(f"error: The workflow did not finish; all of its output: {log}", file=sys.stderr)
    return code


def _refuse_stale_lock(folder: Path, files: Sequence[str]) -> None:
    """ConfigError where Snakemake's lock of the folder is there, and none runs in it here or one has these files."""
    if not Path("/proc/self").exists() or not any((folder / ".snakemake" / "locks").glob("*")):
        return  # where processes cannot be seen, Snakemake says it itself
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # its jobs, which outlive it, are scripts below it
            words = os.fsdecode((process / "cmdline").read_bytes()).split("\0")
            running = any(Path(word).name == "snakemake" for word in words)
            if not running or (process / "cwd").resolve() != folder.resolve():
                continue
        except OSError:  # another user's, or ended meanwhile
            continue
        if set(files) <= set(words):  # its log would be lost
            raise expected("Snakemake", f"process {process.name} with these files", "ended here: wait, or kill it")
        return  # Snakemake says itself that it is there
    raise ConfigError(
        f"{folder} is locked by a Snakemake that no longer runs on this machine, as after a kill. If none runs on "
        "another machine: snakemake --unlock, then the same command goes on."
    )


def _command(files: Sequence[str], cores: int, passed_on: Sequence[str]) -> list[str]:
    # targets stand before --configfile, which takes every word that follows it
    return [
        *(sys.executable, "-m", "snakemake", "--cores", str(cores)),
        *("--workflow-profile", "workflow/profiles/local", *passed_on, "--configfile", *files),
    ]


def _followed(command: Sequence[str], scenario: Scenario, log: Path, environment: Mapping[str, str]) -> int:
    """Runs Snakemake with its output in ``log`` and shows a line of progress."""
    line = Line(sys.stderr)
    print(f"{scenario.name}: {len(scenario.runs)} runs; log: {log}", file=sys.stderr)
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=environment)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())  # Snakemake ends its jobs
        try:
            while process.poll() is None:
                time.sleep(_EVERY_SECONDS)
                line.show(progress(scenario, log))
        except KeyboardInterrupt:
            line.end("stopping: finished rounds are kept")
            process.wait()
            raise
    line.end(progress(scenario, log))
    return process.returncode


def progress(scenario: Scenario, log: Path) -> str:
    """``12 of 63 runs · 40 of 90 steps``: finished runs, and the workflow's steps by the end of its log."""
    done = sum(Path(Places().run_file(name, "manifest.json")).is_file() for name in scenario.runs_by_id)
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 20_000))
        steps = _STEPS.findall(stream.read().decode(errors="replace"))
    return f"{done} of {len(scenario.runs)} runs" + (f" · {steps[-1]} steps" if steps else "")


def _report(command: Sequence[str], scenario: Scenario, log: Path) -> int:
    target = Path(Places().scenario_dir(scenario.name)) / "report.html"
    options = ["--report", str(target), "--report-stylesheet", "workflow/report/report.css"]
    with log.open("a") as stream:
        done = subprocess.run([*command, *options], stdout=stream, stderr=subprocess.STDOUT, check=False)
    if done.returncode == 0:
        print(f"figures, tables and report: open {target.parent / 'index.html'}")
    return done.returncode


def _reason(log: Path) -> str:
    """What a job's log says was wrong, and where it lies."""
    told = _TOLD.findall(log.read_text(errors="replace")) if log.is_file() else []
    return f"{told[-1]} ({log})" if told else f"see {log}."


def _failures(text: str) -> Iterator[str]:
    """A line for each failed rule with its log; without one, the end of the workflow's log."""
    starts = [found.start() for found in _FAILED.finditer(text)]
    for start, end in itertools.pairwise([*starts, len(text)]):
        rule, log = _FAILED.match(text, start), _LOG.search(text, start, end)
        if rule is not None:
            yield f"Rule {rule[1]} failed" + (f": {_reason(Path(log[1]))}" if log is not None else ".")
    if not starts:
        lines = [line for line in text.split("\n") if line.strip() and not line.startswith("  File ")]  # of a traceback
        yield from lines[-8:]
