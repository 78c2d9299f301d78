"""Plans of algorithms that sample subjects, and runs with the noise that more subjects would have."""

from __future__ import annotations

import math
from dataclasses import replace

from subjectdp.errors import PrivacyError, expected
from subjectdp.noise.subject_weights import reach
from subjectdp.plan.plan import (
    AccountingMode,
    Clipping,
    DivisorRule,
    FederationFacts,
    Mechanism,
    PlanSettings,
    PrivacyPlan,
    SamplingMethod,
    SiloSchedule,
)
from subjectdp.plan.subject_settings import Prediction


def check(mechanism: Mechanism, facts: FederationFacts, settings: PlanSettings) -> None:
    """Refuses what sampled subjects, correlated noise and predicted noise cannot be.

    Raises PrivacyError for another mode than sound, a sampler that draws items, or coins under correlated noise;
    ConfigError for numbers out of range.
    """
    if mechanism.beyond_papers and settings.mode is not AccountingMode.SOUND:
        allowed = f"sound with algorithm {mechanism.algorithm} (no paper of this project publishes it)"
        raise expected("privacy.mode", str(settings.mode), allowed, PrivacyError)
    if settings.predicted_subjects is not None:
        _check_prediction(facts, settings)
    drawn = settings.sampling is SamplingMethod.POISSON_SUBJECTS
    if drawn != mechanism.samples_subjects:
        wanted = "poisson_subjects" if mechanism.samples_subjects else "poisson or fixed_batch_size"
        allowed = f"{wanted} with algorithm {mechanism.algorithm}"
        raise expected("sampling of the plan", str(settings.sampling), allowed, PrivacyError)
    if drawn:
        _check_settings(settings)


def _check_prediction(facts: FederationFacts, settings: PlanSettings) -> None:
    wanted, present = settings.predicted_subjects or 0, _total(facts)
    if settings.mode is not AccountingMode.SOUND:
        allowed = "null unless privacy.mode is sound"
        raise expected("privacy.predicted_subjects", wanted, allowed, PrivacyError)
    if settings.noise_multiplier is not None:
        allowed = "null where privacy.noise_multiplier is given"
        raise expected("privacy.predicted_subjects", wanted, allowed)
    if wanted < present:
        allowed = f"at least {present}, the subjects of the federation"
        raise expected("privacy.predicted_subjects", wanted, allowed)


def _check_settings(settings: PlanSettings) -> None:
    subject = settings.subject
    if not (math.isfinite(subject.sampling_probability) and 0 < subject.sampling_probability <= 1):
        raise expected("subject.sampling_probability", subject.sampling_probability, "in (0, 1]")
    for key in ("items", "every", "local_steps", "noise_band"):
        value = getattr(subject, key)
        if value is not None and value < 1:
            raise expected(f"subject.{key}", value, "at least 1")
    if not (math.isfinite(subject.item_noise) and subject.item_noise >= 0):
        raise expected("subject.item_noise", subject.item_noise, "at least 0")
    if subject.every > settings.rounds:
        raise expected("subject.every", subject.every, f"at most the {settings.rounds} rounds")
    if subject.noise_band > settings.rounds:
        raise expected("subject.noise_band", subject.noise_band, f"at most the {settings.rounds} rounds")
    if subject.noise_band > 1 and subject.sampling_probability < 1:
        allowed = "1 with correlated noise, subject.noise_band above 1 (subject.every takes its place)"
        raise expected("subject.sampling_probability", subject.sampling_probability, allowed, PrivacyError)


def schedule(mechanism: Mechanism, facts: FederationFacts, settings: PlanSettings, silo: int) -> SiloSchedule:
    """One silo's schedule, still without noise: its sampling probability is a subject's, q_s."""
    subject, cap = settings.subject, facts.max_items_per_subject
    steps = 1 if mechanism.one_step_per_round or settings.local_steps is None else settings.local_steps
    return SiloSchedule(
        items=facts.items[silo],
        subjects=facts.subjects[silo],
        sampling_probability=subject.sampling_probability,
        max_items_per_subject=facts.largest_subject[silo] if cap is None else cap,
        steps_per_round=steps,
        noise_multiplier=0.0,
        divisor=_divisor(mechanism, facts, settings, silo),
    )


def _divisor(mechanism: Mechanism, facts: FederationFacts, settings: PlanSettings, silo: int) -> float:
    """The public expected number of subjects in a step of the silo.

    With a common budget the silo's part of all silos' divisor: expected subjects of the federation in a round, times
    what a subject's clip norms add up to over the silos that may hold it.
    """
    probability = settings.subject.sampling_probability
    if not mechanism.shared_budget:
        return max(1.0, facts.subjects[silo] * probability)
    expected_subjects = _total(facts) * probability / settings.subject.every
    whole = expected_subjects * reach(mechanism.trust, facts.silos_per_subject)
    return max(1.0, whole) / len(facts.items)


def _total(facts: FederationFacts) -> int:
    if facts.total_subjects is None:
        raise expected("subjects of the federation", None, "known: the divisor is made from it", PrivacyError)
    return facts.total_subjects


def with_prediction(plan: PrivacyPlan, facts: FederationFacts) -> PrivacyPlan:
    """The plan with the noise on the average that ``settings.predicted_subjects`` N subjects would have.

    With N instead of n subjects alike, as many times the items and as large mini-batches, sampling probabilities,
    steps and σ stay as they are and the divisor is N/n times as large. Dividing σ by N/n instead gives the same noise
    on the average; what the run then gives its own n subjects is accounted for like any other plan. A sum that is
    divided by nothing (UserLDP) keeps its noise.
    """
    wanted = plan.settings.predicted_subjects
    if wanted is None or plan.mechanism.claimed_unit is None:
        return plan
    present = _total(facts)
    kept = plan.mechanism.divisor_rule is DivisorRule.ONE or plan.mechanism.clipping is Clipping.PER_UPDATE
    factor = 1.0 if kept else present / wanted
    full = tuple(silo.noise_multiplier for silo in plan.silos)
    silos = (replace(silo, noise_multiplier=silo.noise_multiplier * factor) for silo in plan.silos)
    return replace(plan, silos=tuple(silos), prediction=Prediction(wanted, present, full))


def predicted_plan(plan: PrivacyPlan) -> PrivacyPlan | None:
    """The plan of the federation that the noise was made for; None where the run's noise is for its own subjects."""
    if plan.prediction is None:
        return None
    silos = (
        replace(silo, noise_multiplier=value)
        for silo, value in zip(plan.silos, plan.prediction.noise_multipliers, strict=True)
    )
    return replace(plan, silos=tuple(silos), prediction=None)
