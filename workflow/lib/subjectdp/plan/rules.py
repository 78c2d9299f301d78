"""The rules of a privacy plan that need no data, checked when a run is configured and when a plan is made.

Messages name the configuration's keys. Last, how many rounds and steps the settings give.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from subjectdp.errors import ConfigError, PrivacyError, SubjectDPError, expected
from subjectdp.plan.plan import (
    Accountant,
    AccountingMode,
    Clipping,
    Horizontal,
    Mechanism,
    NoiseDistribution,
    PlanSettings,
    SamplingMethod,
    TrustModel,
    lines,
)

if TYPE_CHECKING:
    from subjectdp.config.sections import TrainingConfig

LEAST_NOISE, MOST_NOISE = 1e-5, 1e9
"""Noise multipliers that are accounted for, and that a calibration gives: beyond, no grid holds the losses."""

_SETTINGS = TypeAdapter(PlanSettings)


def check(mechanism: Mechanism, settings: PlanSettings, silos: int, cap_enforced: bool) -> None:
    """Raises ConfigError for settings out of range or that do not fit, PrivacyError for what has no accounting."""
    check_ranges(settings)
    for problem in problems(mechanism, settings, silos, cap_enforced):
        raise problem


def check_ranges(settings: PlanSettings) -> None:
    """Refuses values out of range. Raises ConfigError with a line for each."""
    try:
        _SETTINGS.validate_python(settings)
    except ValidationError as problem:
        raise ConfigError("\n".join(lines(problem))) from None


def problems(mechanism: Mechanism, settings: PlanSettings, silos: int, cap_enforced: bool) -> Iterator[SubjectDPError]:
    """Every rule that the settings break; arguments as for :func:`check`."""
    yield from _silos(mechanism, settings, silos)
    yield from _noise(mechanism, settings)
    yield from _sampling(mechanism, settings)
    yield from _fused_steps(mechanism, settings, silos)
    if settings.mode is AccountingMode.SOUND:
        yield from _soundness(mechanism, settings, cap_enforced)
        yield from _joint_noise(mechanism, settings)


def _silos(mechanism: Mechanism, settings: PlanSettings, silos: int) -> Iterator[SubjectDPError]:
    taking_part = silos_in_round(silos, settings)
    if taking_part > silos:
        yield expected("training.silos_per_round", taking_part, f"at most partition.silos ({silos})")
    if settings.colluding_silos >= taking_part:
        allowed = f"fewer than the {taking_part} silos of a round"
        yield expected("joint.colluding_silos", settings.colluding_silos, allowed)
    if mechanism.trust is TrustModel.SECURE_AGGREGATION:
        return
    if settings.colluding_silos:
        allowed = f"0 under {mechanism.trust} trust (no silo's noise hides behind another's)"
        yield expected("joint.colluding_silos", settings.colluding_silos, allowed)
    if settings.own_noise_only:
        yield expected("joint.own_noise_only", True, f"false under {mechanism.trust} trust")


def _noise(mechanism: Mechanism, settings: PlanSettings) -> Iterator[SubjectDPError]:
    given, updates = settings.noise_multiplier, mechanism.clipping is Clipping.PER_UPDATE
    if given not in (None, 0) and not LEAST_NOISE <= given <= MOST_NOISE:
        yield expected("privacy.noise_multiplier", given, f"at least {LEAST_NOISE} and at most {MOST_NOISE:g} (or 0)")
    if settings.mode is not AccountingMode.SOUND and (mechanism.beyond_papers or updates):
        chosen = f"algorithm.name is {mechanism.algorithm}" if mechanism.beyond_papers else "joint.clipping is update"
        allowed = f"sound when {chosen} (no paper of this project states an ε for it)"
        yield expected("privacy.mode", settings.mode, allowed, PrivacyError)
    if updates and settings.noise_distribution is not NoiseDistribution.GAUSSIAN:
        yield expected("joint.noise", settings.noise_distribution, "gaussian when joint.clipping is update")
    key, subjects = "privacy.predicted_subjects", settings.predicted_subjects
    if subjects is not None and settings.mode is not AccountingMode.SOUND:
        yield expected(key, subjects, "null unless privacy.mode is sound", PrivacyError)
    if settings.own_noise_only and settings.mode is not AccountingMode.SOUND:
        yield expected("joint.own_noise_only", True, "false unless privacy.mode is sound", PrivacyError)
    if subjects is not None and given is not None:
        yield expected(key, subjects, "null where privacy.noise_multiplier is given")
    skellam = settings.noise_distribution is NoiseDistribution.SKELLAM
    if skellam and settings.accountant not in (Accountant.RDP_INTEGER, Accountant.MIRONOV):
        allowed = "rdp when joint.noise is skellam (Rényi bounds; rdp_integer in a plan), or mironov as published"
        yield expected("privacy.accountant", settings.accountant, allowed, PrivacyError)


def _sampling(mechanism: Mechanism, settings: PlanSettings) -> Iterator[SubjectDPError]:
    by_subject = settings.sampling is SamplingMethod.POISSON_SUBJECTS
    if by_subject != mechanism.samples_subjects:
        wanted = "poisson, a coin for each subject," if mechanism.samples_subjects else "poisson or fixed_batch_size"
        allowed = f"{wanted} when algorithm.name is {mechanism.algorithm}"
        yield expected("training.sampling", settings.sampling, allowed, PrivacyError)
    if settings.sampling_fraction is not None and settings.sampling is not SamplingMethod.POISSON:
        drawn = f"training.sampling is {settings.sampling}"
        if mechanism.samples_subjects:
            drawn = f"algorithm.name is {mechanism.algorithm}, which draws subjects (subject.sampling_probability)"
        yield expected("training.sampling_fraction", settings.sampling_fraction, f"null when {drawn}")


def _fused_steps(mechanism: Mechanism, settings: PlanSettings, silos: int) -> Iterator[SubjectDPError]:
    """Steps without noise in between are bounded as published only (docs/findings.md)."""
    key, fused = "joint.fused_steps", list(settings.fused_steps)
    if not fused:
        return
    if len(fused) != silos:
        yield expected(key, fused, f"one number for each of the {silos} silos")
    if mechanism.trust is not TrustModel.SECURE_AGGREGATION:
        yield expected(key, fused, f"[] with algorithm {mechanism.algorithm}")
    if settings.mode is AccountingMode.SOUND:
        reason = "C does not bound k steps without noise in between; joint.clipping: update clips them together"
        yield expected(key, fused, f"[] when privacy.mode is sound ({reason})", PrivacyError)
    if settings.noise_distribution is NoiseDistribution.SKELLAM:
        yield expected(key, fused, "[] when joint.noise is skellam")
    if settings.sampling is not SamplingMethod.POISSON:
        yield expected(key, fused, f"[] when training.sampling is {settings.sampling}")


def _soundness(mechanism: Mechanism, settings: PlanSettings, cap_enforced: bool) -> Iterator[SubjectDPError]:
    if mechanism.data_dependence:
        reasons = "; ".join(mechanism.data_dependence)
        yield PrivacyError(f"{mechanism.title} cannot run in sound mode: {reasons}.")
    if Accountant(settings.accountant).only_claims:
        allowed = "one that bounds ε from above for any mechanism when privacy.mode is sound (pld or rdp)"
        yield expected("privacy.accountant", settings.accountant, allowed, PrivacyError)
    if settings.horizontal in (Horizontal.STEPS_TIMES_S, Horizontal.NONE):
        yield expected("privacy.horizontal", settings.horizontal, "sound or left out when privacy.mode is sound")
    if mechanism.counts_items and not cap_enforced:
        allowed = (
            f"an enforced cap when privacy.mode is sound and algorithm.name is {mechanism.algorithm} "
            "(a maximum that is read from the data is itself private)"
        )
        yield expected("partition.max_items_per_subject", None, allowed, PrivacyError)


def _joint_noise(mechanism: Mechanism, settings: PlanSettings) -> Iterator[SubjectDPError]:
    """What the silos' noise must fulfil to protect every silo's items together."""
    if mechanism.trust is not TrustModel.SECURE_AGGREGATION or mechanism.noised_after_steps or settings.own_noise_only:
        return
    where = f"when algorithm.name is {mechanism.algorithm} and privacy.mode is sound"
    instead = "or set joint.clipping: update, or joint.own_noise_only"
    if settings.local_steps != 1 and not mechanism.one_step_per_round:
        reason = "one local step in each aggregation: over several, other silos' noise can cancel"
        allowed = f"1 {where} ({reason}; {instead})"
        yield expected("training.local_steps", settings.local_steps, allowed, PrivacyError)
    if not settings.linear_updates:
        allowed = f"sgd or momentum {where} (Adam's steps do not add up to a sum of noisy gradients; {instead})"
        yield expected("training.optimizer.name", "adam", allowed, PrivacyError)


def silos_in_round(silos: int, settings: PlanSettings) -> int:
    """s, the silos that take part in one round, of ``silos``."""
    return silos if settings.silos_per_round is None else settings.silos_per_round


def executed_rounds(mechanism: Mechanism, settings: PlanSettings, silos: int) -> int:
    """Rounds that are run: floor(R/√s), at least 1, under the papers' Theorem 3.10/3.13 (as published only); else R."""
    composed = settings.mode is AccountingMode.AS_PUBLISHED and mechanism.horizontal_composition
    if not composed or settings.horizontal is not Horizontal.ROUNDS_OVER_SQRT_S:
        return settings.rounds
    return max(1, math.isqrt(settings.rounds * settings.rounds // silos_in_round(silos, settings)))


def expected_batch(settings: PlanSettings | TrainingConfig, items: float) -> float:
    """Expected items of a mini-batch of a silo with ``items``: B, or q times its items."""
    q = settings.sampling_fraction
    return float(settings.batch_size) if q is None else q * items


def round_steps(settings: PlanSettings | TrainingConfig, items: int) -> int:
    """Local steps of a round at a silo with ``items``; epochs of ceil(items / B) or ceil(1 / q), if none are given."""
    if settings.local_steps is not None:
        return settings.local_steps
    q = settings.sampling_fraction
    return settings.local_epochs * (math.ceil(items / settings.batch_size) if q is None else math.ceil(1 / q))
