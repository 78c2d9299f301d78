"""UserLDP: the whole mini-batch's gradient is clipped and noised (arXiv 2206.03617 v1, Algorithm 1; v3, Algorithm 3).

| symbol | here | line of v1 |
| --- | --- | --- |
| S | ``batch`` | 3 |
| g(S) | ``step.gradient_sum(batch) / items``, the mini-batch mean, (P,) | 5 |
| ḡ(S) | ``clipped`` | 7 |
| σ | ``step.noise_multiplier`` | 9 |

v1 states no sampling fraction q. Variants, which differ in the noise as published alone:

- null (the default): v1 with q = 1, as v3 reads it;
- ``v1_sampled``: v1 with q = B/|D_i|, as in the rest of v1;
- ``v3``: q = 1, and σ > 1/(√(2π)·ε·δ·e^ε) as well (Theorem 3.11), 182.7 at (4, 1e-5).

The noise is not divided by B: the clipped object is already a mean. Two mini-batches of different silos differ by up
to 2C, not by C as Lemma 3.2 says (D-45).
"""

from dataclasses import replace

from subjectdp.algorithms.base import DP_SGD, LocalStep, RoundRule, Vector, declare
from subjectdp.plan.plan import Clipping, DivisorRule, PrivacyUnit, PublishedSampling


def local_step(step: LocalStep) -> Vector:
    """g̃(S) = g(S) / max(1, ‖g(S)‖/C) + N(0, σ²C² I)."""
    batch = step.sample_batch()  # line 3
    mean = step.gradient_sum(batch) / max(1, batch.items)  # line 5
    clipped = step.clip(mean)  # line 7
    return step.add_noise(clipped, step.noise_multiplier(batch))  # line 9


V1 = replace(
    DP_SGD,
    claimed_unit=PrivacyUnit.SUBJECT,
    clipping=Clipping.PER_BATCH,
    divisor_rule=DivisorRule.ONE,
    published_sampling=PublishedSampling.NONE,
    horizontal_composition=True,
    reference="arXiv 2206.03617 v1, Algorithm 1 (q = 1)",
)
V1_SAMPLED = replace(
    V1,
    variant="v1_sampled",
    published_sampling=PublishedSampling.ITEM,
    reference="arXiv 2206.03617 v1, Algorithm 1 (q = B/|D_i|)",
)
V3 = replace(
    V1, variant="v3", published_local_bound=True, reference="arXiv 2206.03617 v3, Algorithm 3 and Theorem 3.11"
)
ALGORITHM = declare("user_ldp", "UserLDP", V1, V1_SAMPLED, V3, rounds=(RoundRule(local_step),))
