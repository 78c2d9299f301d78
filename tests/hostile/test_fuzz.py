"""Hostile inputs of a fixed seed into every reader: a right result or one clear error, nothing else.

750 inputs are read with every change, 12,000 by ``make fuzz``; its last line is ``N inputs, N right, N refused, N
failed``. ``SUBJECTDP_FUZZ_INPUTS`` and ``SUBJECTDP_FUZZ_SEED`` choose others; those that fail are kept in the folder
``SUBJECTDP_FUZZ_KEEP``.
"""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from hostile import kinds, outcomes
from hostile.config_input import TOKEN
from hostile.fuzzing import READERS, fuzz, keep
from hostile.outcomes import Case, Failure, Invalid, Reader
from subjectdp.errors import DataError

INPUTS = int(os.environ.get("SUBJECTDP_FUZZ_INPUTS", "750")) // len(READERS)
SEED = int(os.environ.get("SUBJECTDP_FUZZ_SEED", "0"))


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A limit of memory, a secret in the environment, and no log."""
    monkeypatch.setenv(*TOKEN)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    outcomes.limit_memory()
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, ids=[reader.name for reader in READERS])
def test_every_input_is_read_rightly_or_refused_clearly(
    reader: Reader, guarded: None, tmp_path: Path, tally: Callable[..., None]
) -> None:
    found = fuzz(reader, INPUTS, SEED)
    refused = found.kinds.total()
    tally(inputs=found.inputs, right=found.right, refused=refused, failed=found.failed)
    print(f"{found.inputs} inputs, {found.right} right, {refused} refused, {found.failed} failed")
    for kind, count in found.kinds.most_common():
        print(f"  {count:6d} {kind}")
    folder = Path(os.environ.get("SUBJECTDP_FUZZ_KEEP", tmp_path))
    keep(found.failures, folder)
    assert not found.failures, f"kept in {folder}"
    assert found.inputs == found.right + refused == INPUTS
    assert found.right > INPUTS / 20 and refused > INPUTS / 5, "the inputs no longer reach both ends"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_inputs() -> None:
    for reader in READERS:
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
