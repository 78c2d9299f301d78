"""CentralSubDP: a trusted server adds the noise, one mini-batch a silo and round (arXiv 2206.03617 v0, Algorithm 1).

| symbol | here | line |
| --- | --- | --- |
| S | ``batch`` | 2 |
| g̃(s_i) | inside ``step.clipped_sum`` | 7 |
| Z | ``batch.largest_group`` | 9 |
| σ_Z | ``step.noise_multiplier(batch)`` | 17 |
| G̃ | ``total`` | 14, 18 |

As published the noise N(0, σ_Z²C²) stands outside the 1/B, which makes it B times larger than the sum's sensitivity
needs. In sound mode the server sums the clipped gradients of all silos, adds one noise of constant σ and divides by a
public constant (D-24).
"""

from collections.abc import Iterable
from dataclasses import replace

from subjectdp.algorithms.base import (
    DP_SGD,
    LocalStep,
    RoundRule,
    Server,
    SiloTask,
    Vector,
    declare,
    group_noise_as_published,
    vector_sum,
)
from subjectdp.plan.plan import PrivacyUnit, PublishedSampling, TrustModel


def local_step(step: LocalStep) -> Vector:
    """Lines 2-10 and 17: the silo's clipped sum with the server's noise, averaged."""
    batch = step.sample_batch()
    average = step.clipped_sum(batch) / step.divisor(batch)
    return step.add_noise(average, step.noise_multiplier(batch))


def aggregate(server: Server, gradients: Iterable[Vector]) -> None:
    """Lines 12-22."""
    total = vector_sum(gradients)  # lines 14-19
    server.descend(total / server.silo_count)  # line 20


def clipped_step(step: LocalStep) -> Vector:
    """Lines 2-10 without noise, for a server that adds it once."""
    return step.clipped_sum(step.sample_batch())


def aggregate_with_noise(server: Server, sums: Iterable[Vector]) -> None:
    """In sound mode the server adds one noise to the sum over all silos."""
    server.descend(server.add_noise(vector_sum(sums)) / server.divisor)


ALGORITHM = declare(
    "central_sub_dp",
    "CentralSubDP",
    group_noise_as_published(
        replace(
            DP_SGD,
            variant="v0",
            claimed_unit=PrivacyUnit.SUBJECT,
            trust=TrustModel.CENTRAL,
            published_sampling=PublishedSampling.FEDERATION,
            one_step_per_round=True,
            published_steps_times_silos=True,
            reference="arXiv 2206.03617 v0, Algorithm 1",
        )
    ),
    rounds=(
        RoundRule(local_step, aggregate, SiloTask.ONE_STEP),
        RoundRule(clipped_step, aggregate_with_noise, SiloTask.ONE_STEP, server_noise=True),
    ),
)
