"""Many hostile inputs into every reader: a right result or one clear error, nothing else.

    PYTHONPATH=tests:workflow/lib python -m hostile.run [--inputs N] [--seed N] [--only READER] [--keep FOLDER]

One in five inputs is built by hypothesis, the others are valid files with changes. One line a reader, then the kinds of
errors; the last line is ``N inputs, N right, N refused, N failed``, and the exit status 1 if any failed. The inputs
that failed are written into ``--keep``. The same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from hostile.config_input import TOKEN, ConfigReader, set_token
from hostile.etext_input import EtextReader
from hostile.kinds import kind_of
from hostile.leaf_input import LeafReader
from hostile.nist_input import NistReader
from hostile.outcomes import Case, Failure, Reader, judge, limit_memory

READERS: tuple[Reader, ...] = (
    NistReader(),
    LeafReader("femnist"),
    LeafReader("shakespeare"),
    EtextReader(),
    ConfigReader(),
)
FULL = 12_000
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the readers and prints the counts."""
    parser = argparse.ArgumentParser(description="Hostile inputs into every reader.", allow_abbrev=False)
    parser.add_argument(
        "--inputs", type=int, default=FULL, help="inputs of all readers together (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the inputs (default: %(default)s)")
    parser.add_argument("--only", choices=[reader.name for reader in READERS], help="one reader")
    parser.add_argument("--keep", type=Path, help="folder for the inputs that failed")
    options = parser.parse_args(arguments)
    logging.disable()
    set_token()
    limit_memory()
    readers = [reader for reader in READERS if options.only in (None, reader.name)]
    total = Tally()
    for reader in readers:
        started = time.process_time()
        tally = fuzz(reader, options.inputs // len(readers), options.seed)
        seconds = time.process_time() - started
        refused = tally.kinds.total()
        print(
            f"{reader.name}: {tally.inputs} inputs, {tally.right} right, {refused} refused, {tally.failed} failed "
            f"({seconds:.0f} s)",
            flush=True,
        )
        _report_failures(tally, options.keep)
        total.inputs, total.right = total.inputs + tally.inputs, total.right + tally.right
        total.failed, total.kinds = total.failed + tally.failed, total.kinds + tally.kinds
    for kind, count in total.kinds.most_common():
        print(f"  {count:6d} {kind}")
    print(f"{total.inputs} inputs, {total.right} right, {total.kinds.total()} refused, {total.failed} failed")
    return int(total.failed > 0)


def _report_failures(tally: Tally, keep: Path | None) -> None:
    for message, case in tally.failures.items():
        print(f"  FAILED: {message}", flush=True)
        if keep is not None:
            folder = keep / hashlib.sha256(message.encode()).hexdigest()[:8]
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in case.files.items():
                (folder / name).write_bytes(content)
            (folder / "message").write_text(message)


if __name__ == "__main__":
    sys.exit(main())
