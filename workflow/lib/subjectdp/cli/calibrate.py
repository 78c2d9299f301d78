"""``subjectdp calibrate``: the noise multipliers of plans."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from subjectdp.cli.account import heading
from subjectdp.cli.plan_options import add_plan_options
from subjectdp.errors import PrivacyError, expected
from subjectdp.io.printing import print_json
from subjectdp.plan.plan import AccountingMode, NoiseRule

if TYPE_CHECKING:
    from subjectdp.plan.plan import PrivacyPlan


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "calibrate",
        help="print the noise multiplier for an epsilon",
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
    from subjectdp.cli.plans import chosen_plans  # here, to keep --help light

    records = [_record(name, plan, options.group_sizes) for name, plan in chosen_plans(options)]
    if options.json:
        print_json(records[0] if options.config is None else records)
    else:
        print("\n".join(_text(record) for record in records))


def _record(name: str | None, plan: PrivacyPlan, group_sizes: int | None) -> dict[str, Any]:
    """σ of every silo (and σ_Z by group size), with the ε that it reaches."""
    from subjectdp.accounting.statements import published_statement, sound_statement  # to keep --help light

    unit = plan.mechanism.claimed_unit
    if unit is None:
        raise PrivacyError(f"{plan.mechanism.algorithm} adds no noise: there is nothing to calibrate.")
    sound = plan.settings.mode is AccountingMode.SOUND
    reached = sound_statement(plan, unit, every_silo=True) if sound else published_statement(plan)
    noise = [silo.noise_multiplier for silo in plan.silos]
    return {
        **heading(name, plan, unit),
        "noise_multiplier": noise[0],
        "noise_multipliers": noise,
        "group_noise_multipliers": _group_noise(plan, group_sizes),
        "epsilon": reached["epsilon"],
        "target_epsilon": plan.settings.epsilon,
        "delta": plan.settings.delta,
        "guarantee": reached["guarantee"],
    }


def _group_noise(plan: PrivacyPlan, sizes: int | None) -> list[float] | None:
    """σ_Z of the first silo: as planned, or for every group size up to ``sizes``."""
    from subjectdp.accounting import published  # here, to keep --help light

    if plan.mechanism.noise_rule is not NoiseRule.GROUP_SIZE_IN_BATCH:
        if sizes is not None:
            allowed = "left out: only algorithms whose noise depends on the group size have such a table"
            raise expected("--group-sizes", sizes, allowed)
        return None
    if sizes is None:
        return list(plan.group_noise_multipliers[0])
    if sizes < 1:
        raise expected("--group-sizes", sizes, "at least 1")
    loss = published.published_loss(plan.mechanism, published.facts_of(plan), plan.settings, plan.silos[0])
    return list(published.group_noise(loss, plan.settings, sizes))


def _text(record: dict[str, Any]) -> str:
    low, high = min(record["noise_multipliers"]), max(record["noise_multipliers"])
    noise = f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
    groups = enumerate(record["group_noise_multipliers"] or (), 1)
    epsilon = "none" if record["epsilon"] is None else f"{record['epsilon']:.4f}"
    lines = [
        f"noise multiplier {noise} ({record['algorithm']}, {record['unit']} level, {record['mode']})",
        *(f"  Z = {size:3d}  {value:.6g}" for size, value in groups),
        f"epsilon {epsilon} at delta {record['delta']:g} (target {record['target_epsilon']:g})",
    ]
    return "\n".join(lines)
