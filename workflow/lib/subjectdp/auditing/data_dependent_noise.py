"""Attacks on data-dependent noise: an observer of a noisy step infers the noise level from the step itself.

A gradient of d parameters reveals its noise level to a relative precision of 1/√(2d), if all but the noise is known.
The squared norm of the noise is σ²C² times a χ² variable with d degrees of freedom. That variable is drawn directly,
without the vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subjectdp.auditing.audited_unit import canary_items
from subjectdp.auditing.lower_bounds import CONFIDENCE, LowerBound, counts_epsilon
from subjectdp.auditing.minibatch_distribution import MinibatchDistribution
from subjectdp.errors import PrivacyError, expected
from subjectdp.noise.keys import Purpose, key_bytes, numpy_generator
from subjectdp.noise.torch_keys import keyed_generator
from subjectdp.plan.plan import NoiseRule, PrivacyPlan


def noise_level_leak(
    plan: PrivacyPlan, parameters: int, steps: int, runs: int, seed: int, confidence: float = CONFIDENCE
) -> LowerBound:
    """Presence of one subject with k items, inferred from LocalGroupDP's noise; all others have one item each.

    Without the subject every mini-batch has Z ≤ 1; with it some step has Z ≥ 2 and more noise. The test is fixed
    beforehand: it says "present" if the squared norm of any of the first ``steps`` steps lies above the geometric mean
    of the squared norms expected under σ_1 and σ_2.

    Raises PrivacyError for a plan whose noise does not depend on the group size.
    """
    if plan.mechanism.noise_rule is not NoiseRule.GROUP_SIZE_IN_BATCH:
        raise expected("noise rule", plan.mechanism.noise_rule.value, "group_size_in_batch", PrivacyError)
    table = np.array([plan.noise_multiplier(0, z) for z in range(plan.silos[0].max_items_per_subject + 1)])
    test = _NoiseLevelTest(plan, table, parameters, steps)
    present, absent = (test.says_present(runs, seed, world) for world in (True, False))
    return _fixed_test(present, absent, test.threshold, plan.settings.delta, confidence)


def divisor_leak(
    subjects: int, parameters: int, runs: int, delta: float, seed: int, confidence: float = CONFIDENCE
) -> LowerBound:
    """Presence of one subject, inferred from a step that is divided by the realised number of subjects (v3).

    Given who else is in the mini-batch, the divisor is ``subjects`` without the subject and ``subjects`` + 1 with it;
    the noise shrinks by that ratio. The test is fixed beforehand: it says "present" if the squared norm lies below
    its mean without the subject by at least 4 standard deviations and at least half of the gap.
    """
    low, high = float(subjects + 1) ** -2 * parameters, float(subjects) ** -2 * parameters
    deviation = high * math.sqrt(2.0 / parameters)
    threshold = high - max(4.0 * deviation, (high - low) / 2.0)
    norms = []
    for present in (True, False):
        generator = numpy_generator(seed, Purpose.AUDIT, "divisor", subjects, parameters, int(present))
        scale = float(subjects + int(present)) ** -2
        norms.append(scale * generator.chisquare(parameters, size=runs))
    present_flags, absent_flags = norms[0] <= threshold, norms[1] <= threshold
    return _fixed_test(present_flags, absent_flags, threshold, delta, confidence)


def divisor_separation(subjects: int, parameters: int) -> float:
    """The gap between the mean squared norms with ``subjects`` and one more, in standard deviations."""
    low, high = float(subjects + 1) ** -2, float(subjects) ** -2
    return (high - low) / (high * math.sqrt(2.0 / parameters))


@dataclass(frozen=True)
class _NoiseLevelTest:
    """The test of :func:`noise_level_leak`; ``table`` holds σ_z for z = 0, 1, ..."""

    plan: PrivacyPlan
    table: NDArray[np.float64]
    parameters: int
    steps: int

    @property
    def threshold(self) -> float:
        return float(self.table[1] * self.table[2]) * self.parameters

    def says_present(self, runs: int, seed: int, present: bool) -> NDArray[np.bool_]:
        """(runs,) whether some step's squared noise norm lies above the threshold."""
        plan = self.plan
        batches = MinibatchDistribution(plan.silos[0], plan.settings.sampling, canary_items(plan), present)
        sampler = keyed_generator(key_bytes(seed, Purpose.AUDIT, "group", int(present)))
        norms = numpy_generator(seed, Purpose.AUDIT, "group norms", int(present))
        above = np.zeros(runs, dtype=bool)
        for _ in range(self.steps):
            canary = batches.canary_count(runs, sampler).numpy().astype(np.int64)
            groups = np.maximum(np.maximum(batches.largest_other_group(runs, sampler).numpy(), canary), 1)
            above |= self.table[groups] ** 2 * norms.chisquare(self.parameters, size=runs) > self.threshold
        return above


def _fixed_test(
    present: NDArray[np.bool_], absent: NDArray[np.bool_], threshold: float, delta: float, confidence: float
) -> LowerBound:
    hits, alarms, runs = int(present.sum()), int(absent.sum()), len(present)
    epsilon = counts_epsilon(hits, runs, alarms, runs, delta, confidence)
    return LowerBound(epsilon, "present", threshold, hits / runs, alarms / runs, runs)
