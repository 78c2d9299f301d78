"""FedAvg: federated averaging without privacy (McMahan et al. 2017; the baseline of arXiv 2206.03617, section 4).

| symbol | here |
| --- | --- |
| B | ``step.divisor``, the expected batch size |
| g(S) | ``step.gradient_sum``, (P,) |
"""

from dataclasses import replace

from subjectdp.algorithms.base import DP_SGD, LocalStep, RoundRule, Vector, declare
from subjectdp.plan.plan import Clipping, NoiseRule


def local_step(step: LocalStep) -> Vector:
    """θ ← θ − η (1/B) Σ_j ∇L(θ, s_j)."""
    batch = step.sample_batch()
    return step.gradient_sum(batch).div_(step.divisor(batch))


ALGORITHM = declare(
    "fed_avg",
    "FedAvg",
    replace(
        DP_SGD,
        claimed_unit=None,
        clipping=Clipping.NONE,
        noise_rule=NoiseRule.NONE,
        reference="McMahan et al. 2017, Algorithm 1",
    ),
    rounds=(RoundRule(local_step),),
)
