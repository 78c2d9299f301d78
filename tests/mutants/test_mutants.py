"""A few of the planted bugs with every change (all of them: ``make mutants``), and the catalogue itself."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

from mutants.catalogue import MUTANTS, QUICK
from mutants.run import LIBRARY, PACKAGE, ROOT, TESTS, occurrences


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
            assert re.search(
                rf"^def {function}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE
            ), test


def test_a_selection_of_planted_bugs_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mutants.run", "--quick"],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.stdout.splitlines()[-1:] == [f"{len(QUICK)} mutants, {len(QUICK)} killed"], (
        done.stdout + done.stderr
    )
    assert done.returncode == 0
