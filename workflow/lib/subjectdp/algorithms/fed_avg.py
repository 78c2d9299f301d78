"""FedAvg: federated averaging without privacy (McMahan et al. 2017; the baseline of arXiv 2206.03617, section 4).

| symbol | here |
| --- | --- |
| B | ``step.divisor``, the expected batch size |
| g(S) | ``step.gradient_sum``, (P,) |
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
    PublishedSampling,
    TrustModel,
)

if TYPE_CHECKING:
    from torch import Tensor


def local_step(step: LocalStep) -> Tensor:
    """θ ← θ − η (1/B) Σ_j ∇L(θ, s_j)."""
    batch = step.sample_batch()
    return step.gradient_sum(batch) / step.divisor(batch)


ALGORITHM = Algorithm(
    name="fed_avg",
    label="FedAvg",
    variants=(None,),
    mechanisms=tuple(
        Mechanism(
            algorithm="fed_avg",
            variant=None,
            mode=mode,
            claimed_unit=None,
            claimed_adjacency=Adjacency.ADD_REMOVE,
            clipping=Clipping.NONE,
            noise_rule=NoiseRule.NONE,
            divisor_rule=DivisorRule.BATCH_SIZE,
            trust=TrustModel.LOCAL,
            published_sampling=PublishedSampling.ITEM,
            horizontal_composition=False,
            reference="McMahan et al. 2017, Algorithm 1",
        )
        for mode in AccountingMode
    ),
    local_step=local_step,
)
