"""Rounds, clip norm and rate of SubjectRelease from public numbers alone (docs/own-algorithms.md, "Without tuning").

For plain SGD on a linear head that starts from public data, with features of mean square norm about 1. The constants
were chosen on generated writers (``benchmarks/untuned_rule.py``), so that they cost nobody any privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from subjectdp.accounting.gaussian import gdp_mu

CLIP_NORM = 0.05  # far below the gradients': every part is clipped, and only directions count
_LEAST_ROUNDS = 40
_LONGEST = 20.0  # N μ κ for each round: longer steps would oscillate
_NOISE = 4.0  # κ over its unit √(N μ/p)


@dataclass(frozen=True)
class UntunedSchedule:
    """What the rule chooses."""

    rounds: int
    clip_norm: float
    learning_rate: float
    weight_noise: float  # κ: standard deviation of the noise of all rounds on one weight


def subjects_by_noise(subjects: int, silos: int, most_silos: int) -> int:
    """√(m/s) N: as many subjects at all of s silos have the noise that N at m of them have under local trust.

    Args:
        subjects: N.
        silos: s, of the federation.
        most_silos: m, that may hold one subject, 1 to s. Secure aggregation has the noise of m = s.
    """
    return max(1, round(subjects * math.sqrt(most_silos / silos)))


def untuned_schedule(subjects: int, weights: int, epsilon: float, delta: float) -> UntunedSchedule:
    """The rule's schedule for everybody in every round.

    Args:
        subjects: N ≥ 1, those who are there, or those whose noise is predicted.
        weights: p ≥ 1, the number of trained weights.
        epsilon, delta: the target of the whole run.
    """
    signal = subjects * gdp_mu(epsilon, delta)
    noise = min(1.0, _NOISE * math.sqrt(signal / weights))
    rounds = max(_LEAST_ROUNDS, int(noise * signal / _LONGEST))
    return UntunedSchedule(rounds, CLIP_NORM, noise * signal / (CLIP_NORM * rounds), noise)
