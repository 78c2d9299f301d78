"""Which loss an algorithm's steps descend on: the weight that each training item has in an expected step.

Most algorithms weight all items alike. HiGradAvgDP averages over the items of a subject first, so that its steps follow
another loss, the L̂ of Lemma 4.10: an item counts the less, the more items its subject has. Mini-batches are Poisson.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NODES = 64  # of Gauss-Legendre: exact for fewer than 128 subjects, within 1e-12 for any number


def item_weights(items: int) -> Floats:
    """Equal weights (items,) of sum 1."""
    return np.full(items, 1.0 / items)


def subject_mean_weights(owners: NDArray[np.int32], sampling_probability: float) -> Floats:
    """E[1{j in S} / (|S_a| · subjects(S))] for each item j of subject a, scaled to sum 1: float64 (items,).

    Subject a is in the mini-batch with p_a = 1 - (1 - q)^{n_a}, and its weight is shared by its n_a items;
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
    weights: Floats = (shares / counts)[inverse]
    weights /= weights.sum()
    return weights
