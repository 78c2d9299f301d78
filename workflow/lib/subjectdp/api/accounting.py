"""``account`` and ``calibrate``: ε of a federation from its counts, and the noise for an ε."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from subjectdp.accounting.make_plan import draft_plan, with_noise_multipliers, with_plan_noise, with_sampling
from subjectdp.algorithms import registry
from subjectdp.api.counts import Counts, SiloSizes, Source, as_counts
from subjectdp.api.report import PrivacyReport
from subjectdp.api.schedule import Schedule
from subjectdp.errors import PrivacyError, SubjectDPError, expected, number, unknown
from subjectdp.plan.plan import (
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

_SECTION = re.compile(r"\b(partition|training|privacy|joint|subject)\.(?=[a-z])")


def account(
    algorithm: str | Mechanism,
    counts: Source,
    schedule: Schedule,
    noise_multiplier: float | Mapping[str, float],
    delta: float = 1e-5,
) -> PrivacyReport:
    """The ε of an item, of a subject at one silo, of a subject over its silos, and of a silo.

    Args:
        algorithm: a name, such as ``"local_item_dp"`` (DP-SGD at each silo), or a :func:`mechanism`.
        counts: items of each subject at each silo: a CSV file, a table, or :class:`Counts`; or :class:`SiloSizes`.
        schedule: rounds, local steps and sampling.
        noise_multiplier: noise std over clip norm. One number is that of what is seen: each silo's own, or of the sum
            over silos where their noise adds up (``"secure_aggregation"``; each of S silos then adds 1/√S of it). A
            mapping has each silo's own, by name.
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
        facts = schedule.facts(table)
        settings = replace(_settings(chosen, facts, schedule), delta=number("delta", delta, below=1))
        if isinstance(noise_multiplier, Mapping):
            each = _noise(table.silos, noise_multiplier)
            draft = _draft(chosen, facts, schedule, replace(settings, noise_multiplier=min(each)))
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
            if unit not in list(PrivacyUnit):
                raise unknown("unit", unit, list(PrivacyUnit))
            chosen = replace(chosen, claimed_unit=PrivacyUnit(unit))
        facts, target = schedule.facts(table), number("epsilon", epsilon)
        settings = replace(_settings(chosen, facts, schedule), epsilon=target, delta=number("delta", delta, below=1))
        draft = _draft(chosen, facts, schedule, settings)
        return _reported(with_plan_noise(draft, facts), table)


def mechanism(algorithm: str, trust: str | None = None) -> Mechanism:
    """The privacy facts of an algorithm, such as ``"capped_item_dp"`` or ``"higrad_avg_dp:v3"``, in sound mode.

    Args:
        algorithm: its name, and its variant after a colon.
        trust: ``"local"``, ``"secure_aggregation"`` or ``"central"``; None for the algorithm's own.

    Raises:
        ConfigError: an unknown name.
    """
    name, _, variant = algorithm.partition(":")
    found = registry.mechanism(name, variant or None, AccountingMode.SOUND)
    if trust is None:
        return found
    if trust not in list(TrustModel):
        raise unknown("trust", trust, list(TrustModel))
    return replace(found, trust=TrustModel(trust))


def _reported(plan: PrivacyPlan, counts: Counts | SiloSizes) -> PrivacyReport:
    """The report; warns of a δ that is not below one over the number of people."""
    if plan.delta_warning is not None:
        warnings.warn(plan.delta_warning, stacklevel=3)
    return PrivacyReport(plan, counts.silos)


def _mechanism(algorithm: str | Mechanism) -> Mechanism:
    found = mechanism(algorithm) if isinstance(algorithm, str) else algorithm
    if not isinstance(found, Mechanism):
        raise expected("algorithm", found, "a name or a mechanism")
    if found.noise_rule is NoiseRule.NONE:
        raise PrivacyError(f"{found.algorithm} adds no noise: no epsilon can be given.")
    if found.mode is not AccountingMode.SOUND:
        raise expected("mode of the mechanism", found.mode, AccountingMode.SOUND, PrivacyError)
    return found


def _noise(silos: tuple[str, ...], given: Mapping[str, float]) -> list[float]:
    """σ of each silo, in order."""
    if set(given) != set(silos):
        raise expected("silos of noise_multiplier", sorted(given), f"those of the counts, {sorted(silos)}")
    return [number(f"noise_multiplier of silo {silo!r}", given[silo]) for silo in silos]


def _settings(chosen: Mechanism, facts: FederationFacts, schedule: Schedule) -> PlanSettings:
    schedule.check(chosen, facts)
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
        text = _SECTION.sub("", str(problem)).replace("local_steps", "steps")
        raise type(problem)(text) from problem
