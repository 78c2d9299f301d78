"""Many hostile inputs into one reader, and what became of them.

One in five inputs is built by hypothesis, the others are valid files with changes. The same seed gives the same inputs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from hostile.config_input import TOKEN, ConfigReader
from hostile.etext_input import EtextReader
from hostile.kinds import kind_of
from hostile.leaf_input import LeafReader
from hostile.nist_input import NistReader
from hostile.outcomes import Case, Failure, Reader, judge

READERS: tuple[Reader, ...] = (
    NistReader(),
    LeafReader("femnist"),
    LeafReader("shakespeare"),
    EtextReader(),
    ConfigReader(),
)
_GENERATED = 5  # one in so many inputs is hypothesis'


@dataclass
class Tally:
    """What became of the inputs of one reader."""

    inputs: int = 0
    right: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    failures: dict[str, Case] = field(default_factory=dict)  # message -> the first input
    failed: int = 0


def fuzz(reader: Reader, inputs: int, root_seed: int) -> Tally:
    """Lets ``reader`` read ``inputs`` inputs; failures are collected, not raised."""
    tally = Tally()
    for number in range(inputs - inputs // _GENERATED):
        _count(tally, reader, reader.mutated(f"{root_seed}/{reader.name}/{number}"))
    for case in _generated(reader, inputs // _GENERATED, root_seed):
        _count(tally, reader, case)
    return tally


def _count(tally: Tally, reader: Reader, case: Case) -> None:
    tally.inputs += 1
    try:
        outcome = judge(reader, case)
        if TOKEN[1] in outcome.message:
            raise Failure(f"{reader.name}: a message shows a variable of the environment")
    except Failure as problem:
        tally.failed += 1
        tally.failures.setdefault(str(problem)[:200], case)
        return
    if outcome.right:
        tally.right += 1
    else:
        tally.kinds[kind_of(outcome.message)] += 1


def _generated(reader: Reader, inputs: int, root_seed: int) -> Iterator[Case]:
    """Inputs of the reader's strategy, the same for the same seed."""
    cases: list[Case] = []

    @seed(root_seed)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(reader.generated())
    def collect(case: Case) -> None:
        cases.append(case)

    if inputs > 0:
        collect()
    yield from cases[:inputs]


def keep(failures: dict[str, Case], folder: Path) -> None:
    """Writes the inputs that failed, each with its message, into folders below ``folder``."""
    for message, case in failures.items():
        target = folder / hashlib.sha256(message.encode()).hexdigest()[:8]
        target.mkdir(parents=True, exist_ok=True)
        for name, content in case.files.items():
            (target / name).write_bytes(content)
        (target / "message").write_text(message)
