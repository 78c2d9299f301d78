"""CentralSubDP: a trusted server adds the noise, one mini-batch a silo and round (arXiv 2206.03617 v0, Algorithm 1).

| symbol | here | line |
| --- | --- | --- |
| S | ``batch`` | 2 |
| g̃(s_i) | inside ``step.clipped_sum`` | 7 |
| Z | ``batch.largest_group`` | 9 |
| σ_Z | ``step.noise_multiplier(batch)`` | 17 |
| G̃ | ``total`` | 14, 18 |

As published the noise N(0, σ_Z²C²) stands outside the 1/B, which makes it B times larger than the sum's sensitivity
needs; the setting ``privacy.noise_placement`` puts it inside. In sound mode the server sums the clipped gradients of
all silos, adds one noise of constant σ and divides by a public constant (D-24).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from subjectdp.algorithms.base import Algorithm, LocalStep, ServerRound, vector_sum
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
    """Lines 2-10 and 17: the silo's clipped sum with the server's noise, averaged."""
    batch = step.sample_batch()
    total = step.clipped_sum(batch)
    noise_multiplier = step.noise_multiplier(batch)
    if step.noise_before_average:
        return step.add_noise(total, noise_multiplier) / step.divisor(batch)
    return step.add_noise(total / step.divisor(batch), noise_multiplier)


def server_round(server: ServerRound, user: Callable[[LocalStep], Tensor]) -> None:
    """Lines 12-22; in sound mode the server adds one noise to the sum over all silos."""
    if server.adds_noise_once:
        steps = [server.step_of(silo) for silo in server.silos]
        total = vector_sum(step.clipped_sum(step.sample_batch()) for step in steps)
        server.descend(server.add_noise(total) / server.divisor)
    else:
        total = vector_sum(user(server.step_of(silo)) for silo in server.silos)  # lines 14-19
        server.descend(total / server.silo_count)  # line 20


ALGORITHM = Algorithm(
    name="central_sub_dp",
    label="CentralSubDP",
    variants=("v0",),
    mechanisms=tuple(
        Mechanism(
            algorithm="central_sub_dp",
            variant="v0",
            mode=mode,
            claimed_unit=PrivacyUnit.SUBJECT,
            claimed_adjacency=Adjacency.ADD_REMOVE,
            clipping=Clipping.PER_ITEM,
            noise_rule=rule,
            divisor_rule=DivisorRule.BATCH_SIZE,
            trust=TrustModel.CENTRAL,
            published_sampling=PublishedSampling.FEDERATION,
            horizontal_composition=False,
            one_step_per_round=True,
            published_steps_times_silos=True,
            reference="arXiv 2206.03617 v0, Algorithm 1",
        )
        for mode, rule in (
            (AccountingMode.AS_PUBLISHED, NoiseRule.GROUP_SIZE_IN_BATCH),
            (AccountingMode.SOUND, NoiseRule.CONSTANT),
        )
    ),
    local_step=local_step,
    server_round=server_round,
)
