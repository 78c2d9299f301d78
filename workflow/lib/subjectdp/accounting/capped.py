"""Truncates the sensitivity distribution and charges the tail mass to δ.

A subject with hundreds of items at a silo has all of them in one mini-batch with a probability far below δ. The shift
of hundreds of clip norms that comes with it dominates the Rényi divergences, and the bound is valid but loose. The
distribution is therefore cut at the smallest c for which P(any step's shift exceeds c) is a small part of δ.

Let E be the event that no step's shift exceeds c, τ = 1 - P(E), P and Q the laws of all releases with and without the
unit, P_E that of P given E. If (P_E, Q) are (ε, δ')-indistinguishable, then (P, Q) are (ε - log(1 - τ), δ' + τ)-
indistinguishable:

    P(S) = (1 - τ) P_E(S) + τ P(S | not E) ≤ P_E(S) + τ ≤ e^ε Q(S) + δ' + τ,
    Q(S) ≤ e^ε P_E(S) + δ' ≤ e^ε P(S) / (1 - τ) + δ'.

The sampler draws each step's shift anew and independently of all that was released before, and so do the pairs of
distributions that dominate the steps. E is thus an intersection of independent events, one a step, and P_E is the
composition of the same steps with each shift's law conditioned on being at most c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from subjectdp.accounting.events import PrivacyLoss
from subjectdp.accounting.shifts import Shift

_SHARE = 0.05  # of δ, charged for the tails


def capped_shift(shift: Shift, tail: float) -> tuple[Shift, float]:
    """The shift given that it is at most c, and P(shift > c), for the smallest value c where that is ≤ ``tail``.

    Shifts on a coin (``accounting.shifts``) stay as they are.
    """
    if type(shift) is not Shift:
        return shift, 0.0
    probabilities = np.asarray(shift.probabilities)
    above = np.append(np.cumsum(probabilities[::-1])[::-1][1:], 0.0)
    kept = int(np.argmax(above <= tail)) + 1
    masses = probabilities[:kept] / probabilities[:kept].sum()
    return Shift.of(shift.sensitivities[:kept], masses.tolist()), float(above[kept - 1])


def capped(loss: PrivacyLoss, probability: float) -> tuple[PrivacyLoss, float]:
    """The loss with each step's shift capped, and τ ≤ ``probability``, the chance that any of them exceeds its cap."""
    tail = probability / sum(part.steps for part in loss)
    parts, log_kept = [], 0.0
    for part in loss:
        shift, missed = capped_shift(part.shift, tail)
        parts.append(replace(part, shift=shift))
        log_kept += part.steps * math.log1p(-missed)
    return tuple(parts), -math.expm1(log_kept)


def capped_bound(
    loss: PrivacyLoss, delta: float, bound: Callable[[PrivacyLoss, float], float], share: float = _SHARE
) -> float:
    """ε at δ by ``bound`` of the loss capped at the cost of ``share`` of δ.

    ``bound`` takes a loss and a δ and returns an ε that holds for them.
    """
    parts, missed = capped(loss, share * delta)
    moving = tuple(part for part in parts if part.shift.sensitivities[-1] > 0)  # others cost their tail alone
    return (bound(moving, delta - missed) if moving else 0.0) - math.log1p(-missed)
