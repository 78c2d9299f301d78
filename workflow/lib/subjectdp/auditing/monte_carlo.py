"""Mechanism-level audit: a lower bound on ε from many runs with and without the worst-case subject."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from subjectdp.algorithms.base import Algorithm
from subjectdp.algorithms.registry import algorithm
from subjectdp.auditing.likelihood_ratio import LikelihoodRatio, likelihood_ratios
from subjectdp.auditing.lower_bounds import CONFIDENCE, LowerBound, split_bound
from subjectdp.auditing.subject_vector import federation_of
from subjectdp.auditing.vector import World
from subjectdp.plan.plan import PrivacyPlan

BLOCK = 1 << 14  # runs at once: their tensors stay in the processor's cache


def world_scores(
    audited: Algorithm,
    plan: PrivacyPlan,
    scores: Sequence[LikelihoodRatio],
    world: World,
    models: bool = False,
) -> NDArray[np.float32]:
    """(runs,) the summed score of every run of one world; each block of runs has its own key.

    ``models``: the silos' models of each round are scored, not every noisy step.
    """
    parts = []
    for block, start in enumerate(range(0, world.runs, BLOCK)):
        runs = min(BLOCK, world.runs - start)
        part = World(world.seed, world.name, world.present, runs, block)
        with torch.no_grad():
            total = torch.zeros(runs)
            federation = federation_of(audited, plan, part)
            for score, release in federation.models() if models else federation.releases():
                total += scores[score](release)
        parts.append(total.numpy())
    return np.concatenate(parts)


def audit_plan(
    plan: PrivacyPlan,
    name: str,
    runs: int,
    seed: int,
    confidence: float = CONFIDENCE,
    models: bool = False,
) -> tuple[LowerBound, NDArray[np.float32], NDArray[np.float32]]:
    """The lower bound on a plan's ε for the unit it claims, with the scores of present and absent runs.

    Args:
        plan: of an algorithm with noise and Poisson sampling.
        name: keys the randomness together with ``seed``.
        runs: of each world. A bound cannot exceed about log(runs/8): refuting ε = 4 needs tens of thousands of runs.
        models: whether the attacker gets the silos' models of each round; else every noisy step.
    """
    audited = algorithm(plan.mechanism.algorithm, plan.mechanism.variant)
    scores = likelihood_ratios(plan, models=models)
    worlds = [World(seed, name, present, runs) for present in (True, False)]
    present, absent = (world_scores(audited, plan, scores, world, models) for world in worlds)
    return split_bound(present, absent, plan.settings.delta, confidence), present, absent
