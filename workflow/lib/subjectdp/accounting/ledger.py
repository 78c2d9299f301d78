"""What several runs on the same people give away together: their privacy losses composed, unit by unit.

Runs have noise of their own. Those of different seeds, and those with secure noise, draw their mini-batches
independently. Runs of one seed and one partition share the coins. Where they also have the same sampling and steps,
step t of all of them at a silo is one Gaussian release of a vector: a coin shifts it by s/σ_i in the coordinate of run
i, by s √(Σ 1/σ_i²) in all, and a shift is as bad as its length (arXiv 2310.15526, corollary 4.7). Runs of one seed that
sample in another way, or on another partition, have no ε together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import PrivacyLoss, merged
from subjectdp.accounting.gaussian import exact_mu
from subjectdp.accounting.make_plan import with_noise_multipliers
from subjectdp.accounting.sound import noise_is_summed, unit_losses
from subjectdp.accounting.worst_case_silos import worst_schedule
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import Accountant, NoiseDistribution, PrivacyPlan, PrivacyUnit

_MOST_CHOICES = 12


@dataclass(frozen=True)
class LedgerEntry:
    """One run: its plan, and what its mini-batches are drawn from."""

    run_id: str
    plan: PrivacyPlan
    seed: str  # runs of the same seed share their draws; secure runs have one each
    partition: str


def composed_epsilon(entries: Sequence[LedgerEntry], unit: PrivacyUnit, every_silo: bool, delta: float) -> float:
    """ε at δ of all runs together for one item, one subject at one silo, or (``every_silo``) one subject.
    Raises PrivacyError for a run without a provable ε, and for runs of one seed that have no ε together."""
    for entry in entries:
        if entry.plan.mechanism.data_dependence:
            raise PrivacyError(f"{entry.run_id}: {'; '.join(entry.plan.mechanism.data_dependence)}")
    groups: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        settings = replace(entry.plan.settings, delta=delta)  # silos are compared at the δ that ε is asked for
        entry = replace(entry, plan=replace(entry.plan, settings=settings))
        groups.setdefault(entry.seed, []).append(entry)
    choices = [_losses_of_a_seed(group, unit, every_silo) for group in groups.values()]
    if len(groups) > 1 and math.prod(len(each) for each in choices) > _MOST_CHOICES:
        # silos that are all as bad as the worst in every respect: a unit has one loss
        def alike(entry: LedgerEntry) -> LedgerEntry:
            silos = (worst_schedule(entry.plan.silos),) * len(entry.plan.silos)
            return replace(entry, plan=replace(entry.plan, silos=silos, people=()))

        choices = [_losses_of_a_seed([*map(alike, group)], unit, every_silo) for group in groups.values()]
    integers = any(e.plan.settings.noise_distribution is NoiseDistribution.SKELLAM for e in entries)
    accountant = Accountant.RDP_INTEGER if integers else Accountant.PLD
    wholes = (merged(part for loss in choice for part in loss) for choice in product(*choices))
    return max(epsilon_of(whole, delta, accountant) for whole in wholes)


def _losses_of_a_seed(group: Sequence[LedgerEntry], unit: PrivacyUnit, every_silo: bool) -> list[PrivacyLoss]:
    of_runs = [unit_losses(entry.plan, unit, every_silo) for entry in group]
    without_noise = [losses for losses in of_runs if losses[0][0].noise_multiplier == 0.0]
    if without_noise or len(group) == 1:
        return (without_noise or of_runs)[0]
    if all(exact_mu(loss) is not None for losses in of_runs for loss in losses):
        return [merged(part for loss in choice for part in loss) for choice in product(*of_runs)]

    def draws(entry: LedgerEntry) -> tuple[object, ...]:
        """All that the losses of a run rest on but its noise."""
        alike = with_noise_multipliers(entry.plan, [1.0] * len(entry.plan.silos), by_size=False)
        plan = replace(alike, silos=tuple(replace(silo, divisor=1.0) for silo in alike.silos))
        facts = (plan.settings.sampling, plan.rounds, plan.silos, plan.people, plan.silos_per_subject)
        return entry.partition, facts, tuple(unit_losses(plan, unit, every_silo))

    if len({draws(entry) for entry in group}) > 1:
        runs = ", ".join(entry.run_id for entry in group)
        raise PrivacyError(f"{runs} share draws of one seed but sample differently: give each run its own seed")
    return unit_losses(_one_run(group), unit, every_silo)


def _one_run(group: Sequence[LedgerEntry]) -> PrivacyPlan:
    """The plan whose steps release as much as those of all runs together, silo by silo."""

    def noise(plan: PrivacyPlan) -> list[float]:
        own = [silo.noise_multiplier for silo in plan.silos]
        return [min(own)] * len(own) if noise_is_summed(plan) else own  # the noise of a sum is made from the least

    of_silos = zip(*(noise(entry.plan) for entry in group), strict=True)
    joint = [sum(sigma**-2 for sigma in of_runs) ** -0.5 for of_runs in of_silos]
    return with_noise_multipliers(group[0].plan, joint, by_size=False)
