"""Rounds, clip norm and rate of SubjectRelease from public numbers alone (docs/own-algorithms.md, "Without tuning").

For plain SGD on a linear head that starts from public data, with features of mean square norm about 1. The constants
were chosen on generated writers (``benchmarks/untuned_rule.py`` of commit d061a81): they cost nobody any privacy.
"""

import math
from dataclasses import dataclass

from subjectdp.accounting.gaussian import gdp_mu
from subjectdp.errors import expected

CLIP_NORM = 0.05  # far below the gradients': every part is clipped, and only directions count
_LEAST_ROUNDS = 40
_LONGEST = 20.0  # N μ κ for each round: longer steps would oscillate
_NOISE = 4.0  # κ over its unit √(N μ/p)


@dataclass(frozen=True)
class UntunedSchedule:
    """What the rule chooses: ``training.rounds``, ``privacy.clip_norm`` and the rate of plain SGD, with
    ``training.averaged_rounds: 0.5`` and all of a silo's data in one step a round."""

    rounds: int
    clip_norm: float
    learning_rate: float
    weight_noise: float  # κ: standard deviation of the noise of all rounds on one weight


def untuned_schedule(
    subjects: int,
    weights: int,
    epsilon: float,
    delta: float = 1e-5,
    silos: int = 1,
    silos_per_subject: int | None = None,
) -> UntunedSchedule:
    """The rule's schedule for everybody in every round.

    Args:
        subjects: N, those who are there, or those whose noise is predicted.
        weights: p, the number of trained weights.
        epsilon, delta: the target of the whole run.
        silos: s, of a federation under local trust; 1 under secure aggregation or a trusted server.
        silos_per_subject: m, most silos that may hold one subject (default: all). N subjects at m of s silos have the
            noise of √(m/s) N.

    Raises:
        ConfigError: a number out of range.
    """
    held = silos if silos_per_subject is None else silos_per_subject
    for name, value in (("subjects", subjects), ("weights", weights), ("silos", silos)):
        if value < 1:
            raise expected(name, value, "at least 1")
    if not 1 <= held <= silos:
        raise expected("silos_per_subject", held, f"1 to {silos}, the number of silos")
    if not 0 < epsilon < math.inf:
        raise expected("epsilon", epsilon, "above 0 and finite")
    if not 0 < delta < 1:
        raise expected("delta", delta, "above 0 and below 1")
    signal = max(1, round(subjects * math.sqrt(held / silos))) * gdp_mu(epsilon, delta)
    noise = min(1.0, _NOISE * math.sqrt(signal / weights))
    rounds = max(_LEAST_ROUNDS, int(noise * signal / _LONGEST))
    return UntunedSchedule(rounds, CLIP_NORM, noise * signal / (CLIP_NORM * rounds), noise)
