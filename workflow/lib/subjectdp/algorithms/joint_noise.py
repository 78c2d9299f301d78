"""Joint noise by a trusted aggregator over several local steps (Heikkilä, arXiv 2407.19286, section 4, eqs. 7-9).

| symbol | here |
| --- | --- |
| S | the plan's noised steps a round |
| g_i^(s) | ``total``, the sum of clipped gradients |
| ξ_i^(s) | the silo's noise, Gaussian or Skellam: the sum over N silos has the variance of all of them |
| k_i | local steps that silo i fuses into a noised one (eq. 26): clip norm C_i/k_i, ξ_i in the last of them |
| γ | η of the local optimiser, over the public divisor B |
| Δ_i | a silo's model − ``server.model``, or the sum of its integers |
| TA | ``vector_sum`` or ``server.secure_sum``: only the sum over silos is seen |

Rate, clip norm and noise may differ between silos (γ_i, C_i, σ_i; the paper's appendix): the sum has noise of variance
Σ_i (C_i σ_i γ_i/γ_1)² and sensitivity max_i C_i γ_i/γ_1. Colluding silos' noise does not count (N-1 honest ones).

The joint guarantee holds for one local step an aggregation; for S > 1 Theorem 4.7 has a counterexample (deviation
D-48, docs/findings.md). In sound mode either each silo's own noise carries the guarantee alone, or whole updates are
clipped (the last rule, eq. 5): S steps without noise, then Δ_i is clipped and noised once: no gradient follows noise.
"""

from collections.abc import Iterable
from dataclasses import replace

from subjectdp.algorithms.base import (
    DP_SGD,
    IntegerServer,
    IntegerStep,
    LocalStep,
    RoundRule,
    Server,
    SiloTask,
    Vector,
    declare,
    vector_sum,
)
from subjectdp.plan.plan import Adjacency, Clipping, PrivacyUnit, PublishedSampling, TrustModel


def local_step(step: LocalStep) -> Vector:
    """θ_i ← θ_i - γ (g_i + ξ_i), g_i the sum of the clipped gradients."""
    batch = step.sample_batch()
    total = step.clipped_sum(batch)
    return step.add_noise(total, step.noise_multiplier(batch)).div_(step.divisor(batch))


def aggregate(server: Server, models: Iterable[Vector]) -> None:
    """θ ← θ + (1/N) TA(Σ_i Δ_i)."""
    add_mean(server, (model.sub_(server.model) for model in models))


def add_mean(server: Server, updates: Iterable[Vector]) -> None:
    """θ ← θ + (1/N) Σ_i of the updates."""
    server.set_model(server.model + vector_sum(updates) / server.silo_count)


def integer_step(step: IntegerStep) -> Vector:
    """The same in integers: gradients rounded one by one, Skellam noise, no rounding after it."""
    batch = step.sample_batch()
    total = step.rounded_sum(batch)
    return step.add_integer_noise(total, step.noise_multiplier(batch))


def aggregate_integers(server: IntegerServer, updates: Iterable[Vector]) -> None:
    """θ ← θ - (1/N) unit · (Σ_i Σ_s K_i^(s) mod m): the ring holds the update of all silos and steps."""
    server.set_model(server.model - server.secure_sum(updates) * (server.unit / server.silo_count))


def plain_step(step: LocalStep) -> Vector:
    """θ_i ← θ_i - γ Σ_j g_j: nothing is clipped or noised before the round's update is complete."""
    batch = step.sample_batch()
    return step.gradient_sum(batch).div_(step.divisor(batch))


JOINT = replace(DP_SGD, trust=TrustModel.SECURE_AGGREGATION, reference="arXiv 2407.19286, Theorem 4.7")

ALGORITHM = declare(
    "joint_noise",
    "JointNoise",
    JOINT,
    rounds=(
        RoundRule(local_step, aggregate),
        RoundRule(integer_step, aggregate_integers, SiloTask.INTEGER_STEPS),
        RoundRule(plain_step, add_mean, SiloTask.NOISY_UPDATE, of_updates=True),  # eq. 5: silos for clients
    ),
    of_updates=replace(
        JOINT,
        claimed_unit=PrivacyUnit.SILO,
        claimed_adjacency=Adjacency.REPLACE,
        clipping=Clipping.PER_UPDATE,
        published_sampling=PublishedSampling.NONE,
        reference="arXiv 2407.19286, eq. 5: DP-FedAvg (arXiv 1710.06963) with silos for clients",
    ),
    reads=("privacy.horizontal", "joint"),
)
