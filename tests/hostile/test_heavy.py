"""Inputs made to exhaust memory or time are refused, within 700 MB and 20 seconds of CPU each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostile import heavy

ROOT = Path(__file__).resolve().parents[2]
READ = {"a line of 8 MB", "a PNG that unpacks to 256 MB"}
"""Nothing is wrong with the one; of the other, Pillow unpacks no more than the rows it declares."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("heavy")
    paths = os.pathsep.join(str(ROOT / part) for part in ("tests", "workflow/lib"))
    done = subprocess.run(
        [sys.executable, "-m", "hostile.heavy", str(folder)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    yield {line["name"]: line for line in lines}
    for file in folder.rglob("*"):
        if file.is_file():
            file.unlink()


@pytest.mark.long
@pytest.mark.parametrize("name", heavy.CASES)
def test_it_is_refused_in_bounded_memory_and_time(outcomes: dict[str, Any], name: str) -> None:
    outcome = outcomes[name]
    assert outcome["kind"] == ("read" if name in READ else "refused"), outcome
    lines = outcome["told"].split("\n")
    assert len(lines) <= 42 and max(map(len, lines)) < 2000


def test_the_limits_of_the_test_are_enforced() -> None:
    """A reader that took memory or time without end would fail the tests above."""
    code = (
        "from hostile.limits import limit_memory, limited_time, Hang\n"
        "limit_memory(300 << 20)\n"
        "try:\n    bytes(400 << 20)\nexcept MemoryError:\n    print('memory')\n"
        "try:\n    with limited_time(0.2):\n        while True: pass\nexcept Hang:\n    print('time')\n"
    )
    paths = os.pathsep.join(str(ROOT / part) for part in ("tests", "workflow/lib"))
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["memory", "time"], done.stderr
