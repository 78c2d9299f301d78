"""LocalGroupDP: noise scaled to the largest group of the mini-batch (arXiv 2206.03617 v1, Algorithm 2; v0: LocalSubDP).

| symbol | here | line of v1 |
| --- | --- | --- |
| S | ``batch`` | 3 |
| ḡ(s_i) | inside ``step.clipped_sum`` | 8 |
| Z | ``batch.largest_group`` | 9 |
| σ_Z | ``step.noise_multiplier(batch)`` | 10 |
| B | ``step.divisor`` | 10 |

As published, σ_Z depends on the data of the mini-batch, and group privacy is applied to the group in the mini-batch
where the group in the data set counts: the claim is refuted (D-44). In sound mode σ is one constant for
the run, from the mixture of Gaussians of an enforced cap on a subject's items.
"""

from dataclasses import replace

from subjectdp.algorithms.base import DP_SGD, LocalStep, RoundRule, Vector, declare, group_noise_as_published
from subjectdp.plan.plan import PrivacyUnit


def local_step(step: LocalStep) -> Vector:
    """g̃_S = (1/B) (Σ_i ḡ(s_i) + N(0, σ_Z²C² I))."""
    batch = step.sample_batch()  # line 3
    total = step.clipped_sum(batch)  # lines 4-8
    noise_multiplier = step.noise_multiplier(batch)  # line 9: Z = LrgGrpCnt(S)
    return step.add_noise(total, noise_multiplier).div_(step.divisor(batch))  # line 10


ALGORITHM = declare(
    "local_group_dp",
    "LocalGroupDP",
    group_noise_as_published(
        replace(
            DP_SGD,
            claimed_unit=PrivacyUnit.SUBJECT,
            horizontal_composition=True,
            reference="arXiv 2206.03617 v1, Algorithm 2",
        )
    ),
    rounds=(RoundRule(local_step),),
)
