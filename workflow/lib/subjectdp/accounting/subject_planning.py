"""Plans of algorithms that sample subjects, and runs with the noise that more subjects would have."""

from __future__ import annotations

from dataclasses import replace

from subjectdp.errors import PrivacyError, expected
from subjectdp.noise.subject_weights import reach
from subjectdp.plan.plan import (
    Clipping,
    DivisorRule,
    FederationFacts,
    Mechanism,
    PlanSettings,
    Prediction,
    PrivacyPlan,
    SiloSchedule,
)


def check_prediction(facts: FederationFacts, settings: PlanSettings) -> None:
    """Refuses predicted noise for fewer subjects than there are. Raises ConfigError."""
    wanted = settings.predicted_subjects
    if wanted is not None and wanted < _total(facts):
        allowed = f"at least {_total(facts)}, the subjects of the federation"
        raise expected("privacy.predicted_subjects", wanted, allowed)


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
    expected_subjects = _total(facts) * probability
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
