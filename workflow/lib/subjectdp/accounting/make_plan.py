"""From an algorithm's mechanism, a federation's public facts and the user's settings to the frozen privacy plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

from subjectdp.accounting import published, sound, subject_planning
from subjectdp.accounting.cache import cached
from subjectdp.accounting.calibration import calibrate_noise_multiplier
from subjectdp.accounting.epsilon import ACCOUNTANTS, CERTIFYING
from subjectdp.accounting.events import Loss
from subjectdp.accounting.silo_terms import with_terms
from subjectdp.errors import PrivacyError, expected, unknown
from subjectdp.plan.plan import (
    AccountingMode,
    Clipping,
    DivisorRule,
    FederationFacts,
    Horizontal,
    Mechanism,
    NoiseDistribution,
    NoiseRule,
    PlanSettings,
    PrivacyPlan,
    PrivacyUnit,
    SiloSchedule,
    SiloTerms,
    TrustModel,
)


def make_plan(
    mechanism: Mechanism,
    facts: FederationFacts,
    settings: PlanSettings,
    terms: Sequence[SiloTerms] | None = None,
) -> PrivacyPlan:
    """The plan of a run: sampling, steps, noise and divisor of every silo, and the rounds to execute.

    As published, each silo's σ follows the paper's accounting for that silo. In sound mode: item-level noise is
    calibrated for each silo on its own (the silos' items are disjoint); subject-level noise is one σ common to all
    silos, calibrated on the composition over every silo that may hold a subject. ``terms`` (joint noise): how each
    silo's clip norm, learning rate and noise depart from the common ones.

    Raises ConfigError for settings that do not fit the facts, PrivacyError in sound mode for what cannot be
    accounted for (data-dependent σ or divisor, no enforced cap, joint noise over several local steps, a CLT
    accountant).
    """
    plan = with_terms(draft_plan(mechanism, facts, settings), terms)
    if settings.mode is AccountingMode.SOUND:
        check_sound(plan)
    return subject_planning.with_prediction(with_plan_noise(plan, facts), facts)


def draft_plan(mechanism: Mechanism, facts: FederationFacts, settings: PlanSettings) -> PrivacyPlan:
    """The plan still without noise: sampling, steps, divisors and rounds. Raises ConfigError as make_plan does."""
    _check(facts, settings, mechanism)
    _check_updates(mechanism, settings)
    subject_planning.check(mechanism, facts, settings)
    return PrivacyPlan(
        mechanism=mechanism,
        settings=settings,
        rounds=executed_rounds(mechanism, settings, len(facts.items)),
        silos=tuple(_schedule(mechanism, facts, settings, silo) for silo in range(len(facts.items))),
        silos_per_subject=facts.silos_per_subject,
        cap_enforced=facts.cap_enforced,
    )


def executed_rounds(mechanism: Mechanism, settings: PlanSettings, silos: int) -> int:
    """Rounds that are run: floor(R/√s), at least 1, under the papers' Theorem 3.10/3.13; else R.

    The rule concerns only as_published runs of algorithms that the papers compose over silos.
    """
    reduced = (
        settings.mode is AccountingMode.AS_PUBLISHED
        and mechanism.horizontal_composition
        and settings.horizontal is Horizontal.ROUNDS_OVER_SQRT_S
    )
    if not reduced:
        return settings.rounds
    participating = published.silos_in_round(silos, settings)
    return max(1, math.isqrt(settings.rounds * settings.rounds // participating))


def with_plan_noise(plan: PrivacyPlan, facts: FederationFacts) -> PrivacyPlan:
    """The plan with its noise: the override of the settings, or calibrated by the plan's mode."""
    if plan.mechanism.noise_rule is NoiseRule.NONE or plan.mechanism.claimed_unit is None:
        return plan
    override = plan.settings.noise_multiplier
    if override is not None:
        return _with_noise(plan, [override] * len(plan.silos), constant_table=True)
    if plan.settings.mode is AccountingMode.SOUND:
        return _with_noise(plan, sound_noise(plan))
    return _published(plan, facts)


def sound_noise(plan: PrivacyPlan) -> list[float]:
    """σ of every silo from the sound loss of the claimed unit; joint noise is shared among the honest silos."""
    unit = plan.mechanism.claimed_unit or PrivacyUnit.ITEM
    unit_plan = _with_noise(plan, [1.0] * len(plan.silos))
    if unit is not PrivacyUnit.SUBJECT and not sound.noise_is_summed(plan):
        singles = [
            sound.unit_losses(_single(unit_plan, silo), unit, every_silo=True)
            for silo in range(len(plan.silos))
        ]
        losses = _near_ones_shared([single[0] for single in singles])
        own = [_calibrated(loss, plan.settings) for loss in losses]
        return [value / silo.noise_factor for value, silo in zip(own, plan.silos, strict=True)]
    return [_sound_value(unit_plan, unit)] * len(plan.silos)


def _sound_value(plan: PrivacyPlan, unit: PrivacyUnit) -> float:
    """The smallest common σ that is enough for each of the unit's possible losses."""
    copies = sound.noise_copies(plan) if sound.noise_is_summed(plan) else 1.0
    values = [_calibrated(loss, plan.settings) for loss in sound.unit_losses(plan, unit, every_silo=True)]
    return max(values) / copies


def _calibrated(loss: Loss, settings: PlanSettings) -> float:
    compute = partial(calibrate_noise_multiplier, loss, settings.epsilon, settings.delta, settings.accountant)
    return float(cached("noise_multiplier", published.loss_key(loss, settings), settings.cache_dir, compute))


def _single(plan: PrivacyPlan, silo: int) -> PrivacyPlan:
    """The plan as seen by one silo's items."""
    return replace(plan, silos=(plan.silos[silo],), silos_per_subject=1)


def _published(plan: PrivacyPlan, facts: FederationFacts) -> PrivacyPlan:
    """Noise by the paper's accounting, silo by silo; joint noise one value for all, from the worst silo."""
    mechanism, settings = plan.mechanism, plan.settings
    losses = [published.published_loss(mechanism, facts, settings, silo) for silo in plan.silos]
    losses = _near_ones_shared(losses)
    if mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH:
        # sizes that no run will ever draw (a chance of 1e-15) need no noise: drawing one stops the run
        possible = max(silo.max_items_per_subject for silo in plan.silos)
        largest = min(possible, published.largest_likely_group(plan.silos, plan.rounds, 1e-15))
        exact = published.exact_group_sizes(plan.silos, plan.rounds)
        tables = {
            loss: published.group_noise(loss, settings, largest, exact) for loss in dict.fromkeys(losses)
        }
        chosen = tuple(
            tables[loss][: silo.max_items_per_subject] for loss, silo in zip(losses, plan.silos, strict=True)
        )
        first = [table[0] for table in chosen]
        return replace(_with_noise(plan, first), group_noise_multipliers=chosen)
    values = {loss: published.published_noise(loss, settings) for loss in dict.fromkeys(losses)}
    noise = [values[loss] for loss in losses]
    if mechanism.trust is TrustModel.SECURE_AGGREGATION:
        noise = [max(noise) / sound.noise_copies(plan)] * len(noise)
    return _with_noise(plan, noise)


def _near_ones_shared(losses: list[Loss]) -> list[Loss]:
    """Silos of equal steps whose sampling fractions lie within 0.3 % share the largest: fewer calibrations.

    Only where there are more than four different silos; σ moves by at most 0.3 %, upwards.
    """
    if len(set(losses)) <= 4:
        return losses
    order = sorted(range(len(losses)), key=lambda i: (losses[i][0].steps, _fraction(losses[i])), reverse=True)
    result = list(losses)
    leader = losses[order[0]]
    for index in order:
        loss = losses[index]
        near = _fraction(leader) <= 1.003 * _fraction(loss) and leader[0].steps == loss[0].steps
        leader = leader if near else loss
        result[index] = leader
    return result


def _fraction(loss: Loss) -> float:
    return loss[0].shift.probabilities[-1]


def _with_noise(plan: PrivacyPlan, noise: list[float], constant_table: bool = False) -> PrivacyPlan:
    silos = tuple(
        replace(silo, noise_multiplier=value * silo.noise_factor)
        for silo, value in zip(plan.silos, noise, strict=True)
    )
    group = plan.mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH
    if not (constant_table and group):
        return replace(plan, silos=silos)
    table = tuple((silo.noise_multiplier,) * silo.max_items_per_subject for silo in silos)
    return replace(plan, silos=silos, group_noise_multipliers=table)


def _schedule(
    mechanism: Mechanism, facts: FederationFacts, settings: PlanSettings, silo: int
) -> SiloSchedule:
    """One silo's schedule, still without noise."""
    if mechanism.samples_subjects:
        return subject_planning.schedule(mechanism, facts, settings, silo)
    items, batch = facts.items[silo], settings.batch_size
    steps = math.ceil(items / batch) if settings.local_steps is None else settings.local_steps
    capped = facts.cap_enforced and facts.max_items_per_subject is not None
    cap = facts.max_items_per_subject if capped else facts.largest_subject[silo]
    schedule = SiloSchedule(
        items=items,
        subjects=facts.subjects[silo],
        sampling_probability=batch / items,
        max_items_per_subject=int(cap or 1),
        steps_per_round=1 if mechanism.one_step_per_round else steps,
        noise_multiplier=0.0,
        divisor=1.0,
    )
    return replace(schedule, divisor=_divisor(mechanism.divisor_rule, schedule, settings))


def _divisor(rule: DivisorRule, schedule: SiloSchedule, settings: PlanSettings) -> float:
    """The public divisor (B where the rule is the realised count: training then divides by the count)."""
    if rule is DivisorRule.EXPECTED_SUBJECTS:
        return sound.expected_subjects(schedule)
    return 1.0 if rule is DivisorRule.ONE else float(settings.batch_size)


def check_sound(plan: PrivacyPlan) -> None:
    """Refuses in sound mode what cannot be accounted for. Raises PrivacyError."""
    mechanism, settings = plan.mechanism, plan.settings
    name = mechanism.algorithm if mechanism.variant is None else f"{mechanism.algorithm}:{mechanism.variant}"
    reasons = sound.data_dependence(plan)
    if reasons:
        raise PrivacyError(f"{name} cannot run in sound mode: {'; '.join(reasons)}.")
    if settings.accountant not in CERTIFYING:
        raise expected(
            "privacy.accountant in sound mode", settings.accountant, f"one of {CERTIFYING}", PrivacyError
        )
    if settings.noise_distribution is NoiseDistribution.SKELLAM and settings.accountant != "rdp_integer":
        allowed = "'rdp_integer' with joint.noise skellam (the others assume Gaussian noise)"
        raise expected("accountant in sound mode", settings.accountant, allowed, PrivacyError)
    counted = mechanism.claimed_unit is PrivacyUnit.SUBJECT and not mechanism.samples_subjects
    if counted and not plan.cap_enforced:
        raise PrivacyError(
            f"{name} in sound mode needs an enforced cap on the items of a subject at a silo: set "
            "partition.max_items_per_subject. A maximum that is read from the data is itself private."
        )
    joint = mechanism.trust is TrustModel.SECURE_AGGREGATION and not settings.own_noise_only
    most = max(sound.releases(plan, silo) for silo in plan.silos)
    if joint and most > 1:
        raise PrivacyError(
            f"{name} in sound mode needs one local step in each aggregation, got training.local_steps {most}: over "
            "several steps noise of other silos can cancel. Set training.local_steps to 1, clip and noise the whole "
            "update once (joint.clipping: update), or account for each silo's own noise only (joint.own_noise_only)."
        )
    if joint and not sound.sums_noisy_gradients(plan):
        raise PrivacyError(
            f"{name} in sound mode needs local updates that are linear in the noisy gradients, got Adam: other silos' "
            "noise does not count in their sum. Set training.optimizer.name to sgd or momentum, joint.clipping to "
            "update, or account for each silo's own noise only (joint.own_noise_only)."
        )


def _check_updates(mechanism: Mechanism, settings: PlanSettings) -> None:
    """Clipped updates exist in sound mode and with real-valued noise. Raises PrivacyError, ConfigError."""
    if mechanism.clipping is not Clipping.PER_UPDATE:
        return
    if settings.mode is not AccountingMode.SOUND:
        allowed = "sound with joint.clipping update (no paper of this project publishes it)"
        raise expected("privacy.mode", str(settings.mode), allowed, PrivacyError)
    if settings.noise_distribution is not NoiseDistribution.GAUSSIAN:
        raise expected("joint.noise", str(settings.noise_distribution), "gaussian with joint.clipping update")


def _check(facts: FederationFacts, settings: PlanSettings, mechanism: Mechanism) -> None:
    """Refuses settings that do not fit the facts. Raises ConfigError."""
    silos = len(facts.items)
    if silos == 0 or min(facts.items) < 1:
        raise expected("items of every silo", facts.items, "at least 1")
    if not (mechanism.samples_subjects or 1 <= settings.batch_size <= min(facts.items)):
        raise expected(
            "training.batch_size",
            settings.batch_size,
            f"between 1 and the smallest silo's {min(facts.items)} items",
        )
    for key, value in asdict(settings).items():
        if key in ("rounds", "local_steps", "silos_per_round") and value is not None and value < 1:
            raise expected(key, value, "at least 1")
    if settings.silos_per_round is not None and settings.silos_per_round > silos:
        raise expected("training.silos_per_round", settings.silos_per_round, f"at most the {silos} silos")
    if not 1 <= facts.silos_per_subject <= silos:
        raise expected("silos_per_subject", facts.silos_per_subject, f"between 1 and the {silos} silos")
    if not 0 <= settings.colluding_silos < published.silos_in_round(silos, settings):
        raise expected("colluding_silos", settings.colluding_silos, "fewer than the silos of a round")
    _check_privacy(settings)


def _check_privacy(settings: PlanSettings) -> None:
    if not (settings.epsilon > 0 and math.isfinite(settings.epsilon)):
        raise expected("privacy.epsilon", settings.epsilon, "a positive number")
    if not 0 < settings.delta < 1:
        raise expected("privacy.delta", settings.delta, "between 0 and 1")
    if not settings.clip_norm > 0:
        raise expected("privacy.clip_norm", settings.clip_norm, "a positive number")
    if settings.noise_multiplier is not None and not settings.noise_multiplier >= 0:
        raise expected("privacy.noise_multiplier", settings.noise_multiplier, "at least 0")
    if settings.accountant not in ACCOUNTANTS:
        raise unknown("privacy.accountant", settings.accountant, ACCOUNTANTS)
