"""Sound accounting: the privacy losses of one unit under the plan's sampler, clipping, noise and trust model."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, reduce

import numpy as np

from subjectdp.accounting.epsilon import FINAL, coarse_bounds, epsilon_of, truncated_tail_bounds
from subjectdp.accounting.events import (
    MixtureSteps,
    PrivacyLoss,
    Series,
    Shift,
    Told,
    Turned,
    known_coin,
    merged,
    sampled_gaussian,
    subject_sampling_probability,
    unit_shift,
    update_shift,
)
from subjectdp.accounting.gaussian import clt_mu
from subjectdp.accounting.renyi import quick_bounds
from subjectdp.accounting.worst_case_silos import (
    SiloRun,
    drawn_together,
    few_choices,
    few_kinds,
    losses_by_place,
    many_outcomes,
    maximal,
    meetings_in_turn,
    shifts_by_place,
)
from subjectdp.errors import PrivacyError, expected
from subjectdp.noise.subject_weights import moved_at_one_silo
from subjectdp.plan.plan import (
    AccountingMode,
    BudgetWeights,
    Clipping,
    DivisorRule,
    NoiseDistribution,
    NoiseRule,
    PrivacyPlan,
    PrivacyUnit,
    SiloChoice,
    SiloSchedule,
    TrustModel,
)
from subjectdp.plan.rules import expected_batch, silos_in_round

FEW_LOSSES = 24  # more are searched for the worst by their bounds
_unit_shift = lru_cache(maxsize=1024)(unit_shift)  # ε over the rounds asks for the same ones again


def unit_losses(plan: PrivacyPlan, unit: PrivacyUnit, every_silo: bool) -> list[PrivacyLoss]:
    """The privacy losses that a unit may have, as whoever sees every noisy step (LOCAL trust) or the noisy sums
    observes.

    ``every_silo``: a subject's items at all of the ``silos_per_subject`` silos that may hold it, against those at one
    silo. An item or a silo's whole data is at one. Raises PrivacyError where the mechanism bounds nothing.
    """
    if plan.mechanism.noise_rule is NoiseRule.NONE:
        raise PrivacyError(f"{plan.mechanism.algorithm} adds no noise: no epsilon can be given.")
    if least_noise(plan.silos) < 1e-12:  # 0, as the settings may ask for: nothing is divided by it
        return [(MixtureSteps(0.0, sampled_gaussian(1.0), plan.rounds),)]
    summed = noise_is_summed(plan)
    if plan.mechanism.shared_budget:
        shift = _budget_shift(plan, unit, every_silo)
        sigma = least_noise(plan.silos) * (noise_copies(plan) if summed else 1.0)
        return [(MixtureSteps(sigma, shift, _rounds_charged(plan, shift)),)]
    silos = [_silo_run(plan, silo) for silo in range(len(plan.silos))]
    several = unit is PrivacyUnit.SUBJECT and every_silo and plan.silos_per_subject > 1
    if _drawn_rounds(plan):
        return [(_drawn_steps(plan, held),) for held in _held(plan, silos, unit, several)]
    if summed:
        return _summed_losses(plan, silos, unit, several)
    # every silo's steps are seen: all compose
    return list(dict.fromkeys(map(merged, _held(plan, silos, unit, several))))


def noise_is_summed(plan: PrivacyPlan) -> bool:
    """True where only the sum over silos is released, so that the noise of all silos protects each of them.

    Joint noise counts only with one noisy step in each aggregation: with more, another silo's later gradients may
    cancel its own earlier noise (the counterexample to Theorem 4.7 of arXiv 2407.19286). Where the whole update is
    clipped and noised once, no gradient comes after the noise. Nor does it count without :func:`sums_noisy_gradients`.
    """
    trust = plan.mechanism.trust
    if trust is TrustModel.LOCAL:
        return False
    single = all(releases(plan, schedule) == 1 for schedule in plan.silos)
    if trust is TrustModel.SECURE_AGGREGATION:
        return single and sums_noisy_gradients(plan) and not plan.settings.own_noise_only
    if not single:
        raise PrivacyError(
            "A trusted server that adds the noise needs one local step a round: the sum of several "
            "steps without noise in between is not bounded by the clip norm."
        )
    return True


def own_noise_alone(plan: PrivacyPlan) -> bool:
    """Whether secure aggregation sums the silos' noise, and yet each silo's own noise alone protects its items."""
    return plan.mechanism.trust is TrustModel.SECURE_AGGREGATION and not noise_is_summed(plan)


def sums_noisy_gradients(plan: PrivacyPlan) -> bool:
    """Whether what secure aggregation sums is linear in what the silos noised.

    Adam's first step is the sign of each noisy gradient: where a silo's sum is far longer than its noise, that noise is
    lost to the others' items. Noise on whole updates or a subject's parts comes after any local optimiser.
    """
    return plan.mechanism.noised_after_steps or plan.settings.linear_updates


def releases(plan: PrivacyPlan, schedule: SiloSchedule) -> int:
    """Noisy releases of a silo in a round: one for each local step, or one for the whole update."""
    return 1 if plan.mechanism.clipping is Clipping.PER_UPDATE else schedule.steps_per_round


def participants(plan: PrivacyPlan) -> int:
    """Silos that take part in a round."""
    return silos_in_round(len(plan.silos), plan.settings)


def noise_copies(plan: PrivacyPlan) -> float:
    """Noise of the sum over a round's silos, in units of the least noise multiplier of a silo.

    Independent noise adds up in variance (colluding silos' noise is taken off). In sound mode a trusted server adds
    its noise once to the sum; as CentralSubDP is published it noises each silo's average, outside the 1/B.
    """
    if plan.mechanism.trust is TrustModel.SECURE_AGGREGATION:
        return _copies(plan, participants(plan) - plan.settings.colluding_silos)
    if plan.mechanism.noise_rule is NoiseRule.CONSTANT:
        return 1.0
    mean = sum(silo.items for silo in plan.silos) / len(plan.silos)
    return math.sqrt(participants(plan)) * expected_batch(plan.settings, mean)


def _copies(plan: PrivacyPlan, count: int) -> float:
    """Noise of the sum over the ``count`` silos that have the least."""
    least = least_noise(plan.silos)
    squares = sorted((silo.noise_multiplier / least) ** 2 if least > 0 else 1.0 for silo in plan.silos)
    return math.sqrt(sum(squares[:count]))


def least_noise(silos: Sequence[SiloSchedule]) -> float:
    """The noise multiplier of silos that share one noise (the least, should they disagree)."""
    return min(silo.noise_multiplier for silo in silos)


def shares(plan: PrivacyPlan) -> float:
    """The noise multiplier of the sum over silos over each silo's own; 1 where silos do not share one noise.

    One that is given or calibrated is that of the sum wherever the noise of silos adds up before anybody sees it: under
    secure aggregation, unless each silo's own noise alone is counted.
    """
    mechanism = plan.mechanism
    claimed = plan.settings.mode is AccountingMode.AS_PUBLISHED
    if mechanism.trust is not TrustModel.SECURE_AGGREGATION or not (claimed or noise_is_summed(plan)):
        return 1.0
    return _copies(plan, participants(plan))


def noise_of_the_sum(plan: PrivacyPlan) -> float:
    """The noise multiplier in the sense of :func:`shares`; of a silo where silos do not share one noise."""
    own, parts = least_noise(plan.silos), shares(plan)
    whole = own * parts
    return whole if whole / parts >= own else math.nextafter(whole, math.inf)  # so that a share is no smaller


def averaged_noise(plan: PrivacyPlan) -> float:
    """Std of each coordinate of the noise on one step's average over all silos, in clip norms; 0 without noise.

    It compares algorithms with different sampling, sums and divisors: the average is the server's step for a learning
    rate of 1 and one local step a round, the mean of the silos' noisy means, or the one noisy sum over them.
    PrivacyError for noise or divisor that depend on the mini-batch, or a round of some of the silos only.
    """
    rule, divisor = plan.mechanism.noise_rule, plan.mechanism.divisor_rule
    if rule is NoiseRule.NONE:
        return 0.0
    if rule is not NoiseRule.CONSTANT or divisor is DivisorRule.REALISED_SUBJECTS:
        read = f"noise {rule}, divisor {divisor}"
        raise expected("noise on the average of the plan", read, "public constants", PrivacyError)
    silos = plan.silos
    if participants(plan) != len(silos):
        raise expected("silos_per_round of the plan", participants(plan), f"all {len(silos)}, or null", PrivacyError)
    sums = [silo.noise_multiplier for silo in silos]
    if plan.mechanism.trust is TrustModel.CENTRAL:
        return sums[0] / sum(silo.divisor for silo in silos)
    if plan.mechanism.clipping is not Clipping.PER_UPDATE:  # which is divided before it is noised
        sums = [noise / silo.divisor for noise, silo in zip(sums, silos, strict=True)]
    return math.hypot(*sums) / len(silos)


@lru_cache(maxsize=256)
def typical_group_size(schedule: SiloSchedule) -> int:
    """The most frequent largest group of a Poisson mini-batch: P(max ≤ z) = P(Bin(k̄, q) ≤ z)^subjects.
    k̄ is the mean number of items of a subject at the silo, between its integer neighbours."""
    from scipy import stats  # here: it takes half a second to load

    mean, q = schedule.items / max(1, schedule.subjects), schedule.sampling_probability
    low, share = math.floor(mean), mean - math.floor(mean)
    sizes = np.arange(schedule.max_items_per_subject + 1)
    one, other = (stats.binom.logcdf(sizes, n, q) for n in (low, low + 1))
    rest = share * other if share > 0 else 0.0  # 0 times log 0 is no number
    below = np.exp(schedule.subjects * ((1 - share) * one + rest))
    return max(1, int(np.argmax(np.diff(below, prepend=0.0))))


def unit_epsilon(
    plan: PrivacyPlan, unit: PrivacyUnit, every_silo: bool, accountant: str | None = None, resolution: float = FINAL
) -> float:
    """ε at the plan's δ for a unit, as if σ and divisor were public constants (see ``Mechanism.data_dependence``)."""
    chosen = plan.settings.accountant if accountant is None else accountant
    return largest(unit_losses(plan, unit, every_silo), plan.settings.delta, chosen, resolution)[0]


def largest(
    losses: Sequence[PrivacyLoss], delta: float, accountant: str, resolution: float = FINAL
) -> tuple[float, PrivacyLoss]:
    """The largest ε of the losses, and one that has it.

    Of many most are left out by upper bounds: of Rényi divergences, or on a coarse grid where these are too loose.
    Those with the largest bounds come first, and no other whose bound is below the largest ε so far.
    """
    worst, bounds = (-1.0, losses[0]), [math.inf] * len(losses)
    if len(losses) > FEW_LOSSES and accountant == "pld":
        first = max(losses, key=clt_mu)
        worst = (epsilon_of(first, delta, accountant, resolution), first)
        for upper_bounds in (quick_bounds, coarse_bounds):
            kept = [loss for bound, loss in zip(bounds, losses, strict=True) if bound > worst[0]]
            if len(kept) > FEW_LOSSES:
                losses, bounds = kept, truncated_tail_bounds(kept, delta, upper_bounds)
    for bound, loss in sorted(zip(bounds, losses, strict=True), key=lambda each: each[0], reverse=True):
        if bound <= worst[0]:
            break
        worst = max(worst, (epsilon_of(loss, delta, accountant, resolution), loss), key=lambda each: each[0])
    return worst


def _silo_run(plan: PrivacyPlan, silo: int) -> SiloRun:
    schedule = plan.silos[silo]
    if plan.mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH:
        schedule = replace(schedule, noise_multiplier=plan.noise_multiplier(silo, typical_group_size(schedule)))
    return SiloRun(schedule, plan.rounds_of(silo))


def _shift(plan: PrivacyPlan, schedule: SiloSchedule, unit: PrivacyUnit) -> Shift:
    q, k, items = schedule.sampling_probability, schedule.max_items_per_subject, schedule.items
    clipping, sampling = plan.mechanism.clipping, plan.settings.sampling
    if unit is PrivacyUnit.SUBJECT and k < 1 and not plan.mechanism.samples_subjects:
        raise PrivacyError("no cap given: how many items of a subject a silo holds is not known")
    if clipping is Clipping.PER_UPDATE and unit is not PrivacyUnit.SILO:
        return update_shift(unit, sampling, q, k, items, schedule.steps_per_round)
    if schedule.fused_steps > 1:
        raise PrivacyError(
            f"{schedule.fused_steps} local steps without noise in between: a drawn item may turn the later gradients "
            "of all items of its silo, which the clip norm does not bound"
        )
    return _unit_shift(clipping, unit, sampling, q, k, items)


def _held(plan: PrivacyPlan, silos: list[SiloRun], unit: PrivacyUnit, several: bool) -> list[list[MixtureSteps]]:
    """The releases of a unit's silos, for each choice of silos that may be the worst; of one round, if silos are drawn.

    ``several``: of a subject at several silos, which are few, known, or bounded place by place.
    """
    drawn, count = _drawn_rounds(plan), plan.silos_per_subject
    silos = [silo._replace(rounds=1) for silo in silos] if drawn else silos
    choices: list[tuple[SiloRun, ...]]
    if not several:
        choices = [(silo,) for silo in maximal(silos)]
    elif not (choices := _held_by_people(plan, silos) or few_choices(silos, count)):
        return [_places(plan, silos, count, unit)]
    held = [[_steps(plan, silo, unit) for silo in each] for each in choices]
    draw = participants(plan), noise_is_summed(plan)
    return [
        _places(plan, each, len(each), unit) if drawn and many_outcomes(steps, *draw) else steps
        for steps, each in zip(held, choices, strict=True)
    ]


def _places(plan: PrivacyPlan, silos: Sequence[SiloRun], count: int, unit: PrivacyUnit) -> list[MixtureSteps]:
    """Releases that any choice of ``count`` of the silos is no worse than, the largest first."""

    def run(silo: SiloRun) -> MixtureSteps:
        return _steps(plan, silo, unit)

    if noise_is_summed(plan):
        shifts = shifts_by_place(silos, count, lambda silo: run(silo).shift)
        return [MixtureSteps(least_noise(plan.silos), shift, 1) for shift in shifts]
    integers = plan.settings.noise_distribution is NoiseDistribution.SKELLAM
    alone = plan.settings.delta / (plan.rounds if _drawn_rounds(plan) else 1)
    return losses_by_place(silos, count, run, None if integers else alone)


def _drawn_rounds(plan: PrivacyPlan) -> bool:
    """Whether the draw of a round's silos counts. No bound is known for integer noise and drawn silos."""
    drawn = plan.settings.silo_choice is SiloChoice.RANDOM and participants(plan) < len(plan.silos)
    return drawn and plan.settings.noise_distribution is not NoiseDistribution.SKELLAM


def _drawn_steps(plan: PrivacyPlan, held: list[MixtureSteps]) -> MixtureSteps:
    """Rounds of drawn silos: some of those that hold the unit take part. Everybody knows which, and nobody's data
    decides over it (``events.Told``)."""
    summed, still = noise_is_summed(plan), Shift((0.0,), (1.0,))
    sigma = least_noise(plan.silos) * noise_copies(plan) if summed else held[0].noise_multiplier
    parts = list[tuple[float, Series]]()
    kinds = few_kinds(held, participants(plan), summed)
    for chance, runs in drawn_together(kinds, participants(plan), len(plan.silos) - len(held)):
        series = tuple((each.noise_multiplier / sigma, each.steps, each.shift) for each in merged(runs))
        if summed or not runs:
            series = ((1.0, 1, reduce(Shift.convolve, [each.shift for each in runs] or [still])),)
        parts.append((chance, series))
    return MixtureSteps(sigma, Told.among(parts), plan.rounds)


def _held_by_people(plan: PrivacyPlan, silos: list[SiloRun]) -> list[tuple[SiloRun, ...]]:
    def held(silo: int, items: int) -> SiloRun:
        return silos[silo]._replace(schedule=replace(silos[silo].schedule, max_items_per_subject=items))

    return [tuple(held(silo, items) for silo, items in own) for own in plan.people]


def silo_loss(plan: PrivacyPlan, silo: int, unit: PrivacyUnit) -> PrivacyLoss:
    """The loss of a unit (an item, or all data) of one silo, every noisy step of which is seen."""
    run, drawn = _silo_run(plan, silo), _drawn_rounds(plan)
    steps = _steps(plan, run._replace(rounds=1) if drawn else run, unit)
    return (_drawn_steps(plan, [steps]) if drawn else steps,)


def _steps(plan: PrivacyPlan, silo: SiloRun, unit: PrivacyUnit) -> MixtureSteps:
    schedule, rounds = silo
    return MixtureSteps(schedule.noise_multiplier, _shift(plan, schedule, unit), releases(plan, schedule) * rounds)


def _summed_losses(plan: PrivacyPlan, silos: list[SiloRun], unit: PrivacyUnit, several: bool) -> list[PrivacyLoss]:
    """One noisy sum a round: a subject's contributions at its silos add up before the noise.
    Where only some take part, choices differ by how many of them meet, and those that meet are the worst that may."""
    sigma = least_noise([silo.schedule for silo in silos]) * noise_copies(plan)
    count, together = plan.silos_per_subject, participants(plan)

    def summed(held: Sequence[MixtureSteps], rounds: int) -> MixtureSteps:
        return MixtureSteps(sigma, reduce(Shift.convolve, (each.shift for each in held)), rounds)

    sums: list[PrivacyLoss]
    if not several:
        sums = [(MixtureSteps(sigma, each.shift, each.steps),) for (each,) in _held(plan, silos, unit, several)]
    elif together == len(silos):
        sums = [(summed(held, plan.rounds),) for held in _held(plan, silos, unit, several)]
    else:
        meetings = [[(min(count, together), plan.rounds)]]  # whatever is drawn
        if plan.settings.silo_choice is SiloChoice.IN_TURN:
            meetings = meetings_in_turn(len(silos), together, plan.rounds, count)
        places = _places(plan, silos, count, unit)
        sums = [merged(summed(places[:met], rounds) for met, rounds in each) for each in meetings]
    return list(dict.fromkeys(sums))


def expected_subjects(schedule: SiloSchedule) -> float:
    """The public divisor m̄ = subjects · (1 - (1-q)^k̄) with k̄ = items/subjects, at least 1 (items are sampled)."""
    mean = schedule.items / max(1, schedule.subjects)
    return max(1.0, schedule.subjects * subject_sampling_probability(schedule.sampling_probability, mean))


def _budget_shift(plan: PrivacyPlan, unit: PrivacyUnit, every_silo: bool) -> Shift:
    settings, clipping, schedule = plan.settings, plan.mechanism.clipping, plan.silos[0]
    q = max(silo.sampling_probability for silo in plan.silos)
    most, items = schedule.max_items_per_subject, schedule.items
    shift = unit_shift(clipping, unit, settings.sampling, q, most, items)
    q = shift.probabilities[-1]
    moved = moved_at_one_silo(settings.subject.weights, plan.mechanism.trust, plan.silos_per_subject)
    if unit is PrivacyUnit.ITEM and settings.subject.weights is BudgetWeights.FIXED:
        # It may turn its own silo's part around, and no other part changes.
        shift = Turned.by(q, 2.0 * moved)
    elif unit is PrivacyUnit.SUBJECT and not every_silo and plan.silos_per_subject > 1:
        # One coin for all parts of the subject: with what it holds elsewhere it is sampled on both sides.
        shift = Turned.by(q, moved)
    # every silo knows the common coin
    return known_coin(shift) if settings.colluding_silos and q < 1 else shift


def _rounds_charged(plan: PrivacyPlan, shift: Shift) -> int:
    """Rounds that count as if a subject's whole budget were spent in each.

    Where silos take turns, its parts c_i add up to at most what one silo's rounds would give the whole budget: Σ_i of
    rounds times c_i² (or (Σ c_i)² in a sum, at most Σ c_i) is at most the largest number of rounds. That is an argument
    on Gaussians: under coins every round counts.
    """
    if len(shift.sensitivities) > 1:
        return plan.rounds
    return max(plan.rounds_of(silo) for silo in range(len(plan.silos)))
