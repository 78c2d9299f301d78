"""LocalItemDP: DP-SGD at each silo, item-level privacy (Abadi et al. 2016; arXiv 2206.03617 v1, section 3, eq. 4).

| symbol | here |
| --- | --- |
| S | ``batch``, a sample of the silo's items |
| C | clip norm, inside ``step.clipped_sum`` |
| σ | ``step.noise_multiplier`` |
| B | ``step.divisor``, the expected batch size |

The paper's eq. 4 prints θ + η(...); it is a sign error (D-21).
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
    """g̃ = (1/B) (Σ_j Clip(g(s_j), C) + N(0, σ²C² I))."""
    batch = step.sample_batch()
    total = step.clipped_sum(batch)
    noisy = step.add_noise(total, step.noise_multiplier(batch))
    return noisy / step.divisor(batch)


ALGORITHM = Algorithm(
    name="local_item_dp",
    label="LocalItemDP",
    variants=(None,),
    mechanisms=tuple(
        Mechanism(
            algorithm="local_item_dp",
            variant=None,
            mode=mode,
            claimed_unit=PrivacyUnit.ITEM,
            claimed_adjacency=Adjacency.ADD_REMOVE,
            clipping=Clipping.PER_ITEM,
            noise_rule=NoiseRule.CONSTANT,
            divisor_rule=DivisorRule.BATCH_SIZE,
            trust=TrustModel.LOCAL,
            published_sampling=PublishedSampling.ITEM,
            horizontal_composition=False,
            reference="arXiv 2206.03617 v1, section 3, eq. 4",
        )
        for mode in AccountingMode
    ),
    local_step=local_step,
)
