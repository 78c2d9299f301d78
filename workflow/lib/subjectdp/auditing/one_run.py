"""Auditing in one training run (Steinke, Nasr, Jagielski, arXiv 2305.08846, Theorem 5.2).

Each of m canaries takes part or not by an independent fair coin. An attacker guesses r of the coins; the number of
right guesses bounds ε. Neighbouring federations differ by one canary, so to audit subject-level privacy a canary must
be a subject, with all its items at all its silos.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from subjectdp.auditing.lower_bounds import CONFIDENCE
from subjectdp.errors import PrivacyError, expected

_LARGEST_EPSILON = 60.0
_HALVINGS = 50


@dataclass(frozen=True)
class Guesses:
    """Outcome of an attack on m canaries: number of guesses and of right guesses."""

    canaries: int
    guesses: int
    correct: int


def p_value(outcome: Guesses, epsilon: float, delta: float) -> float:
    """The probability bound of at least so many right guesses under (ε, δ)-differential privacy.

    With W ~ Binomial(r, e^ε/(1 + e^ε)): P[W ≥ v] + 2 m δ · max_{i ≥ 1} P[v > W ≥ v − i]/i, at most 1.
    """
    _check(outcome, delta)
    right = 1.0 / (1.0 + math.exp(-epsilon))
    v, r = outcome.correct, outcome.guesses
    tail = float(stats.binom.sf(v - 1, r, right))
    if v == 0 or delta == 0.0:
        return min(1.0, tail)
    below = np.cumsum(stats.binom.pmf(np.arange(v - 1, -1, -1), r, right))  # P[v > W >= v - i], i = 1..v
    worst = float((below / np.arange(1, v + 1)).max())
    return min(1.0, tail + 2.0 * outcome.canaries * delta * worst)


def one_run_epsilon(outcome: Guesses, delta: float, confidence: float = CONFIDENCE) -> float:
    """The largest ε that the outcome rejects at this confidence; 0 if it rejects none."""
    error = 1.0 - confidence
    if p_value(outcome, 0.0, delta) >= error:
        return 0.0
    low, high = 0.0, _LARGEST_EPSILON
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if p_value(outcome, middle, delta) < error else (low, middle)
    return low


def guess(scores: NDArray[np.floating], members: NDArray[np.bool_], guesses: int) -> Guesses:
    """Guesses "in" for the ``guesses``/2 highest scores and "out" for the ``guesses``/2 lowest.

    The number of guesses must be fixed before the scores are seen.
    Raises PrivacyError for an odd number of guesses, or more guesses than canaries.
    """
    canaries = len(scores)
    if guesses % 2 or not 2 <= guesses <= canaries:
        raise expected("guesses", guesses, f"an even number from 2 to the {canaries} canaries", PrivacyError)
    order = np.argsort(scores, kind="stable")
    half = guesses // 2
    correct = int(members[order[-half:]].sum()) + int((~members[order[:half]]).sum())
    return Guesses(canaries, guesses, correct)


def _check(outcome: Guesses, delta: float) -> None:
    if not 0 <= outcome.correct <= outcome.guesses <= outcome.canaries:
        raise expected(
            "right guesses", outcome, "at most the guesses, and these at most the canaries", PrivacyError
        )
    if not 0 <= delta < 1:
        raise expected("delta", delta, "from 0 to below 1", PrivacyError)
