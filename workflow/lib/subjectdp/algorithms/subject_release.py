"""SubjectRelease: what a subject adds is clipped once a round, over all of its silos, and noised once a round.

| symbol | here |
| --- | --- |
| S | ``step.sample_batch()``: the round's subjects, by one coin each for all silos, with all or G of their items |
| w_{a,i} | the subject's part of the budget at silo i: Σ_i w² ≤ 1 (local trust), Σ_i w ≤ 1 (the sum alone is seen) |
| C_a = w_{a,i} C | inside ``step.subject_sum`` |
| g_{a,i} | the mean gradient of the subject's items at silo i |
| σ | ``step.noise_multiplier``, of each silo; or ``server.add_noise``, once, by a trusted server |
| m̄ | ``server.divisor``: the public expected number of subjects, times Σ_i w of one that is spread evenly |

Every silo's noisy sum may be seen and a subject may be at every silo: its parts together move what is seen by at most
C, in units in which the noise is σC, so that R rounds are R releases of one Gaussian mechanism, as if one trusted silo
held everybody. Descending at the server (momentum, Adam) and averaging the iterates are post-processing.

Clipping a user's whole contribution once: DP-FedAvg (McMahan et al. 2018, arXiv 1710.06963); users in place of items:
Levy et al. 2021 (arXiv 2102.11845); weights over the silos that hold a user, Σ_i w ≤ 1 under secure aggregation:
ULDP-FL (Kato et al. 2024, arXiv 2308.12210).
"""

from collections.abc import Iterable
from dataclasses import replace

from subjectdp.algorithms.base import DP_SGD, LocalStep, RoundRule, Server, SiloTask, Vector, declare, vector_sum
from subjectdp.plan.plan import Clipping, DivisorRule, PrivacyUnit, PublishedSampling


def gradients(step: LocalStep) -> Vector:
    """Σ_{a∈S} Clip(g_{a,i}, w_{a,i} C)."""
    return step.subject_sum(step.sample_batch())


def noisy_gradients(step: LocalStep) -> Vector:
    """The same and N(0, σ²C² I), at the silo."""
    batch = step.sample_batch()
    return step.add_noise(step.subject_sum(batch), step.noise_multiplier(batch))


def descend(server: Server, releases: Iterable[Vector]) -> None:
    """θ ← θ − η · (1/m̄) Σ_i of the released sums of gradients."""
    server.descend(vector_sum(releases) / server.divisor)


def descend_with_noise(server: Server, sums: Iterable[Vector]) -> None:
    """The same, with one noise that a trusted server adds."""
    server.descend(server.add_noise(vector_sum(sums)) / server.divisor)


RELEASE = replace(
    DP_SGD,
    claimed_unit=PrivacyUnit.SUBJECT,
    clipping=Clipping.PER_SUBJECT,
    divisor_rule=DivisorRule.EXPECTED_SUBJECTS,
    published_sampling=PublishedSampling.NONE,
    one_step_per_round=True,
    samples_subjects=True,
    shared_budget=True,
    beyond_papers=True,
    reference="DP-FedAvg (arXiv 1710.06963), ULDP-FL (arXiv 2308.12210)",
)

ALGORITHM = declare(
    "subject_release",
    "SubjectRelease",
    RELEASE,
    rounds=(
        RoundRule(noisy_gradients, descend, SiloTask.ONE_STEP),
        RoundRule(gradients, descend_with_noise, SiloTask.ONE_STEP, server_noise=True),
    ),
    reads=("privacy.horizontal", "subject", "joint.colluding_silos", "joint.own_noise_only"),
)
