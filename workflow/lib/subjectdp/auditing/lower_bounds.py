"""Lower bounds on ε from an attack's successes, with a stated confidence. A poor attack gives a small, valid bound.

Direction and threshold are chosen by looking at runs, so one half of them chooses and the other half is judged.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from subjectdp.accounting.events import MixtureSteps
from subjectdp.errors import PrivacyError, expected

Scores = NDArray[np.floating]  # one score for each independent run
Counts = int | NDArray[np.int64] | NDArray[np.float64]

CONFIDENCE = 0.95
_THRESHOLDS = 4000  # candidates at most, taken from the runs without the subject


@dataclass(frozen=True)
class LowerBound:
    """A lower bound on ε and the attack behind it.

    With ``direction`` "present" the attack guesses on a high score that the subject takes part; with "absent" on a low
    score that it does not. The rates are those of the judged half.
    """

    epsilon: float
    direction: str
    threshold: float
    true_positive_rate: float
    false_positive_rate: float
    runs: int  # of each world, both halves

    @property
    def rates(self) -> dict[str, float]:
        """Threshold and rates, for a finding's details."""
        return {name: getattr(self, name) for name in ("threshold", "true_positive_rate", "false_positive_rate")}


def clopper_pearson_lower(successes: Counts, trials: int, error: float) -> NDArray[np.float64]:
    """Exact one-sided lower limits of probabilities: each is below its limit with probability at most ``error``."""
    # NaN for 0 successes
    return np.asarray(np.nan_to_num(stats.beta.ppf(error, successes, trials - successes + 1)))


def clopper_pearson_upper(successes: Counts, trials: int, error: float) -> NDArray[np.float64]:
    """Exact one-sided upper limits of probabilities (see :func:`clopper_pearson_lower`)."""
    return 1.0 - clopper_pearson_lower(trials - successes, trials, error)


def counts_epsilon(
    hits: int, positives: int, alarms: int, negatives: int, delta: float, confidence: float = CONFIDENCE
) -> float:
    """The lower bound from the counts of a test that was fixed beforehand: ε ≥ log((TPR − δ)/FPR), at least 0.
    Each rate gets half of the error probability, so that both limits hold together with ``confidence``."""
    return max(0.0, float(log_ratios(hits, positives, alarms, negatives, delta, confidence)))


def log_ratios(
    hits: Counts, positives: int, alarms: Counts, negatives: int, delta: float, confidence: float = CONFIDENCE
) -> NDArray[np.float64]:
    """:func:`counts_epsilon` for each of several tests, negative where a test proves nothing: to compare tests."""
    error = (1.0 - confidence) / 2.0
    low = clopper_pearson_lower(hits, positives, error)
    return np.asarray(np.log(np.maximum(low - delta, 1e-300)) - np.log(clopper_pearson_upper(alarms, negatives, error)))


def split_bound(present: Scores, absent: Scores, delta: float, confidence: float = CONFIDENCE) -> LowerBound:
    """The lower bound from runs with and without the subject: even ones choose direction and threshold, odd ones judge.
    Raises PrivacyError for fewer than 4 runs with or without the subject, or a score that is not finite."""
    for name, scores in (("present", present), ("absent", absent)):
        if len(scores) < 4 or not np.isfinite(scores).all():
            raise expected(f"scores of runs with the subject {name}", len(scores), "4 finite ones", PrivacyError)

    def oriented(half: int, direction: str) -> tuple[Scores, Scores]:
        """Scores where a high value is a right guess, and those where it is a false alarm; negated for "absent"."""
        there, gone = present[half::2], absent[half::2]
        return (there, gone) if direction == "present" else (-gone, -there)

    (_, threshold, direction) = max(
        (*_best_threshold(*oriented(0, direction), delta, confidence), direction) for direction in ("absent", "present")
    )
    positives, negatives = oriented(1, direction)
    hits, alarms = int((positives >= threshold).sum()), int((negatives >= threshold).sum())
    return LowerBound(
        counts_epsilon(hits, len(positives), alarms, len(negatives), delta, confidence),
        direction,
        threshold if direction == "present" else -threshold,
        hits / len(positives),
        alarms / len(negatives),
        min(len(present), len(absent)),
    )


def _best_threshold(positives: Scores, negatives: Scores, delta: float, confidence: float) -> tuple[float, float]:
    """(bound, threshold) of the threshold with the largest bound on these runs."""
    ordered, right = np.sort(negatives), np.sort(positives)
    runs = len(ordered)  # numbers of false alarms to try: all small ones, then a geometric sequence
    ladder = np.geomspace(1, runs, min(runs, _THRESHOLDS)).astype(np.int64)
    counts = np.unique(np.concatenate([np.arange(1, min(runs, 200) + 1), ladder]))
    # also one without false alarms: the lowest right guess if all of them lie above, else just above the alarms
    top = max(float(np.nextafter(np.float32(ordered[-1]), np.float32(np.inf))), float(right[0]))
    thresholds = np.append(ordered[len(ordered) - counts[counts > 0]], top)
    alarms = len(ordered) - np.searchsorted(ordered, thresholds, side="left")
    hits = len(right) - np.searchsorted(right, thresholds, side="left")
    bounds = log_ratios(hits, len(right), alarms, len(ordered), delta, confidence)
    best = int(np.argmax(bounds))
    return float(bounds[best]), float(thresholds[best])


@dataclass(frozen=True)
class Guesses:
    """Outcome of an attack on m canaries: number of guesses and of right guesses."""

    canaries: int
    guesses: int
    correct: int


def p_value(outcome: Guesses, epsilon: float, delta: float) -> float:
    """The probability bound of at least so many right guesses under (ε, δ)-differential privacy.
    With W ~ Binomial(r, e^ε/(1 + e^ε)): P[W ≥ v] + 2 m δ · max_{i ≥ 1} P[v > W ≥ v − i]/i, at most 1."""
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
    low, high = 0.0, 60.0
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if p_value(outcome, middle, delta) < error else (low, middle)
    return low


def guess(scores: NDArray[np.floating], members: NDArray[np.bool_], guesses: int) -> Guesses:
    """Guesses "in" for the highest scores and "out" for the lowest, ``guesses`` in all, fixed before they are seen.
    Raises PrivacyError for an odd number of guesses, or more guesses than canaries."""
    canaries = len(scores)
    if guesses % 2 or not 2 <= guesses <= canaries:
        raise expected("guesses", guesses, f"an even number from 2 to the {canaries} canaries", PrivacyError)
    order = np.argsort(scores, kind="stable")
    half = guesses // 2
    correct = int(members[order[-half:]].sum()) + int((~members[order[:half]]).sum())
    return Guesses(canaries, guesses, correct)


_PLACES = 4001
_RARE = 1e-30  # counts that are less likely are left out, which lowers the bound


def least_epsilon(loss: MixtureSteps, delta: float) -> float:
    """ε at least, if only the sum of the steps is seen; PrivacyError for a step with more than one shift above 0."""
    *others, shift = loss.shift.sensitivities
    probability = loss.shift.probabilities[-1]
    if any(others):
        raise expected("shifts of a step", loss.shift.sensitivities, "0 and one other", PrivacyError)
    drawn = np.arange(loss.steps + 1)
    chance = stats.binom.pmf(drawn, loss.steps, probability)
    drawn, chance = drawn[chance > _RARE], chance[chance > _RARE]
    std = loss.noise_multiplier * math.sqrt(loss.steps)
    thresholds = np.linspace(-10 * std, shift * drawn[-1] + 10 * std, _PLACES)
    above = np.array([chance @ special.ndtr((shift * drawn - t) / std) for t in thresholds])
    below = np.array([chance @ special.ndtr((t - shift * drawn) / std) for t in thresholds])
    with np.errstate(invalid="ignore", divide="ignore"):
        present = np.log(above - delta) - stats.norm.logsf(thresholds / std)
        absent = np.log(stats.norm.cdf(thresholds / std) - delta) - np.log(below)
    bounds = np.concatenate([present, absent])
    return float(max(0.0, bounds[np.isfinite(bounds)].max()))
