"""Privacy losses of plans in which a subject's clip norms at its silos are parts of one budget: one release a round.

One subject moves the sums of all silos, in units of their noise, by at most one clip norm, whichever silos hold it
(``noise.subject_weights``). A round is thus one Gaussian release, subsampled with the subject's probability, as if a
single trusted silo held all subjects.
"""

from __future__ import annotations

from subjectdp.accounting.events import MixtureSteps, PrivacyLoss, unit_shift
from subjectdp.accounting.shifts import Shift, Turned, known_coin
from subjectdp.noise.subject_weights import moved_at_one_silo
from subjectdp.plan.plan import BudgetWeights, PrivacyPlan, PrivacyUnit


def budget_losses(
    plan: PrivacyPlan, unit: PrivacyUnit, every_silo: bool, noise_copies: float
) -> list[PrivacyLoss]:
    """The loss of an item, of a subject at all of its silos, or (not ``every_silo``) of its items at one of them.

    ``noise_copies``: noise of what the observer sees, in noise multipliers of a silo. Raises PrivacyError for whole
    silos, which nothing bounds.
    """
    sigma = min(silo.noise_multiplier for silo in plan.silos) * noise_copies
    shift = _budget_shift(plan, unit, every_silo)
    return [(MixtureSteps(sigma, shift, _rounds_charged(plan, shift)),)]


def _budget_shift(plan: PrivacyPlan, unit: PrivacyUnit, every_silo: bool) -> Shift:
    """How one release is moved."""
    settings, schedule = plan.settings, plan.silos[0]
    shift = unit_shift(
        plan.mechanism.clipping,
        unit,
        settings.sampling,
        max(silo.sampling_probability for silo in plan.silos),
        schedule.max_items_per_subject,
        schedule.items,
    )
    q = shift.probabilities[-1]
    if unit is PrivacyUnit.ITEM and settings.subject.weights is BudgetWeights.FIXED:
        # It may turn its own silo's part around, and no other part changes.
        shift = Turned.by(q, 2.0 * _moved_at_one_silo(plan))
    elif unit is PrivacyUnit.SUBJECT and not every_silo and plan.silos_per_subject > 1:
        # One coin for all parts of the subject: with what it holds elsewhere it is sampled on both sides.
        shift = Turned.by(q, _moved_at_one_silo(plan))
    return (
        known_coin(shift) if settings.colluding_silos and q < 1 else shift
    )  # every silo knows the common coin


def _rounds_charged(plan: PrivacyPlan, shift: Shift) -> int:
    """Rounds that count as if a subject's whole budget were spent in each.

    Where silos take turns, its parts c_i add up to at most what one silo's rounds would give the whole budget: Σ_i of
    rounds times c_i² (or (Σ c_i)² in a sum, at most Σ c_i) is at most the largest number of rounds. That is an argument
    on Gaussians: under coins (more than one atom) every round counts.
    """
    if len(shift.sensitivities) > 1:
        return plan.rounds
    return max(plan.rounds_of(silo) for silo in range(len(plan.silos)))


def _moved_at_one_silo(plan: PrivacyPlan) -> float:
    return moved_at_one_silo(plan.settings.subject.weights, plan.mechanism.trust, plan.silos_per_subject)
