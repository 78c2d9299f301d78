"""Questions before a training: which cap for which noise, and the ε of a person with so much at so many silos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from subjectdp.accounting.sound import unit_epsilon
from subjectdp.api.accounting import calibrate
from subjectdp.api.counts import Counts, Source, as_counts
from subjectdp.api.schedule import Schedule
from subjectdp.errors import DataError, expected, whole_number
from subjectdp.plan.plan import Mechanism, PrivacyPlan, PrivacyUnit

_MOST_PEOPLE = 64  # kinds of people whose ε is computed to find the worst


@dataclass(frozen=True)
class Cap:
    """What a cap on a person's items at a silo costs, and the noise that it needs.

    Attributes:
        cap: most items of a person at a silo.
        items_kept: of all silos.
        items_lost: share of all items, 0 to 1.
        people_touched: share of the people who lose an item, 0 to 1.
        noise_multiplier: noise std over clip norm that keeps a person's ε; the largest where silos differ.
        noise_per_item: ``noise_multiplier`` over the items of the mean silo: what a cap should make small.
    """

    cap: int
    items_kept: int
    items_lost: float
    people_touched: float
    noise_multiplier: float
    noise_per_item: float


def caps(
    algorithm: str | Mechanism,
    counts: Source,
    schedule: Schedule,
    epsilon: float,
    delta: float = 1e-5,
    tried: Sequence[int] | None = None,
) -> tuple[Cap, ...]:
    """A row for each cap, by size; the choice among them is public only where the counts are.

    Args:
        algorithm, counts, schedule, epsilon, delta: as :func:`subjectdp.calibrate` takes them, without a cap.
        tried: caps; None for 1, 2, 4, ... up to the largest number of a person's items at a silo.

    Raises:
        As :func:`subjectdp.calibrate`.
    """
    table = as_counts(counts)
    if not isinstance(table, Counts):
        raise DataError("Expected counts of each subject at each silo: sizes of silos do not say whom a cap touches.")
    largest, whole = int(table.rows[:, 2].max()), int(table.rows[:, 2].sum())
    chosen = [2**power for power in range(largest.bit_length())] if tried is None else list(tried)
    capped = [replace(schedule, max_items_per_subject=cap) for cap in chosen]
    return tuple(_row(algorithm, table, each, (epsilon, delta), whole) for each in capped)


def _row(
    algorithm: str | Mechanism, counts: Counts, schedule: Schedule, target: tuple[float, float], whole: int
) -> Cap:
    cap = schedule.max_items_per_subject or 1
    report = calibrate(algorithm, counts, schedule, *target, unit="subject")
    kept = int(counts.capped(cap).rows[:, 2].sum())
    touched = np.count_nonzero(np.bincount(counts.rows[counts.rows[:, 2] > cap, 0])) / len(counts.subjects)
    noise = max(report.noise_multipliers.values())
    return Cap(cap, kept, 1 - kept / whole, touched, noise, noise * len(counts.silos) / kept)


def epsilon_of_a_person(plan: PrivacyPlan, items: int, silos: int) -> float:
    """ε of a person with at most ``items`` at each of any ``silos`` silos, whatever others have.

    Raises:
        ConfigError: more items than the cap, or more silos than may hold a person.
        PrivacyError: the mechanism bounds nothing for a person.
    """
    cap = max(silo.max_items_per_subject for silo in plan.silos)
    if whole_number("items", items) > cap and plan.cap_enforced:
        raise expected("items", items, f"from 1 to {cap}, the cap")
    if whole_number("silos", silos) > len(plan.silos):
        raise expected("silos", silos, f"from 1 to {len(plan.silos)}")
    most = [min(items, silo.max_items_per_subject) if plan.cap_enforced else items for silo in plan.silos]
    capped = tuple(replace(silo, max_items_per_subject=own) for silo, own in zip(plan.silos, most, strict=True))
    changed = replace(plan, silos=capped, silos_per_subject=silos, people=(), cap_enforced=True, silos_bounded=True)
    return unit_epsilon(changed, PrivacyUnit.SUBJECT, True)


def person_table(plan: PrivacyPlan) -> Iterator[tuple[int, list[float]]]:
    """Items a silo, and ε for 1, 2, 4, ... silos, up to what the plan allows a person."""
    for items in _doubled(max(silo.max_items_per_subject for silo in plan.silos)):
        yield items, [epsilon_of_a_person(plan, items, silos) for silos in person_silos(plan)]


def person_silos(plan: PrivacyPlan) -> list[int]:
    """The numbers of silos of :func:`person_table`."""
    return _doubled(plan.silos_per_subject)


def _doubled(most: int) -> list[int]:
    return [2**power for power in range(most.bit_length()) if 2**power < most] + [most]


def worst_person(plan: PrivacyPlan, counts: Counts) -> tuple[str, dict[str, int], float] | None:
    """The name, items at each silo and ε of the person whose ε is largest; None where the plan knows no people."""
    weight = [silo.sampling_probability**2 for silo in plan.silos]
    kinds = sorted(plan.people, key=lambda own: -sum(items * items * weight[silo] for silo, items in own))
    if not kinds:
        return None
    found = [unit_epsilon(replace(plan, people=(own,)), PrivacyUnit.SUBJECT, True) for own in kinds[:_MOST_PEOPLE]]
    own = kinds[int(np.argmax(found))]
    held: dict[int, list[tuple[int, int]]] = {}
    for subject, silo, items in counts.rows.tolist():
        held.setdefault(subject, []).append((silo, items))
    name = next(counts.subjects[subject] for subject, have in held.items() if sorted(have) == sorted(own))
    return name, {counts.silos[silo]: items for silo, items in own}, max(found)
