"""``subjectdp account``: the privacy loss of plans."""

from __future__ import annotations

import argparse
from typing import Any

from subjectdp.cli.plans import account_record, add_plan_options, chosen_plans
from subjectdp.io.printing import print_json


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "account",
        description="Prints epsilon for a plan given by options, for the runs of a configuration, or for a run.",
    )
    add_plan_options(parser)
    help_ = "noise std over clip norm, of each silo's sum; of the sum over silos under secure aggregation"
    parser.add_argument("--noise-multiplier", type=float, help=help_)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints ε of a plan given by options, of a finished run, or of every run of a configuration."""
    chosen = chosen_plans(options, "noise_multiplier")
    records = [account_record(name, plan, options) for name, plan in chosen]
    if options.json:
        print_json(records[0] if options.config is None else records)
    else:
        print("\n".join(_text(record) for record in records))


def _text(record: dict[str, Any]) -> str:
    epsilon = "none" if record["epsilon"] is None else f"{record['epsilon']:.4f}"
    first = f"epsilon {epsilon} at delta {record['delta']:g}, {record['unit']} level, {record['mode']}"
    first += ", conditional" if record["guarantee"] == "conditional" else ""
    return f"{first}\n\n{record['card']}"
