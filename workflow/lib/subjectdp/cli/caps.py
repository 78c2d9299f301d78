"""``subjectdp caps``: the noise that each cap on a subject's items needs, and the items that it keeps."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subjectdp.accounting.averaged_noise import CapRow, cap_table
from subjectdp.cli.parser import add_json, add_target
from subjectdp.data.partition import load_partition
from subjectdp.errors import expected
from subjectdp.io.printing import print_json
from subjectdp.plan.plan import AccountingMode, Horizontal, PlanSettings, SamplingMethod

if TYPE_CHECKING:
    from subjectdp.accounting.averaged_noise import CapRow


_CAPS = [1, 2, 4, 8, 16]


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "caps",
        description="Prints, for caps on a subject's items at a silo, the items kept and the noise of capped_item_dp.",
    )
    parser.add_argument("--partition", metavar="FOLDER", required=True, help="a partition without a cap")
    usual = " ".join(map(str, _CAPS))
    parser.add_argument("--caps", type=int, nargs="+", default=_CAPS, help=f"caps k (default: {usual})")
    parser.add_argument("--rounds", type=int, required=True, help="rounds R")
    parser.add_argument("--steps-per-round", type=int, default=1, help="local steps T (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, required=True, help="expected items B of a mini-batch")
    add_target(parser)
    add_json(parser, "print JSON: a list of rows")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints the table for a partition's federation; DataError for a folder that is no partition."""
    rows = cap_rows(options)
    if options.json:
        print_json([asdict(row) for row in rows])
    else:
        _print(rows)


def _print(rows: list[CapRow]) -> None:
    least = min(rows, key=lambda row: row.noise)
    print("cap   items kept   noise multiplier   noise on the average gradient / C")
    for row in rows:
        mark = "   the least" if row is least else ""
        noise = f"{row.noise_multiplier:16.4g}   {row.noise:.4g}"
        print(f"{row.cap:3d}   {100 * row.kept:8.1f} %   {noise}{mark}")


def cap_rows(options: argparse.Namespace) -> list[CapRow]:
    """A row for each cap; DataError for a folder that is no partition."""
    partition = load_partition(Path(options.partition))
    facts = partition.federation_facts()
    if facts.cap_enforced:
        allowed = (
            "a partition without partition.max_items_per_subject: the items that its cap dropped are unknown"
        )
        raise expected("--partition", options.partition, allowed)
    return cap_table(partition.counts(), options.caps, _settings(options), facts.silos_per_subject)


def _settings(options: argparse.Namespace) -> PlanSettings:
    return PlanSettings(
        mode=AccountingMode.SOUND,
        horizontal=Horizontal.SOUND,
        sampling=SamplingMethod.POISSON,
        epsilon=options.epsilon,
        delta=options.delta,
        clip_norm=1.0,
        rounds=options.rounds,
        local_steps=options.steps_per_round,
        batch_size=options.batch_size,
    )
