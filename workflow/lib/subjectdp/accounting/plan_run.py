"""The privacy plan of a run: what its configuration and its partition say, handed to the accounting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from subjectdp.algorithms.registry import algorithm
from subjectdp.config.run_ids import SAMPLING_SUBJECTS
from subjectdp.errors import PrivacyError, expected
from subjectdp.noise.correlated_noise import best_band
from subjectdp.plan.plan import (
    AccountingMode,
    FederationFacts,
    Horizontal,
    Mechanism,
    NoiseDistribution,
    PlanSettings,
    PrivacyPlan,
    SamplingMethod,
    SiloTerms,
    TrustModel,
)
from subjectdp.plan.subject_settings import BudgetWeights, SubjectSettings

if TYPE_CHECKING:
    from subjectdp.config.models import RunConfig
    from subjectdp.data.partition import Partition


def plan_settings(run: RunConfig, cache_dir: Path | None) -> PlanSettings:
    """The privacy and schedule settings of a configuration."""
    privacy, training, joint = run.privacy, run.training, run.joint
    sampling = SamplingMethod(training.sampling)
    if run.algorithm.name in SAMPLING_SUBJECTS:
        sampling = SamplingMethod.POISSON_SUBJECTS
    return PlanSettings(
        mode=AccountingMode(privacy.mode),
        horizontal=Horizontal(privacy.horizontal),
        sampling=sampling,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        clip_norm=privacy.clip_norm,
        rounds=training.rounds,
        local_steps=training.local_steps,
        batch_size=training.batch_size,
        silos_per_round=training.silos_per_round,
        noise_multiplier=privacy.noise_multiplier,
        noise_before_average=privacy.noise_placement == "before_average",
        accountant="rdp_integer" if joint.noise == "skellam" else privacy.accountant,
        cache_dir=None if cache_dir is None else str(cache_dir),
        own_noise_only=joint.own_noise_only,
        colluding_silos=joint.colluding_silos,
        linear_updates=training.optimizer.name != "adam",
        noise_distribution=NoiseDistribution(joint.noise),
        gradient_bits=joint.bits,
        ring_bits=joint.ring_bits,
        wrap_probability=joint.wrap_probability,
        subject=subject_settings(run),
        predicted_subjects=privacy.predicted_subjects,
        views=training.augmentation.seen,
    )


def subject_settings(run: RunConfig) -> SubjectSettings:
    """The settings of subject sampling and of the budget."""
    subject, training = run.subject, run.training
    band = subject.noise_band
    return SubjectSettings(
        sampling_probability=subject.sampling_probability,
        items=subject.items,
        every=subject.every,
        weights=BudgetWeights(subject.weights),
        item_noise=subject.item_noise,
        local_steps=1 if training.local_steps is None else training.local_steps,
        noise_band=best_band(training.rounds, subject.every) if band is None else band,
    )


def silo_terms(run: RunConfig) -> list[SiloTerms]:
    """Each silo's clip norm, learning rate and noise over the common ones."""
    joint, silos = run.joint, run.partition.silos
    equal = (1.0,) * silos
    columns = [joint.clip_norm_factors, joint.learning_rate_factors, joint.noise_factors]
    return [SiloTerms(*terms) for terms in zip(*(column or equal for column in columns), strict=True)]


def plan_run(run: RunConfig, partition: Partition, cache_dir: Path | None = None) -> PrivacyPlan:
    """The privacy plan of a run on a partition (see ``accounting.make_plan.make_plan`` for what it refuses)."""
    from subjectdp.accounting.make_plan import make_plan

    settings = plan_settings(run, cache_dir)
    return make_plan(_mechanism(run, settings), _facts(run, partition), settings, silo_terms(run))


def draft_run(run: RunConfig, partition: Partition) -> PrivacyPlan:
    """The plan of :func:`plan_run` before its noise is calibrated: schedule and rounds, in no time."""
    from subjectdp.accounting.make_plan import draft_plan

    settings = plan_settings(run, None)
    return draft_plan(_mechanism(run, settings), _facts(run, partition), settings)


def _mechanism(run: RunConfig, settings: PlanSettings) -> Mechanism:
    found = algorithm(run.algorithm.name, run.algorithm.variant)
    if run.algorithm.name == "subject_release":
        update = found.of_updates if run.subject.contribution == "update" else None
        chosen = found.mechanism(None, settings.mode) if update is None else update
        return replace(chosen, trust=TrustModel(run.subject.trust))
    if run.joint.clipping == "update" and found.of_updates is not None:
        return found.of_updates
    return found.mechanism(run.algorithm.variant, settings.mode)


def _facts(run: RunConfig, partition: Partition) -> FederationFacts:
    """The partition's public facts, with a larger bound k on a subject's items where the user states one."""
    facts, bound = partition.federation_facts(), run.privacy.max_items_per_subject
    if bound is None:
        return facts
    largest = max(facts.largest_subject)
    if bound < largest:
        allowed = f"at least {largest}, the items of a subject at one silo (partition.max_items_per_subject caps them)"
        raise expected("privacy.max_items_per_subject", bound, allowed, PrivacyError)
    return replace(facts, max_items_per_subject=bound, largest_subject=(bound,) * len(facts.items))
