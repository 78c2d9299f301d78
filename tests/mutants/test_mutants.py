"""Every planted bug is killed: each test that it names fails on a copy of the library with the bug.

A few bugs with `make test-long`; all of them with ``make mutants``, whose last line is ``N mutants, N killed``.
"""

import ast
import re
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from mutants import planting
from mutants.catalogue import MUTANTS, QUICK, Mutant
from mutants.planting import FAILED, LIBRARY, NO_RESULT, NOT_THE_COPY, PACKAGE, PASSED, killed, occurrences, run_tests

NAMED = sorted({test for mutant in MUTANTS for test in mutant.tests})
NAMED_FILES = sorted({test.partition("::")[0] for test in NAMED})


@cache
def functions_of(file: Path) -> set[str]:
    return set(re.findall(r"^def (\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.slow
def test_the_catalogue_fits_the_library_and_the_tests() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names)) >= 30
    assert set(QUICK) <= set(names)
    for mutant in MUTANTS:
        assert occurrences(mutant) == 1, f"{mutant.name}: not found exactly once in {mutant.file}"
        text = (LIBRARY / PACKAGE / mutant.file).read_text(encoding="utf-8")
        ast.parse(text.replace(mutant.old, mutant.new))
        assert mutant.old != mutant.new and mutant.tests
        for test in mutant.tests:
            file, _, function = test.partition("::")
            assert function in functions_of(planting.TESTS / file), test


def case(mutant: Mutant) -> object:
    """A bug of the selection runs with ``make test-long``, the others with ``make mutants``."""
    mark = pytest.mark.long if mutant.name in QUICK else pytest.mark.mutants
    return pytest.param(mutant, marks=mark, id=f"{mutant.name}:{mutant.file}".replace(" ", "-"))


@pytest.mark.parametrize("mutant", [case(mutant) for mutant in MUTANTS])
def test_a_planted_bug_is_killed(mutant: Mutant, tally: Callable[..., None]) -> None:
    assert occurrences(mutant) == 1, f"the text to replace is not found exactly once in {mutant.file}"
    statuses = {test: run_tests([test], mutant, first_only=True)[0] for test in mutant.tests}
    spared = {test: status for test, status in statuses.items() if not killed(status)}
    tally(mutants=1, killed=int(not spared))
    assert not spared, "the tests that do not notice, with pytest's exit status"


def test_a_crash_counts_and_a_run_that_had_to_be_ended_does_not() -> None:
    statuses = (FAILED, -signal.SIGSEGV, -signal.SIGABRT, PASSED, NO_RESULT, NOT_THE_COPY)
    assert [killed(status) for status in statuses] == [True, True, True, False, False, False]


@pytest.mark.mutants
@pytest.mark.parametrize("file", NAMED_FILES)
def test_the_named_tests_pass_without_a_bug(file: str) -> None:
    status, output = run_tests([test for test in NAMED if test.startswith(f"{file}::")], None)
    assert status == PASSED, f"{output}\nstatus {status} on the unchanged library"
