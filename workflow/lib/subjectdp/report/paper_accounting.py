"""Rounds, noise, claimed and sound ε at the papers' own settings, by accounting alone; nothing is trained.

Rounds and noise are those of the federation of :mod:`subjectdp.data.statistics`: 3,500 subjects of 145 items, or 660 of
modelled sizes, over 16 silos. Claims are judged on the audits' federation (:mod:`subjectdp.auditing.cases`), whose
subjects are all alike, so that no verdict rests on a subject that happens to be the largest everywhere.
"""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from subjectdp.accounting.make_plan import draft_plan, make_plan
from subjectdp.accounting.sound import unit_losses
from subjectdp.accounting.statements import published_statement, sound_statement
from subjectdp.algorithms.registry import mechanism
from subjectdp.auditing import cases
from subjectdp.auditing.lower_bounds import least_epsilon
from subjectdp.data.statistics import FEMNIST_ITEMS, SILOS, shakespeare_counts, silo_counts
from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import write_frame
from subjectdp.plan.plan import Accountant, FederationFacts, Horizontal, PlanSettings, PrivacyPlan, PrivacyUnit
from subjectdp.report.targets import Setting, Target

_EPSILONS = ("epsilon_published", "epsilon_sound", "epsilon_sound_subject", "epsilon_lower")
COLUMNS = ("target", "metric", "value", *_EPSILONS, "note")
METRICS = ("rounds_executed", "noise_ratio", "noise_ratio_mean", "noise_growth", "epsilon", "local_epsilon")
"""Metrics of targets that are computed here (``epsilon``: claims of algorithms, not the rows of a table)."""

AUDITED = {"local_group_dp": 8.41, "higrad_avg_dp:v3": 4.22}
"""Lower bounds where noise or divisor depend on the data: the full audit's (docs/findings.md), at the one scale."""


def write_paper_accounting(targets: list[Target], target_parquet: Path | str) -> pd.DataFrame:
    """Writes and returns a row (:data:`COLUMNS`) for each target that accounting alone measures; DataError for none."""
    accounted = filter(is_accounted, targets)
    rows = [{"target": each.id, "metric": each.metric, **_measured(each)} for each in accounted]
    if not rows:
        raise expected("targets", "none", "at least one that accounting answers", DataError)
    table = pd.DataFrame(rows).reindex(columns=list(COLUMNS)).fillna({"note": ""})
    write_frame(target_parquet, table)
    return table


def is_accounted(target: Target) -> bool:
    """Whether accounting alone measures a target: it concerns an algorithm on a data set, but no training."""
    return target.metric in METRICS and target.setting.dataset != ""


@cache
def paper_facts(setting: Setting) -> FederationFacts:
    """The public facts of the federation that a target's paper trains on; DataError without its number of subjects."""
    if setting.subjects is None:
        raise expected("subjects of a target", None, "the paper's number of subjects", DataError)
    femnist = setting.dataset == "femnist"
    items = np.full(setting.subjects, FEMNIST_ITEMS) if femnist else shakespeare_counts(setting.subjects)
    silos = setting.silos or SILOS
    counts = silo_counts(0, items.astype(np.int64), silos)
    return FederationFacts(
        items=tuple(int(value) for value in counts.sum(axis=1)),
        subjects=tuple(int(value) for value in (counts > 0).sum(axis=1)),
        largest_subject=tuple(int(value) for value in counts.max(axis=1)),
        cap_enforced=False,
        max_items_per_subject=None,
        silos_per_subject=silos,
    )


def paper_plan_settings(algorithm: str, setting: Setting, accountant: str) -> PlanSettings:
    """The privacy settings of a target's paper, with C = 1; DataError without rounds, mini-batch size, ε or δ."""
    rounds, batch, epsilon, delta = setting.rounds, setting.batch_size, setting.epsilon, setting.delta
    if rounds is None or batch is None or epsilon is None or delta is None:
        raise expected("rounds, batch_size, epsilon and delta of a target", setting, "given", DataError)
    steps = 1 if mechanism(*_named(algorithm), cases.PUBLISHED).one_step_per_round else None
    audited = cases.plan_settings(cases.PUBLISHED, rounds, steps, batch)
    horizontal = Horizontal(setting.horizontal or Horizontal.ROUNDS_OVER_SQRT_S)
    return replace(audited, horizontal=horizontal, epsilon=epsilon, delta=delta, accountant=Accountant(accountant))


def _measured(target: Target) -> dict[str, Any]:
    """What the accounting gives for the target's metric.

    noise_ratio: log10 of the algorithm's largest noise multiplier over that of an item's sampling fraction (Rényi), by
    the largest subject of a silo, or by the mean one (D-42). noise_growth: the power of Z as which σ_Z² grows.
    """
    if target.metric in ("epsilon", "local_epsilon"):
        # local_epsilon: of any two users, as in a local claim; else at the unit that the paper claims
        unit = PrivacyUnit.SILO if target.metric == "local_epsilon" else None
        return _claim(target.algorithm, target.setting, unit)
    name, setting, facts = target.algorithm, target.setting, paper_facts(target.setting)
    if target.metric == "rounds_executed":
        settings = paper_plan_settings(name, setting, "pld")
        return {"value": float(draft_plan(mechanism(*_named(name), cases.PUBLISHED), facts, settings).rounds)}
    if target.metric.startswith("noise_ratio"):
        if target.metric == "noise_ratio_mean":
            facts = replace(facts, largest_subject=tuple(map(round, np.divide(facts.items, facts.subjects))))
        plans = [_plan(each, facts, setting, "rdp") for each in (name, "local_item_dp")]
        own, item = (max(silo.noise_multiplier for silo in plan.silos) for plan in plans)
        return {"value": math.log10(own / item), "note": f"noise multipliers {own:.4g} and {item:.4g}"}
    plan, (small, large) = _plan(name, facts, setting, "pld"), (3, 6)  # the papers' largest groups at α = 1 and 16
    low, high = (plan.noise_multiplier(0, size) for size in (small, large))
    note = f"noise multipliers {low:.4g} for groups of {small}, {high:.4g} of {large}"
    return {"value": 2 * math.log(high / low) / math.log(large / small), "note": note}


def _named(algorithm: str) -> tuple[str, str | None]:
    name, _, variant = algorithm.partition(":")
    return name, variant or None


def _plan(algorithm: str, facts: FederationFacts, setting: Setting, accountant: str) -> PrivacyPlan:
    declared = mechanism(*_named(algorithm), cases.PUBLISHED)
    return make_plan(declared, facts, paper_plan_settings(algorithm, setting, accountant))


@cache
def _claim(algorithm: str, setting: Setting, unit: PrivacyUnit | None) -> dict[str, Any]:
    """Published and sound ε of the plan as published at ``unit`` (None: the claimed one), and what ε is at least.

    Of k = 8 items of every subject at every silo (D-07 has 9), with the noise of Opacus' RDP accountant, as in the
    papers (D-49); the sound ε is PLD's, infinite if none can be stated. Cached: several versions make the same claim.
    """
    silos = setting.silos or SILOS
    facts = cases.federation(silos, silos)
    plan, tight = (_plan(algorithm, facts, setting, each) for each in (Accountant.OPACUS, Accountant.PLD))
    judged = unit or plan.mechanism.claimed_unit or PrivacyUnit.ITEM
    published = published_statement(plan)["epsilon"]
    own, by_pld = (sound_statement(each, judged, every_silo=True) for each in (plan, tight))
    sound, note, constant = own["epsilon"], own["reason"] or "", own["epsilon_if_constant"]
    if constant is not None:
        note += f" (were it a public constant: ε {constant:.4g})"
    if by_pld["epsilon"] is not None:
        note = f"noise by Opacus' accountant; with that by PLD: ε {by_pld['epsilon']:.4g}"
    least = AUDITED.get(algorithm, math.nan)
    if sound is not None:
        (released,) = unit_losses(plan, judged, every_silo=True)[0]
        least = least_epsilon(released, plan.settings.delta)
    stated = math.nan if sound is None else float(sound)
    return {
        "value": math.inf if sound is None else stated,
        "epsilon_published": math.nan if published is None else float(published),
        "epsilon_sound": stated,
        "epsilon_sound_subject": stated if judged is PrivacyUnit.SUBJECT else math.nan,
        "epsilon_lower": least,
        "note": note,
    }
