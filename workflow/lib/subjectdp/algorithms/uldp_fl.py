"""ULDP-FL: a user's update is clipped and weighted at each silo, and noised in a secure sum (ULDP-AVG and ULDP-AVG-w).

Kato, Xiong, Takagi, Cao, Yoshikawa 2024: "ULDP-FL: Federated Learning with Across-Silo User-Level Differential Privacy"
(arXiv 2308.12210).

| symbol | here |
| --- | --- |
| u ∈ U | ``step.sample_batch()``: the round's users, by one coin each for all silos, with all of their items |
| Δ_{s,u} | a user's model after Q local steps on its items at silo s, minus θ; inside ``step.subject_update_sum`` |
| w_{s,u} | ``subject.weights``, Σ_s w = 1: ``fixed`` (ULDP-AVG, 1/S each) or ``proportional`` to items (ULDP-AVG-w) |
| w Clip(Δ, C) | inside ``step.subject_update_sum``, as Clip(Δ, w C) (D-56) |
| N(0, σ²C²/S) | ``step.noise_multiplier``: each silo's share of one noise σC on the sum |
| E[users] | ``server.divisor``: public |

Only the sum over silos is seen, and a user moves it by at most Σ_s w C = C: R rounds are R Gaussian releases. C takes
the place of the server's rate, as long as updates are clipped.

Where every silo's release is seen (local trust), a user moves them together by √(Σ_s w²) C, which is C for one that
is at a single silo. Each silo then needs the whole noise, σ²C²: ``joint.own_noise_only``.
"""

from collections.abc import Iterable
from dataclasses import replace

from subjectdp.algorithms.base import DP_SGD, LocalStep, RoundRule, Server, SiloTask, Vector, declare, vector_sum
from subjectdp.plan.plan import Clipping, DivisorRule, PrivacyUnit, PublishedSampling, TrustModel


def local_round(step: LocalStep) -> Vector:
    """Δ_s = Σ_u Clip(Δ_{s,u}, w_{s,u} C) + N(0, (σ²C²/S) I)."""
    batch = step.sample_batch()
    return step.add_noise(step.subject_update_sum(batch), step.noise_multiplier(batch))


def aggregate(server: Server, updates: Iterable[Vector]) -> None:
    """θ ← θ + Σ_s Δ_s over the expected number of users."""
    server.set_model(server.model + vector_sum(updates) / server.divisor)


ALGORITHM = declare(
    "uldp_fl",
    "ULDP-FL",
    replace(
        DP_SGD,
        claimed_unit=PrivacyUnit.SUBJECT,
        clipping=Clipping.PER_SUBJECT_UPDATE,
        divisor_rule=DivisorRule.EXPECTED_SUBJECTS,
        trust=TrustModel.SECURE_AGGREGATION,
        published_sampling=PublishedSampling.NONE,
        one_step_per_round=True,
        samples_subjects=True,
        shared_budget=True,
        beyond_papers=True,
        reference="ULDP-FL (arXiv 2308.12210), ULDP-AVG and ULDP-AVG-w",
    ),
    rounds=(RoundRule(local_round, aggregate, SiloTask.ONE_STEP, of_updates=True),),
    reads=(
        "privacy.horizontal",
        "subject.sampling_probability",
        "subject.weights",
        "joint.colluding_silos",
        "joint.own_noise_only",
    ),
)
