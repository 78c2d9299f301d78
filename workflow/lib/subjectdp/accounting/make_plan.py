"""Makes the privacy plan from an algorithm's mechanism, a federation's public facts and the user's settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from subjectdp.accounting import published, sound
from subjectdp.accounting.events import MOST_ITEMS, PrivacyLoss, Told, with_noise
from subjectdp.config.resolve import mechanism_of, plan_settings
from subjectdp.errors import DataError, PrivacyError, expected
from subjectdp.noise.subject_weights import reach
from subjectdp.plan import rules
from subjectdp.plan.plan import (
    AccountingMode,
    Clipping,
    DivisorRule,
    FederationFacts,
    Mechanism,
    NoiseRule,
    PlanSettings,
    Prediction,
    PrivacyPlan,
    PrivacyUnit,
    SiloSchedule,
    TrustModel,
)
from subjectdp.plan.rules import executed_rounds, expected_batch, round_steps

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.data.partition import Partition


def make_plan(mechanism: Mechanism, facts: FederationFacts, settings: PlanSettings) -> PrivacyPlan:
    """The plan of a run: sampling, steps, noise and divisor of every silo, and the rounds to execute.

    As published, each silo's σ follows the paper's accounting for that silo. In sound mode item-level noise is
    calibrated for each silo on its own (their items are disjoint); subject-level noise is one σ common to all,
    calibrated on the composition over every silo that may hold a subject. Raises ConfigError for settings that do not
    fit the facts, PrivacyError for what cannot be accounted for.
    """
    return with_prediction(with_plan_noise(draft_plan(mechanism, facts, settings), facts), facts)


def draft_plan(mechanism: Mechanism, facts: FederationFacts, settings: PlanSettings) -> PrivacyPlan:
    """The plan still without noise: sampling, steps, divisors and rounds. Raises as :func:`make_plan` does."""
    rules.check(mechanism, settings, len(facts.items), facts.cap_enforced)
    _check_facts(mechanism, facts, settings)
    plan = PrivacyPlan(
        mechanism=mechanism,
        settings=settings,
        rounds=executed_rounds(mechanism, settings, len(facts.items)),
        silos=tuple(_schedule(mechanism, facts, settings, silo) for silo in range(len(facts.items))),
        silos_per_subject=facts.silos_per_subject,
        cap_enforced=facts.cap_enforced,
        silos_bounded=facts.silos_bounded,
        people=facts.people,
        total_subjects=facts.total_subjects,
    )
    q = settings.sampling_fraction
    return _one_divisor(_of_size(plan)) if q is None else with_sampling(plan, q)


def with_plan_noise(plan: PrivacyPlan, facts: FederationFacts) -> PrivacyPlan:
    """The plan with its noise: the override of the settings, or calibrated by the plan's mode."""
    if plan.mechanism.noise_rule is NoiseRule.NONE or plan.mechanism.claimed_unit is None:
        return plan
    if (override := plan.settings.noise_multiplier) is not None:
        return with_noise_multipliers(plan, [override / sound.shares(plan)] * len(plan.silos))
    if plan.settings.mode is AccountingMode.SOUND:
        return _sound(plan, plan.mechanism.claimed_unit)
    return _published(plan, facts)


_MOST_STEPS = 10**8  # that an accountant composes within seconds
_RAREST = 1e-7  # dp-accounting takes losses of 1e-8 for none


def _of_size(plan: PrivacyPlan) -> PrivacyPlan:
    """The plan; PrivacyError where no accountant could compose it."""
    if plan.mechanism.noise_rule is NoiseRule.NONE:
        return plan
    if (steps := plan.rounds * max(silo.steps_per_round for silo in plan.silos)) > _MOST_STEPS:
        raise expected("local steps of a silo in all rounds", steps, f"at most {_MOST_STEPS:,}", PrivacyError)
    most = max(silo.max_items_per_subject for silo in plan.silos)
    if plan.mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH and most > MOST_ITEMS:
        raise expected("items of a subject at a silo", most, f"at most {MOST_ITEMS:,}, by a cap", PrivacyError)
    if (rarest := min(silo.sampling_probability for silo in plan.silos)) < _RAREST:
        raise expected("the sampling probability", rarest, f"at least {_RAREST:g}", PrivacyError)
    return plan


def _sound(plan: PrivacyPlan, unit: PrivacyUnit) -> PrivacyPlan:
    """Noise from the sound loss of the claimed unit; joint noise is shared among the honest silos."""
    silos = len(plan.silos)
    plan = with_noise_multipliers(plan, [1.0] * silos, by_size=False)
    summed = sound.noise_is_summed(plan)
    # an item may turn its subject's parts at all silos where these are one release
    if unit is not PrivacyUnit.SUBJECT and not summed and not plan.mechanism.shared_budget:
        losses = _near_ones_shared([sound.silo_loss(plan, silo, unit) for silo in range(silos)])
        return with_noise_multipliers(plan, published.noise_of_each(losses, plan.settings), by_size=False)
    sigma = _common_noise(plan, unit, sound.noise_copies(plan) if summed else 1.0)
    return with_noise_multipliers(plan, [sigma] * silos, by_size=False)


_TRIES = 6  # for the noise of silos whose worst choice depends on it
_SAME = 0.999


def _common_noise(plan: PrivacyPlan, unit: PrivacyUnit, copies: float) -> float:
    """The smallest σ found that is enough for each loss that the unit may have at this very σ.

    Which silos are worst may depend on σ: what one σ asks for is tried next, and is larger until one is enough.
    """
    least, sigma, tries = math.inf, 1.0, 0
    while True:
        tries += 1
        tried = with_noise_multipliers(plan, [sigma] * len(plan.silos), by_size=False)
        losses = sound.unit_losses(tried, unit, every_silo=True)
        if len(losses) > sound.FEW_LOSSES:  # what is enough for the worst one is enough for all, at this σ
            losses = [sound.largest(losses, plan.settings.delta, plan.settings.accountant)[1]]
        needed = max(published.cached_noise(with_noise(loss, 1.0), plan.settings) for loss in losses) / copies
        if needed <= sigma:
            least = min(least, sigma)
        if math.isfinite(least) and (tries >= _TRIES or _SAME * sigma <= needed <= sigma):
            return least
        sigma = needed


def _published(plan: PrivacyPlan, facts: FederationFacts) -> PrivacyPlan:
    """Noise by the paper's accounting, silo by silo; joint noise one value for all, from the worst silo."""
    mechanism, settings = plan.mechanism, plan.settings
    losses = _near_ones_shared([published.published_loss(mechanism, facts, settings, silo) for silo in plan.silos])
    if mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH:
        # Group sizes with a probability below 1e-15 get no noise level; drawing one stops the run.
        possible = max(silo.max_items_per_subject for silo in plan.silos)
        largest = min(possible, published.largest_likely_group(plan.silos, plan.rounds, 1e-15))
        # sizes with a chance of more than 1e-6 deserve the exact accountant
        exact = min(published.EXACT_GROUPS, published.largest_likely_group(plan.silos, plan.rounds, 1e-6))
        tables = {loss: published.group_noise(loss, settings, largest, exact) for loss in set(losses)}
        chosen = tuple(tables[of][: silo.max_items_per_subject] for of, silo in zip(losses, plan.silos, strict=True))
        plan = with_noise_multipliers(plan, [table[0] for table in chosen], by_size=False)
        return replace(plan, group_noise_multipliers=chosen)
    noise = published.noise_of_each(losses, settings)
    if mechanism.published_local_bound:
        least = published.local_noise_bound(settings.epsilon, settings.delta)
        noise = [max(value, least) for value in noise]
    if mechanism.trust is TrustModel.SECURE_AGGREGATION:
        noise = [max(noise) / sound.noise_copies(plan)] * len(noise)
    return with_noise_multipliers(plan, noise, by_size=False)


def _near_ones_shared(losses: list[PrivacyLoss]) -> list[PrivacyLoss]:
    """Silos of equal steps and moves whose sampling fractions lie within 0.3 % share the largest: fewer calibrations.
    Only where there are more than four different silos; σ moves by at most 0.3 %, upwards."""
    if len(set(losses)) <= 4 or any(isinstance(loss[0].shift, Told) for loss in losses):
        return losses
    size = [((loss[0].steps, loss[0].shift.sensitivities), loss[0].shift.probabilities[-1]) for loss in losses]
    order = sorted(range(len(losses)), key=size.__getitem__, reverse=True)
    result, leader = list(losses), order[0]
    for index in order:
        if size[leader][0] != size[index][0] or size[leader][1] > 1.003 * size[index][1]:
            leader = index
        result[index] = losses[leader]
    return result


def with_noise_multipliers(plan: PrivacyPlan, noise: Sequence[float], by_size: bool = True) -> PrivacyPlan:
    """The plan with a noise multiplier for each silo; ``by_size``: the same one for groups of every size."""
    silos = tuple(replace(silo, noise_multiplier=sigma) for silo, sigma in zip(plan.silos, noise, strict=True))
    plan = replace(plan, silos=silos)
    if not (by_size and plan.mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH):
        return plan
    table = tuple((silo.noise_multiplier,) * silo.max_items_per_subject for silo in silos)
    return replace(plan, group_noise_multipliers=table)


def with_sampling(plan: PrivacyPlan, q: float) -> PrivacyPlan:
    """The plan with the sampling probability ``q`` at every silo, and the divisors that follow from it."""
    silos = (replace(silo, sampling_probability=q) for silo in plan.silos)
    divided = tuple(_with_divisor(plan.mechanism, silo, q * silo.items) for silo in silos)
    return _one_divisor(_of_size(replace(plan, silos=divided)))


def _one_divisor(plan: PrivacyPlan) -> PrivacyPlan:
    """The plan whose silos' sums are added before they are divided, by their mean divisor, unless all are seen.
    A divisor of its own would be a learning rate of its own: it changes the noise of the sum and its sensitivity."""
    if plan.mechanism.trust is TrustModel.LOCAL or len({silo.divisor for silo in plan.silos}) == 1:
        return plan
    common = sum(silo.divisor for silo in plan.silos) / len(plan.silos)
    return replace(plan, silos=tuple(replace(silo, divisor=common) for silo in plan.silos))


def _schedule(mechanism: Mechanism, facts: FederationFacts, settings: PlanSettings, silo: int) -> SiloSchedule:
    if mechanism.samples_subjects:
        return _subject_schedule(mechanism, facts, settings, silo)
    items = facts.items[silo]
    cap = facts.max_items_per_subject if facts.cap_enforced else None
    schedule = SiloSchedule(
        items=items,
        subjects=facts.subjects[silo],
        sampling_probability=expected_batch(settings, items) / items,
        max_items_per_subject=facts.largest_subject[silo] if cap is None else cap,
        steps_per_round=1 if mechanism.one_step_per_round else round_steps(settings, items),
        noise_multiplier=0.0,
        divisor=1.0,
        fused_steps=settings.fused_steps[silo] if settings.fused_steps else 1,
    )
    return _with_divisor(mechanism, schedule, float(settings.batch_size))


def _with_divisor(mechanism: Mechanism, silo: SiloSchedule, batch: float) -> SiloSchedule:
    """The silo with its public divisor; where the rule is the realised count, training divides by that."""
    if mechanism.samples_subjects or mechanism.divisor_rule is DivisorRule.ONE:
        return silo
    expects = mechanism.divisor_rule is DivisorRule.EXPECTED_SUBJECTS
    return replace(silo, divisor=sound.expected_subjects(silo) if expects else batch)


def _check_facts(mechanism: Mechanism, facts: FederationFacts, settings: PlanSettings) -> None:
    silos = len(facts.items)
    if silos == 0 or min(facts.items) < 1:
        raise expected("items of every silo", facts.items, "at least 1")
    sized = settings.sampling_fraction is None and not mechanism.samples_subjects
    if sized and not 1 <= settings.batch_size <= min(facts.items):
        allowed = f"between 1 and the smallest silo's {min(facts.items)} items"
        raise expected("training.batch_size", settings.batch_size, allowed)
    if not 1 <= facts.silos_per_subject <= silos:
        raise expected("silos_per_subject", facts.silos_per_subject, f"between 1 and the {silos} silos")
    wanted = settings.predicted_subjects
    if wanted is not None and wanted < (total := _total(facts)):
        raise expected("privacy.predicted_subjects", wanted, f"at least {total}, the subjects of the federation")


def _subject_schedule(mechanism: Mechanism, facts: FederationFacts, settings: PlanSettings, silo: int) -> SiloSchedule:
    """One silo's schedule, still without noise: its sampling probability is a subject's, q_s.

    The divisor is the public expected number of subjects in a step. With a common budget it is the silo's part of
    expected subjects of the federation, times what a subject's clip norms add up to over the silos that may hold it.
    """
    q, cap = settings.subject.sampling_probability, facts.max_items_per_subject
    steps = 1 if mechanism.one_step_per_round or settings.local_steps is None else settings.local_steps
    divisor = max(1.0, facts.subjects[silo] * q)
    if mechanism.shared_budget:
        divisor = max(1.0, _total(facts) * q * reach(mechanism.trust, facts.silos_per_subject)) / len(facts.items)
    return SiloSchedule(
        items=facts.items[silo],
        subjects=facts.subjects[silo],
        sampling_probability=q,
        max_items_per_subject=facts.largest_subject[silo] if cap is None else cap,
        steps_per_round=steps,
        noise_multiplier=0.0,
        divisor=divisor,
    )


def _total(facts: FederationFacts) -> int:
    if facts.total_subjects is None:
        raise expected("subjects of the federation", None, "known: the divisor is made from it", PrivacyError)
    return facts.total_subjects


def with_prediction(plan: PrivacyPlan, facts: FederationFacts) -> PrivacyPlan:
    """The plan with the noise on the average that ``settings.predicted_subjects`` N subjects would have.

    With N instead of n subjects alike, as many times the items and as large mini-batches, sampling probabilities, steps
    and σ stay, and the divisor is N/n times as large. Dividing σ by N/n instead gives the same noise on the average;
    what the run then gives its own n subjects is accounted for like any other plan. A sum that is divided by nothing
    (UserLDP) keeps its noise.
    """
    wanted = plan.settings.predicted_subjects
    if wanted is None or plan.mechanism.claimed_unit is None:
        return plan
    present = _total(facts)
    kept = plan.mechanism.divisor_rule is DivisorRule.ONE or plan.mechanism.clipping is Clipping.PER_UPDATE
    factor = 1.0 if kept else present / wanted
    full = tuple(silo.noise_multiplier for silo in plan.silos)
    plan = with_noise_multipliers(plan, [sigma * factor for sigma in full], by_size=False)
    return replace(plan, prediction=Prediction(wanted, present, full))


def plan_run(run: RunConfig, partition: Partition) -> PrivacyPlan:
    """The privacy plan of a run on a partition (see :func:`make_plan` for what it refuses)."""
    return make_plan(mechanism_of(run), partition.federation_facts(), plan_settings(run))


def draft_run(run: RunConfig, partition: Partition) -> PrivacyPlan:
    """The plan of :func:`plan_run` before its noise is calibrated: schedule and rounds, at once."""
    return draft_plan(mechanism_of(run), partition.federation_facts(), plan_settings(run))


_PLAN = TypeAdapter(PrivacyPlan)


def plan_from_dict(content: Mapping[str, Any]) -> PrivacyPlan:
    """The inverse of ``PrivacyPlan.to_dict``; raises DataError for a dictionary that is not one."""
    try:
        return _PLAN.validate_python(content)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(f"Expected a privacy plan, got a record with {where}: {first['msg']}.") from problem
