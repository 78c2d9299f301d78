"""The papers' own accounting: what they claim, and the noise that follows from it. None of it is certified."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from scipy import special

from subjectdp.accounting import renyi
from subjectdp.accounting.calibration import cached, calibrate_many, calibrate_noise_multiplier
from subjectdp.accounting.epsilon import SEARCH, epsilon_of
from subjectdp.accounting.events import (
    MixtureSteps,
    PrivacyLoss,
    Shift,
    sampled_gaussian,
    subject_sampling_probability,
    with_noise,
)
from subjectdp.accounting.sound import participants, typical_group_size
from subjectdp.plan.plan import (
    FederationFacts,
    Horizontal,
    Mechanism,
    NoiseRule,
    PlanSettings,
    PrivacyPlan,
    PublishedSampling,
    SiloSchedule,
    TrustModel,
)
from subjectdp.plan.rules import expected_batch, silos_in_round

EXACT_GROUPS = 32  # σ_Z up to this Z by the chosen accountant, above by Rényi on a coarse ladder of Z
_LADDER = 1.1
_FEW_SILOS = 64  # different ones, that are calibrated one by one
_SMALLEST_LOG_DELTA = math.log(1e-12)
_LARGEST_EXPONENT = 600.0  # e to it is still a floating-point number, and so is that times a δ


def published_loss(
    mechanism: Mechanism, facts: FederationFacts, settings: PlanSettings, schedule: SiloSchedule
) -> PrivacyLoss:
    """The paper's mechanism for one silo: a sampled Gaussian of sensitivity C over T·R steps, times its horizontal
    rule.

    ``Horizontal.SOUND`` as published keeps sampling fraction and sensitivity but composes over every silo of a subject.
    """
    rule, q = mechanism.published_sampling, 1.0
    if rule is PublishedSampling.FEDERATION:
        q = expected_batch(settings, sum(facts.items) / len(facts.items)) / sum(facts.items)
    elif rule is not PublishedSampling.NONE:
        bound = schedule.max_items_per_subject if rule is PublishedSampling.SUBJECT_UNION_BOUND else 1
        q = bound * schedule.sampling_probability
    q = min(1.0, q)
    # k fused steps: the paper bounds their sum by C, and any of them may draw the item
    q = subject_sampling_probability(q, schedule.fused_steps) if schedule.fused_steps > 1 else q
    steps, horizontal = schedule.steps_per_round * settings.rounds, mechanism.horizontal_composition
    by_silos = horizontal and settings.horizontal is Horizontal.STEPS_TIMES_S
    if mechanism.published_steps_times_silos or by_silos:
        steps *= silos_in_round(len(facts.items), settings)
    elif horizontal and settings.horizontal is Horizontal.SOUND:
        steps *= facts.silos_per_subject
    return (MixtureSteps(1.0, sampled_gaussian(q), steps),)


def cached_noise(loss: PrivacyLoss, settings: PlanSettings) -> float:
    """σ of the loss for the plan's target, from its accountant; cached."""
    compute = partial(calibrate_noise_multiplier, loss, settings.epsilon, settings.delta, settings.accountant)
    return float(cached("noise_multiplier", _loss_key(loss, settings), compute))


def noise_of_each(losses: Sequence[PrivacyLoss], settings: PlanSettings) -> list[float]:
    """σ of each silo's loss for the plan's target; cached."""
    if len(set(losses)) <= _FEW_SILOS:
        return [cached_noise(loss, settings) for loss in losses]
    compute = partial(calibrate_many, losses, settings.epsilon, settings.delta, settings.accountant)
    keys = [_loss_key(loss, settings) for loss in losses]
    return [float(value) for value in cached("noise_of_each", {"losses": keys}, compute)]


def local_noise_bound(epsilon: float, delta: float) -> float:
    """The smallest float above 1/(√(2π)·ε·δ·e^ε), which v3's Theorem 3.11 asks of σ besides Theorem 3.10."""
    if epsilon > _LARGEST_EXPONENT:
        return 0.0  # far below the least noise that a calibration gives
    return math.nextafter(1 / (math.sqrt(2 * math.pi) * epsilon * delta * math.exp(epsilon)), math.inf)


def local_bound_epsilon(noise_multiplier: float, delta: float) -> float:
    """The ε at which :func:`local_noise_bound` equals ``noise_multiplier``: ε·e^ε = 1/(√(2π)·δ·σ)."""
    if noise_multiplier <= 0:
        return math.inf
    return float(special.lambertw(1 / (math.sqrt(2 * math.pi) * delta * noise_multiplier)).real)


def _loss_key(loss: PrivacyLoss, settings: PlanSettings, **more: Any) -> dict[str, Any]:
    parts = [
        [list(part.shift.sensitivities), list(part.shift.probabilities), part.steps]
        if type(part.shift) is Shift
        else [repr(part.shift), part.steps]
        for part in loss
    ]
    target = {"epsilon": settings.epsilon, "delta": settings.delta, "accountant": settings.accountant}
    return {"parts": parts, **target, **more}


def group_noise(
    loss: PrivacyLoss, settings: PlanSettings, largest: int, exact: int = EXACT_GROUPS
) -> tuple[float, ...]:
    """σ_Z for Z = 1..largest by the papers' group rule, (ε/Z, δ/(Z e^{(Z-1)ε/Z})); never falling in Z; cached."""
    compute = partial(group_table, loss, settings, largest, exact)
    key = _loss_key(loss, settings, largest=largest, exact=exact)
    return tuple(float(value) for value in cached("group_noise", key, compute))


def largest_likely_group(schedules: Iterable[SiloSchedule], rounds: int, chance: float) -> int:
    """The largest group that a run draws with more than ``chance``, at least 8 (a binomial tail, union bound)."""
    from scipy import stats

    most = 8
    for subjects, k, q, steps in {
        (s.subjects, s.max_items_per_subject, s.sampling_probability, s.steps_per_round) for s in schedules
    }:
        larger = subjects * steps * rounds * stats.binom.sf(range(k + 1), k, q)  # chance of more than 0, .. k
        most = max(most, next(size for size in range(k + 1) if larger[size] <= chance))
    return most


def group_target(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """(ε/Z, log of δ/(Z e^{(Z-1)ε/Z})); a logarithm because δ underflows for large ε (v1, Theorem 3.4)."""
    share = epsilon / size
    return share, math.log(delta) - math.log(size) - (size - 1) * share


def group_table(loss: PrivacyLoss, settings: PlanSettings, largest: int, exact: int = EXACT_GROUPS) -> list[float]:
    """The table behind :func:`group_noise`; on the coarse grid, at most 0.2 % above the finest value.

    Sizes above ``exact``, and targets whose δ is beyond a grid's rounding, are accounted by Rényi divergences on a
    ladder of sizes, each size taking the value of the next rung: larger than needed, never smaller.
    """
    table: list[float] = []
    epsilon, delta = settings.epsilon, settings.delta
    while len(table) < largest:
        size = rung = len(table) + 1
        share, log_delta = group_target(epsilon, delta, size)
        if size > exact or log_delta < _SMALLEST_LOG_DELTA:
            rung = min(largest, max(size, math.ceil(size * _LADDER)))
            value = _renyi_noise(loss, *group_target(epsilon, delta, rung))
        else:
            guess = None
            if size > 2:  # from the last two by a power law in Z
                power = math.log(table[-1] / table[-2]) / math.log((size - 1) / (size - 2))
                guess = table[-1] * math.pow(size / (size - 1), min(2.0, power))
            value = calibrate_noise_multiplier(loss, share, math.exp(log_delta), settings.accountant, guess, SEARCH)
        table.extend([max([value, *table[-1:]])] * (rung - size + 1))
    return table


def _renyi_noise(loss: PrivacyLoss, epsilon: float, log_delta: float) -> float:
    """σ by bisection on the Rényi bound; δ may be too small for a float."""
    orders = renyi.orders_for(epsilon, log_delta)

    def too_small(sigma: float) -> bool:
        return renyi.quadrature_epsilon(with_noise(loss, sigma), log_delta, orders) > epsilon

    low, high = 1e-2, 1.0
    while too_small(high):
        low, high = high, high * 2
    while high / low > 1.002:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if too_small(middle) else (low, middle)
    return high


def published_epsilon(plan: PrivacyPlan) -> float:
    """The ε that the paper would claim for the plan's own σ: the largest over silos.

    Where noise depends on the group size: by the group rule at the typical size, with the δ that it leaves for one
    item. Joint noise claims the noise of all honest silos' sum, others that of one silo.
    """
    facts, settings, copies = facts_of(plan), plan.settings, 1.0
    if plan.mechanism.trust is TrustModel.SECURE_AGGREGATION:
        copies = math.sqrt(participants(plan) - settings.colluding_silos)
    grouped, worst = plan.mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH, 0.0
    seen: set[tuple[PrivacyLoss, int]] = set()
    for index, schedule in enumerate(plan.silos):
        size = typical_group_size(schedule) if grouped else 1
        sigma = plan.noise_multiplier(index, size) * copies
        loss = with_noise(published_loss(plan.mechanism, facts, settings, schedule), sigma)
        if (loss, size) not in seen:
            seen.add((loss, size))
            delta = settings.delta if size == 1 else math.exp(group_target(settings.epsilon, settings.delta, size)[1])
            worst = max(worst, size * epsilon_of(loss, delta, settings.accountant))
        if plan.mechanism.published_local_bound:
            worst = max(worst, local_bound_epsilon(sigma, settings.delta))
    return worst


def facts_of(plan: PrivacyPlan) -> FederationFacts:
    """The facts that a plan was made from, as far as the accounting needs them."""
    return FederationFacts(
        items=tuple(schedule.items for schedule in plan.silos),
        subjects=tuple(schedule.subjects for schedule in plan.silos),
        largest_subject=tuple(schedule.max_items_per_subject for schedule in plan.silos),
        cap_enforced=plan.cap_enforced,
        max_items_per_subject=max(schedule.max_items_per_subject for schedule in plan.silos),
        silos_per_subject=plan.silos_per_subject,
    )
