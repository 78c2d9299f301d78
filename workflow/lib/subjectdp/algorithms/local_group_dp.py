"""LocalGroupDP: noise scaled to the largest group of the mini-batch (arXiv 2206.03617 v1, Algorithm 2; v0: LocalSubDP).

| symbol | here | line of v1 |
| --- | --- | --- |
| S | ``batch`` | 3 |
| ḡ(s_i) | inside ``step.clipped_sum`` | 7 |
| Z | ``batch.largest_group`` | 9 |
| σ_Z | ``step.noise_multiplier(batch)`` | 10 |
| B | ``step.divisor`` | 10 |

As published, σ_Z depends on the data of the mini-batch, and group privacy is applied to the group in the mini-batch
where the group in the data set counts: the claim does not hold (D-44). In sound mode σ is one constant for
the run, from the mixture of Gaussians of an enforced cap on a subject's items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from subjectdp.algorithms.base import Algorithm, LocalStep
from subjectdp.mechanisms.plan import (
    AccountingMode,
    Adjacency,
    Clipping,
    DivisorRule,
    Mechanism,
    NoiseRule,
    PrivacyUnit,
    PublishedSampling,
    TrustModel,
)

if TYPE_CHECKING:
    from torch import Tensor


def local_step(step: LocalStep) -> Tensor:
    """g̃_S = (1/B) (Σ_i ḡ(s_i) + N(0, σ_Z²C² I))."""
    batch = step.sample_batch()  # line 3
    total = step.clipped_sum(batch)  # lines 4-8
    noise_multiplier = step.noise_multiplier(batch)  # line 9: Z = LrgGrpCnt(S)
    return step.add_noise(total, noise_multiplier) / step.divisor(batch)  # line 10


ALGORITHM = Algorithm(
    name="local_group_dp",
    label="LocalGroupDP",
    variants=(None,),
    mechanisms=tuple(
        Mechanism(
            algorithm="local_group_dp",
            variant=None,
            mode=mode,
            claimed_unit=PrivacyUnit.SUBJECT,
            claimed_adjacency=Adjacency.ADD_REMOVE,
            clipping=Clipping.PER_ITEM,
            noise_rule=rule,
            divisor_rule=DivisorRule.BATCH_SIZE,
            trust=TrustModel.LOCAL,
            published_sampling=PublishedSampling.ITEM,
            horizontal_composition=True,
            reference="arXiv 2206.03617 v1, Algorithm 2",
        )
        for mode, rule in (
            (AccountingMode.AS_PUBLISHED, NoiseRule.GROUP_SIZE_IN_BATCH),
            (AccountingMode.SOUND, NoiseRule.CONSTANT),
        )
    ),
    local_step=local_step,
)
