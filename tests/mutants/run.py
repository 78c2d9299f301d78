"""Plants each bug of the catalogue in a copy of the library and checks that its tests notice.

    PYTHONPATH=tests python -m mutants.run [--quick] [--only TEXT] [--jobs N]

The named tests first pass on an unchanged copy; then each mutant has to fail every one of its tests. One line a
mutant; the last line is ``N mutants, M killed``. Exit status 1 if a mutant survives, if a text to replace is not
found exactly once, or if a test fails on the unchanged copy.

Every run is a fork of one process that has loaded the libraries that the tests need, but nothing of this project: a
mutant costs the time of its tests.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from mutants.catalogue import MUTANTS, QUICK
from mutants.mutant import Mutant

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
LIBRARY = ROOT / "workflow" / "lib"
PACKAGE = "subjectdp"
PASSED, FAILED, NO_RESULT = 0, 1, -1  # pytest's own, and ours for a run that had to be ended
NOT_THE_COPY = 90  # the tests imported another copy of the library
SLOWEST = 600.0  # seconds


class Outcome(NamedTuple):
    """What a mutant's tests said."""

    mutant: Mutant
    killed: bool
    words: str
    seconds: float


def preload() -> None:
    """Loads what the tests need and the project does not change, on one thread: forks must not inherit others."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import dp_accounting.pld.privacy_loss_distribution
    import hypothesis
    import opacus
    import pandas
    import pytest
    import scipy.stats
    import torch

    torch.set_num_threads(1)
    _ = (dp_accounting, opacus, pandas, pytest, scipy)
    hypothesis.settings.register_profile("mutants", deadline=None, database=None, derandomize=True)


def occurrences(mutant: Mutant) -> int:
    """How often the text to replace is found."""
    return (LIBRARY / PACKAGE / mutant.file).read_text(encoding="utf-8").count(mutant.old)


def copy_library(folder: Path, mutant: Mutant | None) -> None:
    """The library in ``folder``, with the bug planted."""
    shutil.copytree(LIBRARY / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is not None:
        path = folder / PACKAGE / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def run_tests(folder: Path, tests: Sequence[str], first_only: bool) -> tuple[int, str]:
    """pytest's exit status (see above) and output for tests that import the library of ``folder``."""
    log = folder / "pytest.log"
    child = os.fork()
    if child == 0:
        _as_child(folder, tests, log, first_only)
    end = time.monotonic() + SLOWEST
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), log.read_text(encoding="utf-8", errors="replace")
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return NO_RESULT, f"no result within {SLOWEST:g} s"


def _as_child(folder: Path, tests: Sequence[str], log: Path, first_only: bool) -> None:
    """Runs pytest and ends the process: nothing of the parent's stack is unwound."""
    status = 3
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(ROOT)
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(folder))
        import hypothesis
        import pytest

        hypothesis.settings.load_profile("mutants")
        arguments = ["-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist"]
        arguments += ["-c", str(ROOT / "pyproject.toml")]
        arguments += ["-o", f"pythonpath={folder} {TESTS}", *(["-x"] if first_only else [])]
        status = int(pytest.main([*arguments, *(str(TESTS / test) for test in tests)]))
        package = sys.modules.get(PACKAGE)
        if package is None or not str(package.__file__).startswith(str(folder)):
            status = NOT_THE_COPY
        sys.stdout.flush()
    finally:
        os._exit(status)


def judge(mutant: Mutant) -> Outcome:
    """Runs each of the mutant's tests on its own against the mutated copy."""
    start = time.monotonic()
    found = occurrences(mutant)
    if found != 1:
        return Outcome(mutant, False, f"the text to replace occurs {found} times in {mutant.file}", 0.0)
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name).resolve()
        copy_library(folder, mutant)
        statuses = {test: run_tests(folder, [test], first_only=True)[0] for test in mutant.tests}
    spared = [f"{test} (status {status})" for test, status in statuses.items() if status != FAILED]
    words = "survives " + ", ".join(spared) if spared else "by " + ", ".join(mutant.tests)
    return Outcome(mutant, not spared, words, time.monotonic() - start)


def clean_run(mutants: Sequence[Mutant]) -> str | None:
    """What goes wrong when the named tests run on an unchanged copy; None if they pass."""
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    with tempfile.TemporaryDirectory(prefix="clean-") as name:
        folder = Path(name).resolve()
        copy_library(folder, None)
        status, output = run_tests(folder, tests, first_only=False)
    return None if status == PASSED else f"{output}\nstatus {status} on the unchanged library"


def outcomes(mutants: Sequence[Mutant], jobs: int) -> Iterator[Outcome]:
    """In the order of the catalogue."""
    if jobs == 1:
        yield from map(judge, mutants)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        yield from pool.map(judge, mutants)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="mutants.run", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fixed selection")
    parser.add_argument("--only", default="", help="mutants whose name or file contains this")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    options = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if not options.quick or m.name in QUICK]
    chosen = [m for m in chosen if options.only in m.name or options.only in m.file]
    if not chosen:
        parser.error("no such mutant")
    preload()
    problem = clean_run(chosen)
    if problem is not None:
        print(problem)
        return 1
    killed = 0
    for outcome in outcomes(chosen, options.jobs):
        killed += outcome.killed
        verdict = "killed" if outcome.killed else "ALIVE "
        print(f"{verdict} {outcome.seconds:5.1f} s  {outcome.mutant.name}: {outcome.words}", flush=True)
    print(f"{len(chosen)} mutants, {killed} killed")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
