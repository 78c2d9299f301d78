"""All audits of a size, as one tidy table and a summary. The same seed gives the same table."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.algorithms.registry import algorithm, mechanism
from subjectdp.auditing import cases
from subjectdp.auditing.cases import Case, Size
from subjectdp.auditing.lower_bounds import CONFIDENCE, LowerBound, counts_epsilon, one_run_epsilon, split_bound
from subjectdp.auditing.training_audit import Canaries, TrainingSetup, audit_training, plan_with_canaries
from subjectdp.auditing.vector import (
    MinibatchDistribution,
    VectorBatch,
    World,
    canary_items,
    claimed_unit,
    likelihood_ratios,
    world_scores,
)
from subjectdp.io.atomic import write_frame, write_json
from subjectdp.io.printing import strict
from subjectdp.noise.gaussian import keyed_generator
from subjectdp.noise.keys import Purpose, key_bytes, numpy_generator
from subjectdp.plan.plan import Mechanism, PrivacyPlan, PrivacyUnit

log = logging.getLogger(__name__)

COLUMNS = (
    *("audit", "algorithm", "variant", "mode", "setting", "claimed_epsilon", "true_epsilon", "lower_bound"),
    *("runs", "direction", "confidence", "verdict", "synthetic"),
)
"""Columns of the table of findings."""


@dataclass(frozen=True)
class Finding:
    """One row of the table; ``details`` appear in the summary only."""

    audit: str  # monte_carlo, one_run_subjects, one_run_items, noise_level_leak or divisor_leak
    mechanism: Mechanism
    setting: str
    claimed_epsilon: float
    true_epsilon: float  # as if σ and divisor were constants; NaN where the attack is on them
    lower_bound: float
    runs: int  # of each world; canaries of a one-run audit
    direction: str
    details: dict[str, Any]
    synthetic: bool = False  # whether the data are generated
    confidence: float = CONFIDENCE  # of the bound by itself

    @property
    def verdict(self) -> str:
        """ "refuted" if the bound lies above the claim, else "not refuted"."""
        return "refuted" if self.lower_bound > self.claimed_epsilon else "not refuted"

    @property
    def name(self) -> str:
        """Audit, algorithm, mode and setting in one line."""
        declared = self.mechanism
        variant = "" if declared.variant is None else f":{declared.variant}"
        return f"{self.audit} {declared.algorithm}{variant} {declared.mode.value}, {self.setting}"

    @property
    def line(self) -> str:
        return (
            f"{self.name}: claimed {self.claimed_epsilon:g}, true {self.true_epsilon:.2f}, "
            f"lower bound {self.lower_bound:.2f}, {self.verdict}"
        )

    def row(self) -> dict[str, Any]:
        """The values of :data:`COLUMNS`."""
        declared = self.mechanism
        named = {"algorithm": declared.algorithm, "variant": declared.variant, "mode": declared.mode.value}
        values = {**vars(self), **named, "verdict": self.verdict}
        return {name: values[name] for name in COLUMNS}


@dataclass(frozen=True)
class TrainingSize:
    """A one-run audit: numbers of canaries m and of guesses, fixed beforehand; rounds and steps of the training."""

    canaries: int
    guesses: int
    rounds: int
    steps: int
    sampling_probability: float


TRAINING_SIZES: dict[Size, TrainingSize] = {
    "small": TrainingSize(2000, 400, 40, 25, 0.008),
    "full": TrainingSize(1500, 450, 40, 10, 0.02),
}
_LEAK_RUNS: dict[Size, int] = {"small": 1000, "full": 2000}
_LEAK_STEPS: dict[Size, int] = {"small": 400, "full": 1250}
_DIVISOR_SIZES = (10_000, 100_000, 1_000_000, 6_603_710)  # the last: LEAF's FEMNIST network
_SUBJECTS_IN_BATCH = 475
_TRAININGS = (
    ("higrad_avg_dp", "v1", cases.PUBLISHED, PrivacyUnit.SUBJECT),
    ("higrad_avg_dp", "v1", cases.PUBLISHED, PrivacyUnit.ITEM),
    ("local_group_dp", None, cases.PUBLISHED, PrivacyUnit.SUBJECT),
    ("higrad_avg_dp", "v3", cases.SOUND, PrivacyUnit.SUBJECT),
    ("local_group_dp", None, cases.SOUND, PrivacyUnit.SUBJECT),
)


def write_suite(size: Size, seed: int, setup: TrainingSetup, targets: Sequence[Path | str]) -> list[Finding]:
    """Runs every audit of a size, the one-run ones on ``setup``; writes parquet, CSV and JSON to ``targets``."""
    findings = []
    for finding in _findings(size, seed, setup):
        log.info(finding.line)
        findings.append(finding)
    frame = pd.DataFrame([finding.row() for finding in findings], columns=list(COLUMNS))
    parquet, csv, json = targets
    write_frame(parquet, frame)
    write_frame(csv, frame)
    summary: dict[str, Any] = {"size": size, "seed": seed, "confidence": CONFIDENCE, "delta": cases.DELTA}
    for verdict in ("refuted", "not refuted"):
        summary[verdict.replace(" ", "_")] = [each.name for each in findings if each.verdict == verdict]
    summary["findings"] = strict([{**finding.row(), **finding.details} for finding in findings])
    write_json(json, summary)
    return findings


def audit_case(case: Case, seed: int) -> Finding:
    """The mechanism-level Monte Carlo audit of one plan."""
    plan = case.plan()
    true = unit_epsilon(plan, claimed_unit(plan), every_silo=True, accountant="pld")
    audited = algorithm(case.algorithm, case.variant)
    scores = likelihood_ratios(plan, models=case.sees_models)
    worlds = [World(seed, case.name, present, case.runs) for present in (True, False)]
    present, absent = (world_scores(audited, plan, scores, world, case.sees_models) for world in worlds)
    bound = split_bound(present, absent, plan.settings.delta, case.confidence)
    details = {
        "seen": "the silos' models of each round" if case.sees_models else "every noisy step or sum",
        "noise_multiplier": plan.silos[0].noise_multiplier,
        "rounds_executed": plan.rounds,
        "steps_per_round": plan.silos[0].steps_per_round,
        **bound.rates,
    }
    return Finding(
        audit="monte_carlo",
        mechanism=plan.mechanism,
        setting=case.setting,
        claimed_epsilon=cases.EPSILON if case.unit is None else true,
        true_epsilon=true,
        lower_bound=bound.epsilon,
        runs=case.runs,
        direction=bound.direction,
        details=details,
        confidence=case.confidence,
    )


def audit_one_run(
    declared: Mechanism, unit: PrivacyUnit, setup: TrainingSetup, size: TrainingSize, seed: int
) -> Finding:
    """One training with canaries of a unit: subjects at every silo, or single items at the first."""
    subjects = unit is PrivacyUnit.SUBJECT
    silos = tuple(range(setup.partition.silos)) if subjects else (0,)
    label = f"{declared.algorithm}:{declared.variant}:{declared.mode.value}:{unit.value}"
    canaries = Canaries(size.canaries, cases.CAP if subjects else 1, silos, seed, label)
    places = min(canaries.planned_facts(setup.facts).items)
    batch = max(1, round(size.sampling_probability * places))
    settings = cases.plan_settings(declared.mode, size.rounds, size.steps, batch)
    result = audit_training(declared, setup, canaries, settings, size.guesses)
    planned = plan_with_canaries(declared, setup, canaries, settings)
    outcome = result.outcome
    return Finding(
        audit="one_run_subjects" if subjects else "one_run_items",
        mechanism=declared,
        setting=f"{len(silos)} silo{'s' * (len(silos) > 1)}, {result.plan.rounds} rounds of {size.steps} steps",
        claimed_epsilon=settings.epsilon,
        true_epsilon=unit_epsilon(planned, unit, every_silo=subjects, accountant="pld"),
        lower_bound=one_run_epsilon(outcome, settings.delta),
        runs=size.canaries,
        direction="both",
        details={"guesses": outcome.guesses, "correct": outcome.correct, "test_accuracy": result.accuracy},
        synthetic=setup.synthetic,
    )


def _leaks(size: Size, seed: int) -> Iterator[Finding]:
    """LocalGroupDP's σ_Z where all others have one item, and v3's realised divisor in one step."""

    def leak(audit: str, declared: Mechanism, setting: str, bound: LowerBound, **more: float) -> Finding:
        claimed, true, details = cases.EPSILON, math.nan, {**more, **bound.rates}
        return Finding(audit, declared, setting, claimed, true, bound.epsilon, bound.runs, bound.direction, details)

    parameters, steps = 1000, _LEAK_STEPS[size]
    declared = mechanism("local_group_dp", None, cases.PUBLISHED)
    facts = cases.federation(1, 1, cases.ITEMS - cases.CAP + 1)
    plan = make_plan(declared, facts, cases.plan_settings(cases.PUBLISHED, 100, None))
    bound = noise_level_leak(plan, parameters, steps, _LEAK_RUNS[size], seed)
    yield leak("noise_level_leak", declared, f"{parameters} parameters, {steps} steps, all others one item", bound)
    declared, others = mechanism("higrad_avg_dp", "v3", cases.PUBLISHED), _SUBJECTS_IN_BATCH
    for parameters in _DIVISOR_SIZES:
        bound = divisor_leak(others, parameters, 100_000, cases.DELTA, seed)
        setting = f"{parameters:,} parameters, 1 step, {others} other subjects"
        yield leak("divisor_leak", declared, setting, bound, separation=divisor_separation(others, parameters))


def _findings(size: Size, seed: int, setup: TrainingSetup) -> Iterator[Finding]:
    for case in cases.MONTE_CARLO[size]:
        yield audit_case(case, seed)
    for name, variant, mode, unit in _TRAININGS:
        yield audit_one_run(mechanism(name, variant, mode), unit, setup, TRAINING_SIZES[size], seed)
    yield from _leaks(size, seed)


def noise_level_leak(plan: PrivacyPlan, parameters: int, steps: int, runs: int, seed: int) -> LowerBound:
    """Presence of one subject with k items, inferred from LocalGroupDP's noise; all others have one item each.

    Only with the subject some step has Z ≥ 2 and more noise. The test, fixed beforehand, says "present" if the squared
    norm of any of the first ``steps`` steps lies above the geometric mean of those expected under σ_1 and σ_2.
    """
    sigmas = np.array([plan.noise_multiplier(0, z) for z in range(plan.silos[0].max_items_per_subject + 1)])
    threshold = float(sigmas[1] * sigmas[2]) * parameters

    def says_present(present: bool) -> NDArray[np.bool_]:
        batches = MinibatchDistribution(plan.silos[0], plan.settings.sampling, canary_items(plan), present)
        sampler = keyed_generator(key_bytes(seed, Purpose.AUDIT, "group", int(present)))
        norms = numpy_generator(seed, Purpose.AUDIT, "group norms", int(present))
        above = np.zeros(runs, dtype=bool)
        for _ in range(steps):
            groups = VectorBatch(batches, runs, sampler).largest_group.clamp(min=1).numpy()
            above |= sigmas[groups] ** 2 * norms.chisquare(parameters, size=runs) > threshold
        return above

    return _fixed_test(says_present, threshold, plan.settings.delta)


def divisor_leak(subjects: int, parameters: int, runs: int, delta: float, seed: int) -> LowerBound:
    """Presence of one subject, inferred from a step that is divided by the realised number of subjects (v3).

    The noise shrinks where the divisor is ``subjects`` + 1. The test, fixed beforehand, says "present" if the squared
    norm lies below its mean without the subject by at least 4 standard deviations and at least half of the gap.
    """
    low, high = float(subjects + 1) ** -2 * parameters, float(subjects) ** -2 * parameters
    deviation = high * math.sqrt(2.0 / parameters)
    threshold = high - max(4.0 * deviation, (high - low) / 2.0)

    def says_present(present: bool) -> NDArray[np.bool_]:
        generator = numpy_generator(seed, Purpose.AUDIT, "divisor", subjects, parameters, int(present))
        scale = float(subjects + int(present)) ** -2
        return np.asarray(scale * generator.chisquare(parameters, size=runs) <= threshold)

    return _fixed_test(says_present, threshold, delta)


def divisor_separation(subjects: int, parameters: int) -> float:
    """The gap between the mean squared norms with ``subjects`` and one more, in standard deviations."""
    low, high = float(subjects + 1) ** -2, float(subjects) ** -2
    return (high - low) / (high * math.sqrt(2.0 / parameters))


def _fixed_test(says_present: Callable[[bool], NDArray[np.bool_]], threshold: float, delta: float) -> LowerBound:
    present, absent = says_present(True), says_present(False)
    hits, alarms, runs = int(present.sum()), int(absent.sum()), len(present)
    epsilon = counts_epsilon(hits, runs, alarms, runs, delta)
    return LowerBound(epsilon, "present", threshold, hits / runs, alarms / runs, runs)
