"""HiGradAvgDP: hierarchical gradient averaging (arXiv 2206.03617 v1, Algorithm 3; v3, Algorithm 2).

| symbol | here | line of v1 |
| --- | --- | --- |
| S | ``batch`` | 3 |
| ḡ(s_i) | inside ``step.clipped_sum`` | 8 |
| |S_a^S| | ``batch.group_sizes``, for each item the count of its subject | 11 |
| g(S_a^S) | Σ_i ḡ(s_i) / |S_a^S|, through the weights | 11 |
| σ | ``step.noise_multiplier`` | 12 |

v1 divides by B and accounts with the item's sampling fraction B/|D_i|; v3 divides by the number of distinct subjects
of the mini-batch and accounts with k·B/|D_i|. v3's divisor depends on the data and scales the noise (D-41);
in sound mode both variants divide by a public constant.
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
    """g̃_S = (1/divisor) (Σ_a mean_{i∈S_a} ḡ(s_i) + N(0, σ²C² I))."""
    batch = step.sample_batch()  # line 3
    total = step.clipped_sum(batch, weights=1.0 / batch.group_sizes)  # lines 4-11
    noisy = step.add_noise(total, step.noise_multiplier(batch))  # line 12
    return noisy / step.divisor(batch)  # line 12: B in v1, |subjects(S)| in v3


def _mechanism(
    variant: str, mode: AccountingMode, sampling: PublishedSampling, divisor: DivisorRule
) -> Mechanism:
    return Mechanism(
        algorithm="higrad_avg_dp",
        variant=variant,
        mode=mode,
        claimed_unit=PrivacyUnit.SUBJECT,
        claimed_adjacency=Adjacency.ADD_REMOVE,
        clipping=Clipping.PER_ITEM_SUBJECT_MEAN,
        noise_rule=NoiseRule.CONSTANT,
        divisor_rule=divisor,
        trust=TrustModel.LOCAL,
        published_sampling=sampling,
        horizontal_composition=True,
        reference="arXiv 2206.03617 v1, Algorithm 3"
        if variant == "v1"
        else "arXiv 2206.03617 v3, Algorithm 2",
    )


ITEM, SUBJECT = PublishedSampling.ITEM, PublishedSampling.SUBJECT_UNION_BOUND

ALGORITHM = Algorithm(
    name="higrad_avg_dp",
    label="HiGradAvgDP",
    variants=("v1", "v3"),
    mechanisms=(
        _mechanism("v1", AccountingMode.AS_PUBLISHED, ITEM, DivisorRule.BATCH_SIZE),
        _mechanism("v1", AccountingMode.SOUND, ITEM, DivisorRule.BATCH_SIZE),
        _mechanism("v3", AccountingMode.AS_PUBLISHED, SUBJECT, DivisorRule.REALISED_SUBJECTS),
        _mechanism("v3", AccountingMode.SOUND, SUBJECT, DivisorRule.EXPECTED_SUBJECTS),
    ),
    local_step=local_step,
)
