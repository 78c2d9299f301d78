"""What ``subjectdp account`` and ``subjectdp calibrate`` print of a plan."""

from __future__ import annotations

import argparse
from typing import Any

from subjectdp.accounting import published
from subjectdp.accounting.privacy_report import noise_size, report_text
from subjectdp.accounting.sound import noise_of_the_sum
from subjectdp.accounting.statements import privacy_statements, published_statement, sound_statement
from subjectdp.cli.plans import claimed_unit
from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import AccountingMode, NoiseRule, PrivacyPlan, PrivacyUnit


def account_record(name: str | None, plan: PrivacyPlan, options: argparse.Namespace) -> dict[str, Any]:
    """ε of the chosen unit first, then all statements."""
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
        **_heading(name, plan, unit),
        "epsilon": chosen["epsilon"],
        "delta": plan.settings.delta,
        "guarantee": chosen["guarantee"],
        "noise_multiplier": noise_of_the_sum(plan),
        "noise_multipliers": [silo.noise_multiplier for silo in plan.silos],
        "statement": chosen,
        "privacy": statements,
        "card": report_text(plan, statements),
    }


def calibration_record(name: str | None, plan: PrivacyPlan, group_sizes: int | None) -> dict[str, Any]:
    """σ of every silo (and σ_Z by group size), with the ε that it reaches."""
    unit = plan.mechanism.claimed_unit
    if unit is None:
        raise PrivacyError(f"{plan.mechanism.algorithm} adds no noise: there is nothing to calibrate.")
    sound = plan.settings.mode is AccountingMode.SOUND
    reached = sound_statement(plan, unit, every_silo=True) if sound else published_statement(plan)
    return {
        **_heading(name, plan, unit),
        "noise_multiplier": noise_of_the_sum(plan),
        "noise_multipliers": [silo.noise_multiplier for silo in plan.silos],
        "noise": noise_size(plan),
        "group_noise_multipliers": _group_noise(plan, group_sizes),
        "epsilon": reached["epsilon"],
        "target_epsilon": plan.settings.epsilon,
        "delta": plan.settings.delta,
        "guarantee": reached["guarantee"],
    }


def _heading(name: str | None, plan: PrivacyPlan, unit: PrivacyUnit) -> dict[str, Any]:
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
        "warning": plan.delta_warning,
    }


def _group_noise(plan: PrivacyPlan, sizes: int | None) -> list[float] | None:
    """σ_Z of the first silo: as planned, or for every group size up to ``sizes``."""
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
