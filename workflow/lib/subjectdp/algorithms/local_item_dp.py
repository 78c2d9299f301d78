"""LocalItemDP: DP-SGD at each silo, item-level privacy (Abadi et al. 2016; arXiv 2206.03617 v1, section 3, eq. 4).

| symbol | here |
| --- | --- |
| S | ``batch``, a sample of the silo's items |
| C | clip norm, inside ``step.clipped_sum`` |
| σ | ``step.noise_multiplier`` |
| B | ``step.divisor``, the expected batch size |

The paper's eq. 4 prints θ + η(...); it is a sign error (D-21).
"""

from dataclasses import replace

from subjectdp.algorithms.base import DP_SGD, LocalStep, RoundRule, Vector, declare


def local_step(step: LocalStep) -> Vector:
    """g̃ = (1/B) (Σ_j Clip(g(s_j), C) + N(0, σ²C² I))."""
    batch = step.sample_batch()
    total = step.clipped_sum(batch)
    noisy = step.add_noise(total, step.noise_multiplier(batch))
    return noisy.div_(step.divisor(batch))


ALGORITHM = declare(
    "local_item_dp",
    "LocalItemDP",
    replace(DP_SGD, reference="arXiv 2206.03617 v1, section 3, eq. 4"),
    rounds=(RoundRule(local_step),),
    reads=(),
)
