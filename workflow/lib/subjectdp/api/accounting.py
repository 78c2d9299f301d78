"""ε of a federation from its counts, the noise for an ε, what caps cost, and the ε of a person with so much."""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from subjectdp.accounting.make_plan import draft_plan, with_noise_multipliers, with_plan_noise, with_sampling
from subjectdp.accounting.sound import largest, unit_losses
from subjectdp.accounting.statements import sound_statement
from subjectdp.algorithms import registry
from subjectdp.api.counts import Counts, SiloSizes, Source, as_counts
from subjectdp.api.report import PrivacyReport
from subjectdp.api.schedule import Schedule
from subjectdp.data.names import person
from subjectdp.errors import DataError, PrivacyError, SubjectDPError, expected, number, unknown, whole_number
from subjectdp.plan.plan import (
    Accountant,
    AccountingMode,
    FederationFacts,
    Horizontal,
    Mechanism,
    NoiseRule,
    NoiseSource,
    PlanSettings,
    PrivacyPlan,
    PrivacyUnit,
    SiloChoice,
    SubjectSettings,
    TrustModel,
)

Kind = TypeVar("Kind", PrivacyUnit, TrustModel)
_SECTION = re.compile(r"\b(partition|training|privacy|joint|subject)\.(?=[a-z])")


def account(
    algorithm: str | Mechanism,
    counts: Source,
    schedule: Schedule,
    noise_multiplier: float | Mapping[Any, float],
    delta: float = 1e-5,
) -> PrivacyReport:
    """The ε of an item, of a subject at one silo, of a subject over its silos, and of a silo.

    Args:
        algorithm: a name, such as ``"local_item_dp"`` (DP-SGD at each silo), or a :func:`mechanism`.
        counts: items of each subject at each silo: a CSV file, a table, or :class:`Counts`; or :class:`SiloSizes`.
        schedule: rounds, local steps and sampling.
        noise_multiplier: noise std over clip norm. One number is that of what is seen: each silo's own, or of the sum
            over silos where their noise adds up (``"secure_aggregation"``; each of S silos then adds 1/√S of it). A
            mapping has each silo's own, by name, as in the counts.
        delta: δ, in (0, 0.1); a warning is given where it is not below one over the number of people.

    Returns:
        The report. ε is an upper bound under the assumptions that each guarantee lists; the counts are taken as
        public.

    Raises:
        ConfigError: values out of range, or that do not fit each other.
        DataError: counts that cannot be read.
        PrivacyError: a mechanism that cannot be accounted for.
    """
    with words_of_the_api():
        chosen, table = _mechanism(algorithm), as_counts(counts)
        facts = _known(schedule).facts(table)
        settings = replace(_settings(chosen, facts, schedule), delta=number("delta", delta, below=1))
        if isinstance(noise_multiplier, Mapping):
            each = _noise(table.silos, noise_multiplier)
            for noise in (max(each), min(each)):  # both ends are checked
                draft = _draft(chosen, facts, schedule, replace(settings, noise_multiplier=noise))
            return _reported(with_noise_multipliers(draft, each), table)
        noise = number("noise_multiplier", noise_multiplier)
        draft = _draft(chosen, facts, schedule, replace(settings, noise_multiplier=noise))
        return _reported(with_plan_noise(draft, facts), table)


def calibrate(
    algorithm: str | Mechanism,
    counts: Source,
    schedule: Schedule,
    epsilon: float,
    delta: float = 1e-5,
    unit: str | None = None,
) -> PrivacyReport:
    """The smallest noise that keeps ε at δ: the report's ``noise_multiplier``, as :func:`account` takes it.

    Args:
        algorithm, counts, schedule, delta: as in :func:`account`.
        epsilon: the target, above 0; reached from below, to 0.1 % (0.2 % where more than 64 silos have a noise of
            their own).
        unit: whose ε: ``"item"``, ``"subject"`` (over all its silos) or ``"silo"``; None for what the algorithm is for.

    Raises:
        As :func:`account`, and PrivacyError where no noise gives the unit that ε.
    """
    with words_of_the_api():
        chosen, table = _mechanism(algorithm), as_counts(counts)
        if unit is not None:
            chosen = replace(chosen, claimed_unit=_member("unit", unit, PrivacyUnit))
        facts, target = _known(schedule).facts(table), number("epsilon", epsilon)
        settings = replace(_settings(chosen, facts, schedule), epsilon=target, delta=number("delta", delta, below=1))
        return _reported(with_plan_noise(_draft(chosen, facts, schedule, settings), facts), table)


def mechanism(algorithm: str, trust: str | None = None) -> Mechanism:
    """The privacy facts of an algorithm, such as ``"capped_item_dp"`` or ``"higrad_avg_dp:v3"``, in sound mode.

    Args:
        algorithm: its name, and its variant after a colon.
        trust: ``"local"``, ``"secure_aggregation"`` or ``"central"``; None for the algorithm's own.

    Raises:
        ConfigError: an unknown name.
    """
    if not isinstance(algorithm, str):
        raise expected("algorithm", algorithm, "a name or a mechanism")
    name, _, variant = algorithm.partition(":")
    found = registry.mechanism(name, variant or None, AccountingMode.SOUND)
    return found if trust is None else replace(found, trust=_member("trust", trust, TrustModel))


def _member(key: str, word: str, kind: type[Kind]) -> Kind:
    if word not in list(kind):
        raise unknown(key, word, list(kind))
    return kind(word)


def _reported(plan: PrivacyPlan, counts: Counts | SiloSizes) -> PrivacyReport:
    """The report; warns of a δ that is not below one over the number of people."""
    if plan.delta_warning is not None:
        warnings.warn(plan.delta_warning, stacklevel=3)
    return PrivacyReport(plan, counts.silos)


def _mechanism(algorithm: str | Mechanism) -> Mechanism:
    found = algorithm if isinstance(algorithm, Mechanism) else mechanism(algorithm)
    if found.noise_rule is NoiseRule.NONE:
        raise PrivacyError(f"{found.algorithm} adds no noise: no epsilon can be given.")
    if found.mode is not AccountingMode.SOUND:
        raise expected("mode of the mechanism", found.mode, AccountingMode.SOUND, PrivacyError)
    return found


def _known(schedule: Schedule) -> Schedule:
    if not isinstance(schedule, Schedule):
        raise expected("schedule", type(schedule).__name__, "a Schedule")
    return schedule


def _noise(silos: tuple[str, ...], given: Mapping[Any, float]) -> list[float]:
    names = [person(silo, "a silo's name", "noise_multiplier") for silo in given]
    if sorted(names) != sorted(silos):
        raise expected("silos of noise_multiplier", sorted(names), f"those of the counts, {sorted(silos)}")
    noise = dict(zip(names, given.values(), strict=True))
    return [number(f"noise_multiplier of silo {silo!r}", noise[silo]) for silo in silos]


def _settings(chosen: Mechanism, facts: FederationFacts, schedule: Schedule) -> PlanSettings:
    schedule.check(chosen, facts)
    return scheduled_settings(chosen, facts, schedule)


def scheduled_settings(chosen: Mechanism, facts: FederationFacts, schedule: Schedule) -> PlanSettings:
    """The settings of a schedule, unchecked; without noise, at ε 1 and δ 1e-5."""
    q = schedule.sampling_probability
    return PlanSettings(
        mode=chosen.mode,
        horizontal=Horizontal.SOUND,
        sampling=schedule.method(chosen),
        epsilon=1.0,
        delta=1e-5,
        clip_norm=1.0,
        rounds=schedule.rounds,
        local_steps=1 if chosen.one_step_per_round else schedule.local_steps(),
        batch_size=schedule.nominal_batch(facts),
        local_epochs=schedule.epochs,
        silos_per_round=schedule.silos_per_round,
        silo_choice=SiloChoice(schedule.silo_choice),
        noise_source=NoiseSource.UNSTATED,
        subject=SubjectSettings(q if q is not None and chosen.samples_subjects else 1.0),
    )


def _draft(chosen: Mechanism, facts: FederationFacts, schedule: Schedule, settings: PlanSettings) -> PrivacyPlan:
    draft = draft_plan(chosen, facts, settings)
    return draft if schedule.sampling_probability is None else with_sampling(draft, schedule.sampling_probability)


@contextmanager
def words_of_the_api() -> Iterator[None]:
    """Errors of the block name arguments, not the configuration's keys."""
    try:
        yield
    except SubjectDPError as problem:
        text = _SECTION.sub("", str(problem)).replace("local_steps", "steps").replace("algorithm.name", "algorithm")
        remedy = "; or set clipping: update, or own_noise_only"
        raise type(problem)(text.replace(remedy, "; count steps as rounds, of a noisy sum each")) from problem


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
    if _known(schedule).max_items_per_subject is not None:
        raise expected("max_items_per_subject", schedule.max_items_per_subject, "left out: tried says which caps")
    if (known := _mechanism(algorithm)).samples_subjects:
        raise expected("algorithm", known.algorithm, "one whose noise a cap changes; this one draws whole subjects")
    table = as_counts(counts)
    if not isinstance(table, Counts):
        raise DataError("Expected counts of each subject at each silo: sizes of silos do not say whom a cap touches.")
    largest, whole = int(table.rows[:, 2].max()), int(table.rows[:, 2].sum())
    chosen = [2**power for power in range(largest.bit_length())] if tried is None else tried
    if not isinstance(chosen, Sequence):
        raise expected("tried", chosen, "a list of caps")
    capped = [replace(schedule, max_items_per_subject=cap) for cap in chosen]
    return tuple(_row(algorithm, table, each, (epsilon, delta), whole) for each in capped)


def _row(
    algorithm: str | Mechanism, counts: Counts, schedule: Schedule, target: tuple[float, float], whole: int
) -> Cap:
    cap = schedule.max_items_per_subject or 1
    report = calibrate(algorithm, counts, schedule, *target, unit="subject")
    kept = int(counts.capped(cap).rows[:, 2].sum())
    touched = float(np.count_nonzero(np.bincount(counts.rows[counts.rows[:, 2] > cap, 0])) / len(counts.subjects))
    noise = max(report.noise_multipliers.values())
    return Cap(cap, kept, 1 - kept / whole, touched, noise, noise * len(counts.silos) / kept)


def epsilon_of_a_person(plan: PrivacyPlan, items: int, silos: int) -> float:
    """ε of a person with at most ``items`` at each of any ``silos`` silos, whatever others have.

    Raises:
        ConfigError: more items than the cap, or more silos than may hold a person.
        PrivacyError: the mechanism bounds nothing for a person.
    """
    if not isinstance(plan, PrivacyPlan):
        raise expected("plan", type(plan).__name__, "a plan, such as report.plan")
    cap = max(silo.max_items_per_subject for silo in plan.silos)
    if whole_number("items", items) > cap and plan.cap_enforced:
        raise expected("items", items, f"from 1 to {cap}, the cap")
    held = plan.silos_per_subject if plan.silos_bounded else len(plan.silos)
    if whole_number("silos", silos) > held:
        raise expected("silos", silos, f"from 1 to {held}")
    most = [min(items, silo.max_items_per_subject) if plan.cap_enforced else items for silo in plan.silos]
    capped = tuple(replace(silo, max_items_per_subject=own) for silo, own in zip(plan.silos, most, strict=True))
    changed = replace(plan, silos=capped, silos_per_subject=silos, people=(), cap_enforced=True, silos_bounded=True)
    return _proven(changed)


def _proven(plan: PrivacyPlan) -> float:
    """ε of a person over all its silos; PrivacyError where none can be stated, as in a privacy report."""
    stated = sound_statement(plan, PrivacyUnit.SUBJECT, True)
    if stated["epsilon"] is None:
        raise PrivacyError(f"No epsilon of a person can be stated: {stated['reason']}.")
    return float(stated["epsilon"])


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
    if not plan.people:
        return None
    losses = [unit_losses(replace(plan, people=(own,)), PrivacyUnit.SUBJECT, True)[0] for own in plan.people]
    own = plan.people[losses.index(largest(losses, plan.settings.delta, Accountant.PLD)[1])]
    epsilon = _proven(replace(plan, people=(own,)))
    held: dict[int, list[tuple[int, int]]] = {}
    for subject, silo, items in counts.rows.tolist():
        held.setdefault(subject, []).append((silo, items))
    name = next(counts.subjects[subject] for subject, have in held.items() if sorted(have) == sorted(own))
    return name, {counts.silos[silo]: items for silo, items in own}, epsilon
