"""A run's configuration as the privacy plan takes it: mechanism and settings."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from subjectdp.algorithms.registry import algorithm
from subjectdp.config.sections import RunSections, Section
from subjectdp.plan.plan import (
    Accountant,
    Mechanism,
    NoiseDistribution,
    PlanSettings,
    SamplingMethod,
)
from subjectdp.plan.subject_settings import SubjectSettings


def mechanism_of(run: RunSections) -> Mechanism:
    """What the run's algorithm does in its mode, with the run's clipping and trust model."""
    found = algorithm(run.algorithm.name, run.algorithm.variant)
    chosen = found.mechanism(run.algorithm.variant, run.privacy.mode)
    if run.joint.clipping == "update" and found.of_updates is not None:
        chosen = found.of_updates
    return replace(chosen, trust=run.subject.trust) if found.reads_key("subject.trust") else chosen


def plan_settings(run: RunSections, cache_dir: Path | None = None) -> PlanSettings:
    """The privacy and schedule settings of a run whose unread keys are at their defaults (``resolve``).

    Settings with the name and the meaning of a key are taken from it; the others are translated here.
    """
    joint, training = run.joint, run.training
    by_subject = (
        algorithm(run.algorithm.name).samples_subjects and training.sampling == SamplingMethod.POISSON
    )
    integers = joint.noise == NoiseDistribution.SKELLAM and run.privacy.accountant == Accountant.RDP
    steps = 1 if training.local_steps is None else training.local_steps
    return PlanSettings(
        **(
            _same_names(PlanSettings, joint, training, run.privacy)
            | {
                "sampling": SamplingMethod.POISSON_SUBJECTS if by_subject else training.sampling,
                "accountant": Accountant.RDP_INTEGER if integers else run.privacy.accountant,
                "cache_dir": None if cache_dir is None else str(cache_dir),
                "linear_updates": training.optimizer.name != "adam",
                "noise_distribution": joint.noise,
                "gradient_bits": joint.bits,
                "subject": SubjectSettings(**_same_names(SubjectSettings, run.subject), local_steps=steps),
            }
        )
    )


def _same_names(settings: type[Any], *sections: Section) -> dict[str, Any]:
    """The keys of the sections that are settings of the same name."""
    names = {field.name for field in fields(settings)}
    return {key: getattr(each, key) for each in sections for key in type(each).model_fields if key in names}
