"""Joint noise by a trusted aggregator over several local steps (Heikkilä, arXiv 2407.19286, section 4, eqs. 7-9).

| symbol | here |
| --- | --- |
| S | the plan's local steps a round |
| g_i^(s) | ``total``, the sum of clipped gradients |
| ξ_i^(s) | the silo's noise, Gaussian or Skellam: the sum over N silos has the variance of all of them |
| γ | η of the local optimiser, over the public divisor B |
| Δ_i | ``server.train_locally(...) - server.model``, or the integers of ``server.train_on_grid`` |
| TA | ``vector_sum`` or ``server.secure_sum``: only the sum over silos is seen |

Rate, clip norm and noise may differ between silos (γ_i, C_i, σ_i; the paper's appendix): the sum has noise of variance
Σ_i (C_i σ_i γ_i/γ_1)² and sensitivity max_i C_i γ_i/γ_1. Colluding silos' noise does not count (N-1 honest ones).

The joint guarantee holds for one local step an aggregation; for S > 1 Theorem 4.7 has a counterexample (deviation
D-48, docs/joint-noise.md). In sound mode either each silo's own noise carries the guarantee alone, or ``update_round``
runs: S steps without noise, then Δ_i is clipped and noised once, so that no gradient comes after the noise.
"""

from __future__ import annotations

from dataclasses import replace

from subjectdp.algorithms.base import DP_SGD, Step, declare, vector_sum
from subjectdp.algorithms.protocols import (
    GridRound,
    GridStep,
    LocalStep,
    ServerRound,
    UpdateRound,
    Vector,
)
from subjectdp.plan.plan import Adjacency, Clipping, PrivacyUnit, PublishedSampling, TrustModel


def local_step(step: LocalStep) -> Vector:
    """θ_i ← θ_i - γ (g_i + ξ_i), g_i the sum of the clipped gradients."""
    batch = step.sample_batch()
    total = step.clipped_sum(batch)
    return step.add_noise(total, step.noise_multiplier(batch)).div_(step.divisor(batch))


def server_round(server: ServerRound, client: Step) -> None:
    """θ ← θ + (1/N) TA(Σ_i Δ_i)."""
    updates = vector_sum(server.train_locally(silo, client).sub_(server.model) for silo in server.silos)
    server.set_model(server.model + updates / server.silo_count)


def grid_step(step: GridStep) -> Vector:
    """The same in integers: gradients rounded one by one, Skellam noise, no rounding after it."""
    batch = step.sample_batch()
    total = step.rounded_sum(batch)
    return step.add_integer_noise(total, step.noise_multiplier(batch))


def grid_round(server: GridRound) -> None:
    """θ ← θ - (1/N) unit · (Σ_i Σ_s K_i^(s) mod m): the ring holds the update of all silos and steps."""
    updates = server.secure_sum(server.train_on_grid(silo, grid_step) for silo in server.silos)
    server.set_model(server.model - updates * (server.unit / server.silo_count))


def plain_step(step: LocalStep) -> Vector:
    """θ_i ← θ_i - γ Σ_j g_j: nothing is clipped or noised before the round's update is whole."""
    batch = step.sample_batch()
    return step.gradient_sum(batch).div_(step.divisor(batch))


def update_round(server: UpdateRound) -> None:
    """θ ← θ + (1/N) TA(Σ_i (Clip(Δ_i, C_i) + ξ_i)), one ξ_i a silo and round (DP-FedAvg with silos for clients)."""

    def release(silo: int) -> Vector:
        return server.noisy_update(silo, server.train_locally(silo, plain_step).sub_(server.model))

    updates = vector_sum(release(silo) for silo in server.silos)
    server.set_model(server.model + updates / server.silo_count)


JOINT = replace(DP_SGD, trust=TrustModel.SECURE_AGGREGATION, reference="arXiv 2407.19286, Theorem 4.7")

ALGORITHM = declare(
    "joint_noise",
    "JointNoise",
    JOINT,
    local_step=local_step,
    server_round=server_round,
    grid_round=grid_round,
    update_round=update_round,
    of_updates=replace(
        JOINT,
        claimed_unit=PrivacyUnit.SILO,
        claimed_adjacency=Adjacency.REPLACE,
        clipping=Clipping.PER_UPDATE,
        published_sampling=PublishedSampling.NONE,
        reference="DP-FedAvg (McMahan et al., arXiv 1710.06963) with silos for clients",
    ),
    reads=("privacy.horizontal", "joint"),
)
