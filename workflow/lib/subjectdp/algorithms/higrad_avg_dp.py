"""HiGradAvgDP: hierarchical gradient averaging (arXiv 2206.03617 v1, Algorithm 3; v3, Algorithm 2).

| symbol | here | line of v1 |
| --- | --- | --- |
| S | ``batch`` | 3 |
| ḡ(s_i) | inside ``step.clipped_sum`` | 9 |
| |S_a^S| | ``batch.group_sizes``, for each item the count of its subject | 11 |
| g(S_a^S) | Σ_i ḡ(s_i) / |S_a^S|, through the weights | 11 |
| σ | ``step.noise_multiplier`` | 12 |

v1 divides by B and accounts with the item's sampling fraction B/|D_i|; v3 divides by the number of distinct subjects
of the mini-batch and accounts with k·B/|D_i|. v3's divisor depends on the data and scales the noise (D-41);
in sound mode both variants divide by a public constant.
"""

from dataclasses import replace

from subjectdp.algorithms.base import DP_SGD, ByMode, LocalStep, RoundRule, Vector, declare
from subjectdp.plan.plan import Clipping, DivisorRule, PrivacyUnit, PublishedSampling


def local_step(step: LocalStep) -> Vector:
    """g̃_S = (1/divisor) (Σ_a mean_{i∈S_a} ḡ(s_i) + N(0, σ²C² I))."""
    batch = step.sample_batch()  # line 3
    total = step.clipped_sum(batch, weights=1.0 / batch.group_sizes)  # lines 4-11
    noisy = step.add_noise(total, step.noise_multiplier(batch))  # line 12
    return noisy.div_(step.divisor(batch))  # line 12: B in v1, |subjects(S)| in v3


V1 = replace(
    DP_SGD,
    variant="v1",
    claimed_unit=PrivacyUnit.SUBJECT,
    clipping=Clipping.PER_ITEM_SUBJECT_MEAN,
    horizontal_composition=True,
    reference="arXiv 2206.03617 v1, Algorithm 3",
)
V3 = replace(
    V1,
    variant="v3",
    published_sampling=PublishedSampling.SUBJECT_UNION_BOUND,
    reference="arXiv 2206.03617 v3, Algorithm 2",
)
ALGORITHM = declare(
    "higrad_avg_dp",
    "HiGradAvgDP",
    V1,
    ByMode(
        as_published=replace(V3, divisor_rule=DivisorRule.REALISED_SUBJECTS),
        sound=replace(V3, divisor_rule=DivisorRule.EXPECTED_SUBJECTS),
    ),
    rounds=(RoundRule(local_step),),
)
