"""``subjectdp calibrate``: the noise multipliers of plans."""

from __future__ import annotations

import argparse
from typing import Any

from subjectdp.cli.plans import add_plan_options, calibration_record, chosen_plans
from subjectdp.io.printing import print_json


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "calibrate",
        description="Prints the smallest noise multiplier found that keeps an epsilon.",
    )
    add_plan_options(parser)
    parser.add_argument(
        "--group-sizes",
        type=int,
        metavar="Z",
        help="noise by group size: print it for every size up to Z (default: the sizes that a run may draw)",
    )
    parser.set_defaults(run=run, noise_multiplier=None)


def run(options: argparse.Namespace) -> None:
    """Prints the noise multiplier of a plan given by options, or of every run of a configuration."""
    chosen = chosen_plans(options)
    records = [calibration_record(name, plan, options.group_sizes) for name, plan in chosen]
    if options.json:
        print_json(records[0] if options.config is None else records)
    else:
        print("\n".join(_text(record) for record in records))


def _text(record: dict[str, Any]) -> str:
    groups = enumerate(record["group_noise_multipliers"] or (), 1)
    epsilon = "none" if record["epsilon"] is None else f"{record['epsilon']:.4f}"
    lines = [
        f"noise multiplier {record['noise']} ({record['algorithm']}, {record['unit']} level, {record['mode']})",
        *(f"  Z = {size:3d}  {value:.6g}" for size, value in groups),
        f"epsilon {epsilon} at delta {record['delta']:g} (target {record['target_epsilon']:g})"
        + (", conditional" if record["guarantee"] == "conditional" else ""),
        *([] if record["warning"] is None else [f"WARNING: {record['warning']}"]),
    ]
    return "\n".join(lines)
