"""Plants a bug in a copy of the library and runs tests against the copy."""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

from mutants.catalogue import Mutant

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
LIBRARY = ROOT / "workflow" / "lib"
PACKAGE = "subjectdp"
PASSED, FAILED, NO_RESULT = 0, 1, -1  # pytest's own, and ours for a run that had to be ended
NOT_THE_COPY = 90  # the tests imported another copy of the library
SLOWEST = 600.0  # seconds

# Each run is a fork of one server that has loaded the libraries that the tests need, on one thread and without this
# project: a mutant costs the time of its tests.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
SERVER = get_context("forkserver")
SERVER.set_forkserver_preload(["mutants.preloaded"])


def killed(status: int) -> bool:
    """Whether a test noticed the bug: it failed, or a signal (a segmentation fault) ended it."""
    return status == FAILED or status < NO_RESULT


def occurrences(mutant: Mutant) -> int:
    """How often the text to replace is found."""
    return (LIBRARY / PACKAGE / mutant.file).read_text(encoding="utf-8").count(mutant.old)


def run_tests(tests: Sequence[str], mutant: Mutant | None, first_only: bool = False) -> tuple[int, str]:
    """pytest's exit status (see above) and output for tests of a copy of the library with the bug planted."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name).resolve()
        _copy_library(folder, mutant)
        process = SERVER.Process(target=_run, args=(folder, tests, first_only))
        process.start()
        process.join(SLOWEST)
        if process.exitcode is None:
            process.kill()
            process.join()
            return NO_RESULT, f"no result within {SLOWEST:g} s"
        return process.exitcode, (folder / "pytest.log").read_text(encoding="utf-8", errors="replace")


def _copy_library(folder: Path, mutant: Mutant | None) -> None:
    shutil.copytree(LIBRARY / PACKAGE, folder / PACKAGE)  # byte code and compiled loops come along
    if mutant is not None:
        path = folder / PACKAGE / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        for stale in path.parent.glob(f"__pycache__/{path.stem}.*"):
            stale.unlink()


def _run(folder: Path, tests: Sequence[str], first_only: bool) -> None:
    status = 3
    try:
        output = os.open(folder / "pytest.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(ROOT)
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(folder))
        import hypothesis
        import pytest

        hypothesis.settings.load_profile("mutants")
        arguments = ["-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", ""]
        arguments += ["-c", str(ROOT / "pyproject.toml")]
        arguments += ["-o", f"pythonpath={folder} {TESTS}", *(["-x"] if first_only else [])]
        status = int(pytest.main([*arguments, *(str(TESTS / test) for test in tests)]))
        package = sys.modules.get(PACKAGE)
        if package is None or not str(package.__file__).startswith(str(folder)):
            status = NOT_THE_COPY
        sys.stdout.flush()
    finally:
        os._exit(status)
