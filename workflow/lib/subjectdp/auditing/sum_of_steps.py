"""A lower bound on ε in closed form: the sum of all noisy steps, which is what a final model tells.

A step moves the sum by s with probability q, so that N steps move it by s times a binomial number, under noise of √N
times σ. Thresholds on the sum are the best tests of it. No code of an algorithm is run.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from subjectdp.accounting.events import MixtureSteps
from subjectdp.errors import PrivacyError, expected

_THRESHOLDS = 4001
_RARE = 1e-30  # counts that are less likely are left out, which lowers the bound


def least_epsilon(loss: MixtureSteps, delta: float) -> float:
    """ε is at least this if all that is seen of ``loss`` is the sum of its steps.

    Raises PrivacyError for a step with more than one shift above 0.
    """
    *others, shift = loss.shift.sensitivities
    probability = loss.shift.probabilities[-1]
    if any(others):
        raise expected("shifts of a step", loss.shift.sensitivities, "0 and one other", PrivacyError)
    drawn = np.arange(loss.steps + 1)
    chance = stats.binom.pmf(drawn, loss.steps, probability)
    drawn, chance = drawn[chance > _RARE], chance[chance > _RARE]
    std = loss.noise_multiplier * math.sqrt(loss.steps)
    thresholds = np.linspace(-10 * std, shift * drawn[-1] + 10 * std, _THRESHOLDS)
    above = np.array([chance @ stats.norm.sf((t - shift * drawn) / std) for t in thresholds])
    below = np.array([chance @ stats.norm.cdf((t - shift * drawn) / std) for t in thresholds])
    with np.errstate(invalid="ignore", divide="ignore"):
        present = np.log(above - delta) - stats.norm.logsf(thresholds / std)
        absent = np.log(stats.norm.cdf(thresholds / std) - delta) - np.log(below)
    found = np.concatenate([present, absent])
    return float(max(0.0, found[np.isfinite(found)].max()))
