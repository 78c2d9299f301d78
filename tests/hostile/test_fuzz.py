"""Some hundred hostile inputs of a fixed seed into every reader; ``make fuzz`` reads thousands.

``SUBJECTDP_FUZZ_INPUTS`` sets their number.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from hostile import kinds, outcomes, run
from hostile.outcomes import Case, Failure, Invalid
from subjectdp.errors import DataError

ROOT = Path(__file__).resolve().parents[2]
INPUTS = int(os.environ.get("SUBJECTDP_FUZZ_INPUTS", "750"))


def test_every_input_is_read_rightly_or_refused_clearly(tmp_path: Path) -> None:
    paths = os.pathsep.join(str(ROOT / part) for part in ("tests", "workflow/lib"))
    done = subprocess.run(
        [sys.executable, "-m", "hostile.run", "--inputs", str(INPUTS), "--keep", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60 + 5 * INPUTS,
    )
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\ninputs: {tmp_path}"
    last = done.stdout.splitlines()[-1]
    inputs, right, refused, failed = map(int, re.findall(r"\d+", last))
    assert (inputs, failed) == (INPUTS // 5 * 5, 0) and right + refused == inputs
    assert right > inputs / 10 and refused > inputs / 10, "the inputs no longer reach both ends"
    for reader in run.READERS:
        (line,) = re.findall(rf"^{reader.name}: .*", done.stdout, re.MULTILINE)
        assert int(re.findall(r"(\d+) right", line)[0]) > 0, line


def test_the_same_seed_gives_the_same_inputs() -> None:
    for reader in run.READERS:
        first = [dict(reader.mutated(f"0/{number}").files) for number in range(40)]
        backwards = [dict(reader.mutated(f"0/{number}").files) for number in reversed(range(40))]
        assert first == backwards[::-1]
        assert sum(first.count(files) == 1 for files in first) > 30


class _Faulty:
    """A reader of one byte whose answer a test chooses."""

    name, decisive = "faulty", True

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def generated(self) -> SearchStrategy[Case]:
        return st.just(Case({"x": b"1"}))

    def mutated(self, key: str) -> Case:
        return Case({"x": b"1"})

    def read(self, folder: Path) -> Any:
        return self.answer(folder)

    def oracle(self, folder: Path) -> Any:
        if (folder / "x").read_bytes() != b"1":
            raise Invalid("no 1")
        return 1


def _raise(error: BaseException) -> Any:
    raise error


def _endless(_: Path) -> Any:
    while True:
        pass


@pytest.mark.parametrize(
    ("answer", "raw", "told"),
    [
        (lambda folder: 2, b"1", "something else than the oracle"),
        (lambda folder: 1, b"2", "finds invalid"),
        (lambda folder: _raise(DataError("no.")), b"1", "refused a valid input"),
        (lambda folder: _raise(KeyError("x")), b"1", "KeyError"),
        (lambda folder: _raise(MemoryError()), b"1", "MemoryError"),
        (lambda folder: _raise(DataError("")), b"2", "not a clear message"),
        (lambda folder: _raise(DataError("x" * 3000)), b"2", "not a clear message"),
        (lambda folder: (folder / "evil").write_text("x"), b"1", "changed the folder"),
        (lambda folder: (folder.parent / "evil").write_text("x"), b"1", "changed the folder"),
        (_endless, b"1", "Hang"),
    ],
)
def test_each_kind_of_failure_is_seen(
    monkeypatch: pytest.MonkeyPatch, answer: Any, raw: bytes, told: str
) -> None:
    monkeypatch.setattr(outcomes.limited_time.__wrapped__, "__defaults__", (0.2,))  # type: ignore[attr-defined]
    with pytest.raises(Failure, match=told):
        outcomes.judge(_Faulty(answer), Case({"x": raw}))


def test_right_and_refused_are_no_failures() -> None:
    assert outcomes.judge(_Faulty(lambda folder: 1), Case({"x": b"1"})).right
    refused = outcomes.judge(_Faulty(lambda folder: _raise(DataError("no 1."))), Case({"x": b"2"}))
    assert not refused.right and kinds.kind_of(refused.message) == "other"
