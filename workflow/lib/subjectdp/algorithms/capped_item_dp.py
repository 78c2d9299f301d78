"""CappedItemDP: LocalItemDP for subjects, their items capped: what LocalGroupDP is once it is made sound.

| symbol | here |
| --- | --- |
| k | ``partition.max_items_per_subject``: a subject's further items at a silo are dropped before training |
| q | inside ``step.sample_batch()``: a coin for each item |
| C, σ | inside ``step.clipped_sum``; ``step.noise_multiplier``, one constant |

A step holds j of a subject's k items with probability Bin(k, q)(j), and they move the sum by at most jC: a mixture of
Gaussians (Ganesh 2024, arXiv 2401.10294; Charles et al. 2024, arXiv 2407.07737, "ELS"). A smaller k needs less noise
and keeps fewer items; ``subjectdp account`` prints the noise for a k.
"""

from dataclasses import replace

from subjectdp.algorithms.base import DP_SGD, RoundRule, declare
from subjectdp.algorithms.local_item_dp import local_step
from subjectdp.plan.plan import PrivacyUnit, PublishedSampling

ALGORITHM = declare(
    "capped_item_dp",
    "CappedItemDP",
    replace(
        DP_SGD,
        claimed_unit=PrivacyUnit.SUBJECT,
        published_sampling=PublishedSampling.NONE,
        horizontal_composition=True,
        beyond_papers=True,
        reference="Charles et al. 2024 (arXiv 2407.07737), example-level sampling",
    ),
    rounds=(RoundRule(local_step),),
)
