"""``subjectdp account``: the privacy loss of plans."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from subjectdp.cli.plan_options import add_plan_options
from subjectdp.errors import PrivacyError
from subjectdp.io.printing import print_json
from subjectdp.plan.plan import AccountingMode

if TYPE_CHECKING:
    from subjectdp.plan.plan import PrivacyPlan, PrivacyUnit


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "account",
        help="print the privacy loss of a plan",
        description="Prints epsilon for a plan given by options, for the runs of a configuration, or for a run.",
    )
    add_plan_options(parser)
    help_ = "noise std over clip norm, on the sum (calibrate finds one)"
    parser.add_argument("--noise-multiplier", type=float, help=help_)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints ε of a plan given by options, of a finished run, or of every run of a configuration."""
    from subjectdp.cli.plans import chosen_plans  # here, to keep --help light

    plans = chosen_plans(options, "noise_multiplier")
    records = [_record(name, plan, options) for name, plan in plans]
    if options.json:
        print_json(records[0] if options.config is None else records)
    else:
        print("\n".join(_text(record) for record in records))


def heading(name: str | None, plan: PrivacyPlan, unit: PrivacyUnit) -> dict[str, Any]:
    """What a record of ``account`` and ``calibrate`` begins with."""
    return {
        "run": name,
        "algorithm": plan.mechanism.algorithm,
        "variant": plan.mechanism.variant,
        "mode": str(plan.settings.mode),
        "unit": str(unit),
        "rounds": plan.rounds,
        "steps_per_round": plan.silos[0].steps_per_round,
        "silos": len(plan.silos),
    }


def _record(name: str | None, plan: PrivacyPlan, options: argparse.Namespace) -> dict[str, Any]:
    """ε of the chosen unit first, then all statements."""
    from subjectdp.accounting.privacy_report import report_text  # here, to keep --help light
    from subjectdp.accounting.statements import privacy_statements, sound_statement
    from subjectdp.cli.plans import claimed_unit

    unit = claimed_unit(plan, options)
    statements = privacy_statements(plan, over_rounds=False)
    if plan.settings.mode is AccountingMode.SOUND:
        chosen = sound_statement(plan, unit, every_silo=True)
    elif options.unit is not None and options.unit != plan.mechanism.claimed_unit:
        raise PrivacyError(
            f"{plan.mechanism.algorithm} claims nothing for a unit of {unit}: use --mode sound."
        )
    else:
        chosen = statements["as_published"]
    return {
        **heading(name, plan, unit),
        "epsilon": chosen["epsilon"],
        "delta": plan.settings.delta,
        "guarantee": chosen["guarantee"],
        "noise_multiplier": plan.silos[0].noise_multiplier,
        "statement": chosen,
        "privacy": statements,
        "card": report_text(plan, statements),
    }


def _text(record: dict[str, Any]) -> str:
    epsilon = "none" if record["epsilon"] is None else f"{record['epsilon']:.4f}"
    first = f"epsilon {epsilon} at delta {record['delta']:g}, {record['unit']} level, {record['mode']}"
    return f"{first}\n\n{record['card']}"
