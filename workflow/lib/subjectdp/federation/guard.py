"""What a silo refuses, whatever the server says: plans that its own file, its own data or its ledger do not allow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from subjectdp.accounting.ledger import LedgerEntry, composed_epsilon
from subjectdp.accounting.sound import noise_is_summed
from subjectdp.errors import PrivacyError, SubjectDPError, expected
from subjectdp.federation.site import Site
from subjectdp.plan.plan import (
    AccountingMode,
    BudgetWeights,
    NoiseDistribution,
    NoiseRule,
    PrivacyPlan,
    PrivacyUnit,
    SamplingMethod,
    SiloChoice,
    TrustModel,
)
from subjectdp.sampling.batches import silos_of_round


def check_plan(site: Site, plan: PrivacyPlan, masked: bool = False) -> None:
    """Raises PrivacyError for a plan whose stated ε would not hold here, or that the silo's file does not allow.

    ``masked``: the silos hide what they send from the server, so that it sees their sum alone.
    """
    for problem in (*_of_the_plan(plan, masked), *_of_the_site(site, plan)):
        raise problem


def _of_the_plan(plan: PrivacyPlan, masked: bool) -> Iterator[SubjectDPError]:
    settings, mechanism = plan.settings, plan.mechanism
    several, shared = plan.silos_per_subject > 1, mechanism.shared_budget
    if settings.mode is not AccountingMode.SOUND and mechanism.noise_rule is not NoiseRule.NONE:
        yield _refused("privacy.mode", settings.mode, "sound")
    if mechanism.trust is TrustModel.CENTRAL:
        yield _refused("trust of the plan", mechanism.trust, "local: no silo gives its sums away without noise")
    if not masked and mechanism.trust is TrustModel.SECURE_AGGREGATION and noise_is_summed(plan):
        reason = "the server would see each silo's part with its share of the noise alone (joint.own_noise_only: true)"
        yield _refused("noise of the plan", "shared by the silos", f"each silo's own: {reason}")
    if settings.sampling is SamplingMethod.FIXED_BATCH_SIZE:
        yield _refused("training.sampling", settings.sampling, "poisson: batches of fixed size need exact counts")
    some = settings.silos_per_round not in (None, len(plan.silos))
    if some and settings.silo_choice is SiloChoice.RANDOM:
        yield _refused("training.silo_choice", settings.silo_choice, "in_turn: else the server would choose")
    if shared and several and settings.subject.weights is not BudgetWeights.FIXED:
        reason = "no silo knows what a person has elsewhere"
        yield _refused("subject.weights", settings.subject.weights, f"fixed: {reason}")
    if shared and several and any(silo.sampling_probability < 1 for silo in plan.silos):
        q = plan.silos[0].sampling_probability
        yield _refused("subject.sampling_probability", q, "1: silos throw no common coin for a person at several")
    if settings.predicted_subjects is not None:
        yield _refused("privacy.predicted_subjects", settings.predicted_subjects, "null")


def _of_the_site(site: Site, plan: PrivacyPlan) -> Iterator[SubjectDPError]:
    if site.silo >= len(plan.silos):
        yield _refused("silo of this file", site.silo, f"0 to {len(plan.silos) - 1} in the plan's federation")
    if plan.silos_per_subject < site.silos_per_subject:
        allowed = f"at least {site.silos_per_subject}, the silos at which a person may be"
        yield _refused("partition.silos_per_subject", plan.silos_per_subject, allowed)
    noised = plan.mechanism.noise_rule is not NoiseRule.NONE
    if noised and plan.settings.noise_source != site.noise:
        yield _refused("privacy.noise_source", plan.settings.noise_source, f"{site.noise}, as this silo's file says")
    if site.epsilon is not None and not noised:
        yield _refused("noise of the plan", "none", f"enough for epsilon {site.epsilon:g}")


def check_items(plan: PrivacyPlan, silo: int, items: int) -> None:
    """Raises PrivacyError for a silo without items, or with more than the ring of integer noise was made for."""
    if items == 0:
        raise _refused("items of this silo", 0, "at least 1")
    most = plan.silos[silo].items
    if plan.settings.noise_distribution is NoiseDistribution.SKELLAM and items > most:
        raise _refused("items of this silo", items, f"at most {most} with integer noise, whose ring is made for them")


def check_budget(site: Site, entries: Sequence[LedgerEntry]) -> float:
    """ε of all runs together at the site's δ, for its unit; raises PrivacyError where it exceeds the site's limit.

    ``entries`` are the runs of the ledger and, last, the one that is asked for; each counts in full.
    """
    if site.epsilon is None:
        return math.inf
    epsilon = composed_epsilon(entries, site.unit, site.unit is PrivacyUnit.SUBJECT, site.delta)
    if not epsilon <= site.epsilon:
        runs = "this plan" if len(entries) == 1 else f"{len(entries)} runs on the same people together"
        raise PrivacyError(
            f"{runs} would give epsilon {epsilon:.4g} at delta {site.delta:g} for one {site.unit}, "
            f"more than the {site.epsilon:g} that this silo's file allows."
        )
    return epsilon


def check_turn(plan: PrivacyPlan, silo: int, round_: int, done: Sequence[int]) -> None:
    """Raises PrivacyError for a round that the plan does not have, that is not this silo's turn, or that is past."""
    if not 1 <= round_ <= plan.rounds:
        raise _refused("round", round_, f"1 to {plan.rounds}, the rounds of the plan")
    if silo not in silos_of_round(len(plan.silos), plan.settings, 0, round_):
        raise _refused("round", round_, "one in which it is this silo's turn")
    if done and round_ <= max(done):
        raise _refused("round", round_, f"later than {max(done)}, the last one released here: no round is repeated")


def _refused(key: str, value: object, allowed: str) -> SubjectDPError:
    return expected(key, value, allowed, PrivacyError)
