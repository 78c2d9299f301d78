"""Weighted logistic losses, and their minimum in a ball by a deterministic method with a certificate.

Accelerated projected gradient with restarts, in float64. The Frank-Wolfe gap ⟨∇F(w), w⟩ + M‖∇F(w)‖ is an upper bound on
the distance to the minimum, whatever the method: the returned value minus the gap is a lower bound on the minimum.

Most algorithms weight all items equally. HiGradAvgDP averages over the items of a subject first, so its steps follow
another loss, the L̂ of Lemma 4.10 of arXiv 2206.03617 v3 (:func:`subject_mean_weights`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.errors import DataError, expected

_MOST_STEPS = 20_000
_NODES = 64  # of Gauss-Legendre: exact for fewer than 128 subjects, within 1e-12 for any number


@dataclass(frozen=True)
class Objective:
    """F(W) = Σ_j ω_j CE(W φ_j, y_j): convex in W (classes, p).

    ``features`` float64 (n, p), ``labels`` int64 (n,), ``weights`` float64 (n,), not negative, sum 1.
    """

    features: Tensor
    labels: Tensor
    weights: Tensor
    classes: int

    def value(self, model: Tensor) -> float:
        """F at ``model`` (classes, p) in nats."""
        return self.value_and_gradient(model.double())[0]

    def value_and_gradient(self, model: Tensor) -> tuple[float, Tensor]:
        """F and ∇F (classes, p)."""
        logits = self.features @ model.T
        log_z = torch.logsumexp(logits, dim=1)
        losses = log_z - logits.gather(1, self.labels.unsqueeze(1)).squeeze(1)
        residual = torch.exp(logits - log_z.unsqueeze(1))
        residual[torch.arange(len(residual)), self.labels] -= 1.0
        return float(losses @ self.weights), (residual * self.weights.unsqueeze(1)).T @ self.features

    def smoothness(self) -> float:
        """An upper bound on the largest curvature: half the largest eigenvalue of Σ_j ω_j φ_j φ_jᵀ."""
        second = (self.features * self.weights.unsqueeze(1)).T @ self.features
        return 0.5 * float(torch.linalg.eigvalsh(second)[-1])


@dataclass(frozen=True)
class Optimum:
    """A point of the ball and how good it is: min F ∈ [``value`` - ``gap``, ``value``]."""

    model: Tensor  # float64 (classes, p)
    value: float
    gap: float

    @property
    def lower(self) -> float:
        """A lower bound on the minimum."""
        return self.value - self.gap


def minimise(objective: Objective, radius: float, tolerance: float = 1e-3) -> Optimum:
    """The minimum of F over ‖W‖ ≤ ``radius``, up to ``tolerance`` nats.

    Raises DataError where the radius or the tolerance is not positive, or the certificate is not reached in
    20,000 steps.
    """
    if not (radius > 0 and tolerance > 0):
        raise expected("radius and tolerance", (radius, tolerance), "positive", DataError)
    rate = 1.0 / max(objective.smoothness(), 1e-12)
    point = torch.zeros(objective.classes, objective.features.shape[1], dtype=torch.float64)
    ahead, momentum = point, 1.0
    for _ in range(_MOST_STEPS):
        value, gradient = objective.value_and_gradient(ahead)
        gap = float((gradient * ahead).sum() + radius * torch.linalg.vector_norm(gradient))
        if gap <= tolerance and float(torch.linalg.vector_norm(ahead)) <= radius * (1 + 1e-12):
            return Optimum(ahead, value, gap)
        following = _into_ball(ahead - rate * gradient, radius)
        if float(((ahead - following) * (following - point)).sum()) > 0:  # restart: the momentum leads uphill
            momentum, ahead, point = 1.0, following, following
            continue
        faster = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = _into_ball(following + (momentum - 1) / faster * (following - point), radius)
        point, momentum = following, faster
    raise expected("gap to the optimum", gap, f"at most {tolerance} after {_MOST_STEPS} steps", DataError)


def _into_ball(model: Tensor, radius: float) -> Tensor:
    norm = float(torch.linalg.vector_norm(model))
    return model * (radius / norm) if norm > radius else model


def subject_mean_weights(owners: NDArray[np.int32], sampling_probability: float) -> NDArray[np.float64]:
    """E[1{j in S} / (|S_a| · subjects(S))] for each item j of subject a, scaled to sum 1: float64 (items,).

    This is an item's weight in an expected step of HiGradAvgDP with Poisson mini-batches: the more items its subject
    has, the smaller. Subject a is in the mini-batch with p_a = 1 - (1 - q)^{n_a}; its n_a items share its weight.
    E[1/(1 + X)] = ∫₀¹ E[t^X] dt for the number X of other subjects, whose generating function is a product.
    """
    subjects, inverse, counts = np.unique(owners, return_inverse=True, return_counts=True)
    present = (
        -np.expm1(counts * np.log1p(-sampling_probability))
        if sampling_probability < 1
        else np.ones(len(subjects))
    )
    nodes, masses = np.polynomial.legendre.leggauss(_NODES)
    t = (nodes + 1) / 2
    logs = np.log1p(-np.outer(present, 1 - t))  # (subjects, nodes): log of one subject's generating function
    others = np.exp(logs.sum(axis=0) - logs)
    shares = present * (others @ masses / 2)
    weights: NDArray[np.float64] = (shares / counts)[inverse]
    weights /= weights.sum()
    return weights
