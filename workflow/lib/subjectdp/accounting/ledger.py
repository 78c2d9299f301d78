"""What several runs on the same people give away together: their privacy losses composed, unit by unit.

Runs have noise of their own, so that their losses compose as those of one run's steps do. Sampling is another matter.
Runs of different seeds, and runs with secure noise, draw their mini-batches independently. Runs of one seed and one
partition share the coins. Where they also have the same sampling and steps, step t of all of them is one Gaussian
release of a vector: a coin shifts it by s/σ_i in the coordinate of run i, by s √(Σ 1/σ_i²) in all, and a shift is as
bad as its length (arXiv 2310.15526, corollary 4.7). Runs of one seed that sample in another way, or on
another partition, have no ε together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import PrivacyLoss, merged
from subjectdp.accounting.gaussian import exact_mu
from subjectdp.accounting.private_selection import Curve, composed_curve, worst_curve
from subjectdp.accounting.sound import unit_losses
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


def composed_epsilon(
    entries: Sequence[LedgerEntry], unit: PrivacyUnit, every_silo: bool, delta: float
) -> float:
    """ε at δ of all runs together for one item, one subject at one silo, or (``every_silo``) one subject.

    Raises:
        PrivacyError: a run without a provable ε, or runs of one seed whose mini-batches depend on each other in a way
            that no bound is known for.
    """
    wholes, integers = composed_losses(entries, unit, every_silo)
    accountant = Accountant.RDP_INTEGER if integers else Accountant.PLD
    return max(epsilon_of(whole, delta, accountant) for whole in wholes)


def epsilon_with_selections(
    entries: Sequence[LedgerEntry],
    selections: Sequence[Curve],
    unit: PrivacyUnit,
    every_silo: bool,
    delta: float,
) -> float:
    """As :func:`composed_epsilon`, of runs and private selections (by Rényi divergences). Raises as it does."""
    if not entries:
        return composed_curve(selections).epsilon(delta)
    wholes, integers = composed_losses(entries, unit, every_silo)
    curves = (worst_curve([whole], integers) for whole in wholes)
    return max(composed_curve([curve, *selections]).epsilon(delta) for curve in curves)


def composed_losses(
    entries: Sequence[LedgerEntry], unit: PrivacyUnit, every_silo: bool
) -> tuple[list[PrivacyLoss], bool]:
    """The losses that a unit may have in all runs together, and whether any noise is of integers.

    Raises as :func:`composed_epsilon`.
    """
    for entry in entries:
        if entry.plan.mechanism.data_dependence:
            raise PrivacyError(f"{entry.run_id}: {'; '.join(entry.plan.mechanism.data_dependence)}")
    groups: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.seed, []).append(entry)
    choices = [_losses_of_a_seed(group, unit, every_silo) for group in groups.values()]
    if len(groups) > 1 and math.prod(len(each) for each in choices) > _MOST_CHOICES:
        alike = [
            [replace(entry, plan=_worst_silos(entry.plan)) for entry in group] for group in groups.values()
        ]
        choices = [_losses_of_a_seed(group, unit, every_silo) for group in alike]
    integers = any(e.plan.settings.noise_distribution is NoiseDistribution.SKELLAM for e in entries)
    return [merged(part for loss in choice for part in loss) for choice in product(*choices)], integers


def _losses_of_a_seed(group: Sequence[LedgerEntry], unit: PrivacyUnit, every_silo: bool) -> list[PrivacyLoss]:
    """The losses that a unit may have in the runs of one seed together."""
    found = [unit_losses(entry.plan, unit, every_silo) for entry in group]
    if len(group) == 1:
        return found[0]
    if all(exact_mu(loss) is not None for losses in found for loss in losses):
        return [merged(part for loss in choice for part in loss) for choice in product(*found)]
    same_items = len({entry.partition for entry in group}) == 1
    if not same_items or len({_without_noise(losses) for losses in found}) > 1:
        runs = ", ".join(entry.run_id for entry in group)
        raise PrivacyError(
            f"{runs} share draws of one seed but sample differently: give each run its own seed"
        )
    return [_shared_coins(losses) for losses in zip(*found, strict=True)]


def _shared_coins(losses: Sequence[PrivacyLoss]) -> PrivacyLoss:
    """Runs whose steps share their coins: each step with the noise (Σ 1/σ_i²)^(-1/2)."""
    return tuple(
        replace(parts[0], noise_multiplier=sum(part.noise_multiplier**-2 for part in parts) ** -0.5)
        for parts in zip(*losses, strict=True)
    )


def _without_noise(losses: Sequence[PrivacyLoss]) -> tuple[PrivacyLoss, ...]:
    return tuple(tuple(replace(part, noise_multiplier=1.0) for part in loss) for loss in losses)


def _worst_silos(plan: PrivacyPlan) -> PrivacyPlan:
    """The plan with silos that are all as bad as the worst in every respect: a unit has one loss."""
    schedules = plan.silos
    worst = replace(
        max(schedules, key=lambda silo: silo.sampling_probability),
        max_items_per_subject=max(silo.max_items_per_subject for silo in schedules),
        steps_per_round=max(silo.steps_per_round for silo in schedules),
        noise_multiplier=min(silo.noise_multiplier for silo in schedules),
    )
    return replace(plan, silos=(worst,) * len(schedules), people=())
