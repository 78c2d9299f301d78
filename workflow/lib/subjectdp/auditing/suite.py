"""All audits of a size, as one tidy table and a summary: the same seed gives the same table."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.algorithms.registry import mechanism
from subjectdp.auditing import cases
from subjectdp.auditing.audited_unit import claimed_unit
from subjectdp.auditing.canaries import Canaries
from subjectdp.auditing.cases import Case, Size
from subjectdp.auditing.data_dependent_noise import divisor_leak, divisor_separation, noise_level_leak
from subjectdp.auditing.findings import Finding, write_findings
from subjectdp.auditing.lower_bounds import CONFIDENCE, LowerBound, gaussian_estimate
from subjectdp.auditing.monte_carlo import audit_plan
from subjectdp.auditing.one_run import one_run_epsilon
from subjectdp.auditing.training_audit import audit_training, plan_with_canaries
from subjectdp.auditing.training_setup import TrainingSetup
from subjectdp.plan.plan import AccountingMode, Horizontal, PrivacyUnit

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingSize:
    """A one-run audit: canaries m and the guesses made, fixed beforehand; steps of the audited training."""

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


def run_suite(
    size: Size,
    seed: int,
    setup: TrainingSetup | None = None,
    cache_dir: Path | str | None = None,
    report: Callable[[str], None] = log.info,
) -> list[Finding]:
    """Every audit of a size; the one-run audits need a ``setup`` to train on and are left out without one."""
    findings = []
    for finding in _findings(size, seed, setup, cache_dir):
        findings.append(finding)
        report(finding.line)
    return findings


def write_suite(
    size: Size, seed: int, setup: TrainingSetup, cache_dir: Path | str | None, targets: Sequence[Path | str]
) -> list[Finding]:
    """Runs the suite and writes it to ``targets``: parquet, CSV and JSON."""
    findings = run_suite(size, seed, setup, cache_dir)
    parquet, csv, json = targets
    facts = {"size": size, "seed": seed, "confidence": CONFIDENCE, "delta": cases.DELTA}
    write_findings(findings, facts, parquet, csv, json)
    return findings


def audit_case(case: Case, seed: int, cache_dir: Path | str | None = None) -> Finding:
    """The mechanism-level Monte Carlo audit of one plan."""
    plan = case.plan(cache_dir)
    true = unit_epsilon(plan, claimed_unit(plan), every_silo=True)
    bound, present, absent = audit_plan(plan, case.name, case.runs, seed)
    details = {
        "noise_multiplier": plan.silos[0].noise_multiplier,
        "rounds_executed": plan.rounds,
        "steps_per_round": plan.silos[0].steps_per_round,
        "gaussian_estimate": gaussian_estimate(present, absent, plan.settings.delta),
        **_rates(bound),
    }
    claimed = cases.EPSILON if case.unit is None else true
    claim = case.algorithm, case.variant, case.mode.value, case.setting, claimed
    return Finding("monte_carlo", *claim, true, bound.epsilon, case.runs, bound.direction, details)


def audit_one_run(
    audited: tuple[str, str | None, AccountingMode],
    unit: PrivacyUnit,
    setup: TrainingSetup,
    size: TrainingSize,
    seed: int,
    cache_dir: Path | str | None = None,
) -> Finding:
    """One training of the setup with canaries of a unit: subjects at every silo, or single items at the first."""
    name, variant, mode = audited
    subjects = unit is PrivacyUnit.SUBJECT
    silos = tuple(range(setup.partition.silos)) if subjects else (0,)
    label = f"{name}:{variant}:{mode.value}:{unit.value}"
    canaries = Canaries(size.canaries, cases.CAP if subjects else 1, silos, seed, label)
    places = min(canaries.planned_facts(setup.facts).items)
    horizontal = Horizontal.SOUND if mode is AccountingMode.SOUND else Horizontal.ROUNDS_OVER_SQRT_S
    batch = max(1, round(size.sampling_probability * places))
    settings = cases.plan_settings(mode, horizontal, size.rounds, size.steps, cache_dir, batch)
    declared = mechanism(name, variant, mode)
    result = audit_training(declared, setup, canaries, settings, size.guesses)
    true = unit_epsilon(plan_with_canaries(declared, setup, canaries, settings), unit, every_silo=subjects)
    outcome = result.outcome
    setting = f"{len(silos)} silo{'s' * (len(silos) > 1)}, {result.plan.rounds} rounds of {size.steps} steps"
    details = {"guesses": outcome.guesses, "correct": outcome.correct, "test_accuracy": result.accuracy}
    bound = one_run_epsilon(outcome, settings.delta)
    kind = "one_run_subjects" if subjects else "one_run_items"
    claim = name, variant, mode.value, setting, settings.epsilon
    return Finding(kind, *claim, true, bound, size.canaries, "both", details, setup.synthetic)


def audit_noise_level(size: Size, seed: int, cache_dir: Path | str | None = None) -> Finding:
    """LocalGroupDP's σ_Z where everybody else has one item: the noise itself tells who is there."""
    parameters, steps, runs = 1000, _LEAK_STEPS[size], _LEAK_RUNS[size]
    case = Case("local_group_dp", None, cases.PUBLISHED, 1, 1, 100, None, runs, "")
    declared = mechanism(case.algorithm, None, case.mode)
    facts = cases.federation(1, 1, subjects=cases.ITEMS - cases.CAP + 1)
    settings = cases.plan_settings(case.mode, Horizontal.ROUNDS_OVER_SQRT_S, 100, None, cache_dir)
    plan = make_plan(declared, facts, settings)
    bound = noise_level_leak(plan, parameters, steps, runs, seed)
    setting = f"{parameters} parameters, {steps} steps, all others one item"
    claim = case.algorithm, None, case.mode.value, setting, cases.EPSILON
    return Finding("noise_level_leak", *claim, math.nan, bound.epsilon, runs, bound.direction, _rates(bound))


def audit_divisor(parameters: int, runs: int, seed: int) -> Finding:
    """v3's realised divisor in one step, given who else is in the mini-batch."""
    bound = divisor_leak(_SUBJECTS_IN_BATCH, parameters, runs, cases.DELTA, seed)
    details = {"separation": divisor_separation(_SUBJECTS_IN_BATCH, parameters), **_rates(bound)}
    setting = f"{parameters:,} parameters, 1 step, {_SUBJECTS_IN_BATCH} other subjects"
    claim = "higrad_avg_dp", "v3", cases.PUBLISHED.value, setting, cases.EPSILON
    return Finding("divisor_leak", *claim, math.nan, bound.epsilon, runs, bound.direction, details)


def _findings(
    size: Size, seed: int, setup: TrainingSetup | None, cache_dir: Path | str | None
) -> Iterator[Finding]:
    for case in cases.monte_carlo_cases(size):
        yield audit_case(case, seed, cache_dir)
    if setup is not None:
        for audited, unit in _trainings():
            yield audit_one_run(audited, unit, setup, TRAINING_SIZES[size], seed, cache_dir)
    yield audit_noise_level(size, seed, cache_dir)
    for parameters in _DIVISOR_SIZES:
        yield audit_divisor(parameters, 100_000, seed)


def _trainings() -> Iterator[tuple[tuple[str, str | None, AccountingMode], PrivacyUnit]]:
    """v1 with subjects and, beside it, with items; the group rule; both sound replacements."""
    yield ("higrad_avg_dp", "v1", cases.PUBLISHED), PrivacyUnit.SUBJECT
    yield ("higrad_avg_dp", "v1", cases.PUBLISHED), PrivacyUnit.ITEM
    yield ("local_group_dp", None, cases.PUBLISHED), PrivacyUnit.SUBJECT
    yield ("higrad_avg_dp", "v3", cases.SOUND), PrivacyUnit.SUBJECT
    yield ("local_group_dp", None, cases.SOUND), PrivacyUnit.SUBJECT


def _rates(bound: LowerBound) -> dict[str, float]:
    return {
        "threshold": bound.threshold,
        "true_positive_rate": bound.true_positive_rate,
        "false_positive_rate": bound.false_positive_rate,
    }
