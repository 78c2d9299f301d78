"""From an attack's successes to a lower bound on ε that holds with a stated confidence.

Any attack gives a valid bound: a poor one only gives a small bound. What was chosen by looking at the runs (direction,
threshold) is therefore chosen on one half of them and judged on the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subjectdp.errors import PrivacyError, expected

Scores = NDArray[np.floating]
"""Scores of independent runs, one each."""

CONFIDENCE = 0.95
_THRESHOLDS = 4000  # candidates at most, taken from the runs without the subject


@dataclass(frozen=True)
class LowerBound:
    """A lower bound on ε and the attack behind it.

    ``direction`` "present" guesses the subject is there on a high score, "absent" that it is not on a low one; the
    rates are those of the judging half, true positives being right guesses of the kind that the direction makes.
    """

    epsilon: float
    direction: str
    threshold: float
    true_positive_rate: float
    false_positive_rate: float
    runs: int  # of each world, both halves


def clopper_pearson_lower(successes: int, trials: int, error: float) -> float:
    """The one-sided exact lower limit of a probability: it is below the limit with probability at most ``error``."""
    from scipy import stats

    _check_counts(successes, trials, error)
    return 0.0 if successes == 0 else float(stats.beta.ppf(error, successes, trials - successes + 1))


def clopper_pearson_upper(successes: int, trials: int, error: float) -> float:
    """The one-sided exact upper limit of a probability (see :func:`clopper_pearson_lower`)."""
    from scipy import stats

    _check_counts(successes, trials, error)
    return 1.0 if successes == trials else float(stats.beta.ppf(1 - error, successes + 1, trials - successes))


def rates_epsilon(true_positive_rate: float, false_positive_rate: float, delta: float) -> float:
    """ε that a test of these rates needs: TPR ≤ e^ε FPR + δ, so ε ≥ log((TPR − δ)/FPR); at least 0."""
    if true_positive_rate <= delta:
        return 0.0
    if false_positive_rate <= 0.0:
        return math.inf
    return max(0.0, math.log((true_positive_rate - delta) / false_positive_rate))


def counts_epsilon(
    hits: int, positives: int, alarms: int, negatives: int, delta: float, confidence: float = CONFIDENCE
) -> float:
    """The lower bound from counts of a test that was fixed beforehand.

    ``hits`` of ``positives`` right guesses and ``alarms`` of ``negatives`` false ones; each rate gets half of the
    error probability, so that both limits hold together with ``confidence``.
    """
    error = (1.0 - confidence) / 2.0
    hit_rate = clopper_pearson_lower(hits, positives, error)
    return rates_epsilon(hit_rate, clopper_pearson_upper(alarms, negatives, error), delta)


def split_bound(present: Scores, absent: Scores, delta: float, confidence: float = CONFIDENCE) -> LowerBound:
    """The lower bound from scores of runs with and without the subject.

    Even runs choose direction and threshold, odd runs judge them.
    Raises PrivacyError with fewer than 4 runs of a kind or a score that is not a number.
    """
    for name, scores in (("present", present), ("absent", absent)):
        if len(scores) < 4 or not np.isfinite(scores).all():
            raise expected(
                f"scores of runs with the subject {name}", len(scores), "4 finite ones", PrivacyError
            )
    choosing = (present[0::2], absent[0::2])
    judging = (present[1::2], absent[1::2])
    (_, threshold, direction) = max(
        (*_best_threshold(*_oriented(choosing, direction), delta, confidence), direction)
        for direction in ("absent", "present")
    )
    positives, negatives = _oriented(judging, direction)
    hits, alarms = int((positives >= threshold).sum()), int((negatives >= threshold).sum())
    return LowerBound(
        counts_epsilon(hits, len(positives), alarms, len(negatives), delta, confidence),
        direction,
        threshold if direction == "present" else -threshold,
        hits / len(positives),
        alarms / len(negatives),
        min(len(present), len(absent)),
    )


def gaussian_estimate(present: Scores, absent: Scores, delta: float) -> float:
    """An estimate, not a bound: ε of the Gaussian trade-off whose separation the scores show (Nasr et al. 2023).

    The separation is the largest over thresholds of Φ⁻¹(TPR) − Φ⁻¹(FPR), with both rates at least 1 % away from 0 and
    1, where the runs pin them down.
    """
    from scipy import stats

    from subjectdp.accounting.gaussian import gdp_epsilon

    levels = np.linspace(0.01, 0.99, 99)
    thresholds = np.quantile(absent, 1.0 - levels)
    rates = np.array([(present >= threshold).mean() for threshold in thresholds])
    inside = (rates > 0.01) & (rates < 0.99)
    if not inside.any():
        return math.inf if rates.max() >= 0.99 else 0.0
    gaps = stats.norm.ppf(rates[inside]) - stats.norm.ppf(levels[inside])
    return float(gdp_epsilon(max(0.0, float(gaps.max())), delta))


def _oriented(scores: tuple[Scores, Scores], direction: str) -> tuple[Scores, Scores]:
    """(scores where a high value is right, scores where it is an alarm), turned around for "absent"."""
    present, absent = scores
    return (present, absent) if direction == "present" else (-absent, -present)


def _best_threshold(
    positives: Scores, negatives: Scores, delta: float, confidence: float
) -> tuple[float, float]:
    """(bound, threshold) of the threshold with the largest bound on these runs."""
    from scipy import stats

    ordered, right = np.sort(negatives), np.sort(positives)
    counts = _candidate_counts(len(ordered))
    # one without false alarms as well: the lowest right guess if all of them lie above, else just above the alarms
    top = max(float(np.nextafter(np.float32(ordered[-1]), np.float32(np.inf))), float(right[0]))
    thresholds = np.append(ordered[len(ordered) - counts[counts > 0]], top)
    alarms = len(ordered) - np.searchsorted(ordered, thresholds, side="left")
    hits = len(right) - np.searchsorted(right, thresholds, side="left")
    error = (1.0 - confidence) / 2.0
    low = np.nan_to_num(stats.beta.ppf(error, hits, len(right) - hits + 1))
    high = np.where(
        alarms == len(ordered),
        1.0,
        stats.beta.ppf(1 - error, alarms + 1, np.maximum(1, len(ordered) - alarms)),
    )
    bounds = np.log(np.maximum(low - delta, 1e-300)) - np.log(high)
    best = int(np.argmax(bounds))
    return float(bounds[best]), float(thresholds[best])


def _candidate_counts(runs: int) -> NDArray[np.int64]:
    """Numbers of alarms to try: all small ones, then on a geometric ladder."""
    ladder = np.geomspace(1, runs, min(runs, _THRESHOLDS))
    return np.unique(np.concatenate([np.arange(1, min(runs, 200) + 1), ladder.astype(np.int64)]))


def _check_counts(successes: int, trials: int, error: float) -> None:
    if not (trials >= 1 and 0 <= successes <= trials):
        raise expected("successes", successes, f"between 0 and the {trials} trials", PrivacyError)
    if not 0 < error < 1:
        raise expected("error probability", error, "between 0 and 1", PrivacyError)
