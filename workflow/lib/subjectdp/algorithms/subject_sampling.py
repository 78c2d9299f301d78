"""SubjectSampling: DP-SGD at each silo with subjects for items (Levy et al. 2021, arXiv 2102.11845; arXiv 1710.06963).

| symbol | here |
| --- | --- |
| S | ``step.sample_batch()``: each subject with probability q_s, by a coin for each step; all or G of its items |
| g_a | the mean gradient of the subject's items in S, (P,) |
| C | inside ``step.subject_sum`` |
| σ | ``step.noise_multiplier`` |
| q_s n_i | ``step.divisor``: the public expected number of subjects in S |

A subject is in a mini-batch with all of its items or with none, so that it is drawn with the probability of one coin,
where HiGradAvgDP draws it as soon as any of its items is drawn. A subject at several silos composes over them.
"""

from dataclasses import replace

from subjectdp.algorithms.base import DP_SGD, LocalStep, RoundRule, Vector, declare
from subjectdp.plan.plan import Clipping, DivisorRule, PrivacyUnit, PublishedSampling


def local_step(step: LocalStep) -> Vector:
    """g̃ = (Σ_{a∈S} Clip(g_a, C) + N(0, σ²C² I)) / (q_s n_i)."""
    batch = step.sample_batch()
    total = step.subject_sum(batch)
    return step.add_noise(total, step.noise_multiplier(batch)) / step.divisor(batch)


ALGORITHM = declare(
    "subject_sampling",
    "SubjectSampling",
    replace(
        DP_SGD,
        claimed_unit=PrivacyUnit.SUBJECT,
        clipping=Clipping.PER_SUBJECT,
        divisor_rule=DivisorRule.EXPECTED_SUBJECTS,
        published_sampling=PublishedSampling.NONE,
        horizontal_composition=True,
        samples_subjects=True,
        beyond_papers=True,
        reference="Levy et al. 2021 (arXiv 2102.11845), user-level DP-SGD",
    ),
    rounds=(RoundRule(local_step),),
    reads=("privacy.horizontal", "subject.sampling_probability", "subject.items"),
)
