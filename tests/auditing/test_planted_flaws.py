"""Flaws planted into sound algorithms: an audit that cannot see them would prove nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.algorithms.base import Algorithm, Step
from subjectdp.algorithms.registry import algorithm, mechanism
from subjectdp.auditing import cases, vector
from subjectdp.auditing.cases import Case
from subjectdp.auditing.lower_bounds import split_bound
from subjectdp.auditing.monte_carlo import likelihood_ratios, world_scores
from subjectdp.auditing.training_audit import Canaries, audit_training, generated_setup
from subjectdp.auditing.vector import World
from subjectdp.noise import gaussian as noise
from subjectdp.plan.plan import AccountingMode, FederationFacts, PrivacyPlan, PrivacyUnit
from subjectdp.training import silo_step

SOUND = AccountingMode.SOUND
add_gaussian = noise.add_gaussian


def with_step(audited: Algorithm, local_step: Step) -> Algorithm:
    """The algorithm with another local step in all of its rounds."""
    return replace(audited, rounds=tuple(replace(rule, local_step=local_step) for rule in audited.rounds))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def half_noise(total: Tensor, std: float, key: bytes) -> Tensor:
    return add_gaussian(total, std / 2, key)


def updates(cache: Path, unit: PrivacyUnit | None = None) -> PrivacyPlan:
    """Five rounds of four silos whose updates of 50 steps are clipped and noised once."""
    return Case("joint_noise", None, SOUND, 4, 4, 5, 50, 0, "planted", unit, updates=True).plan(cache)


def sound_plan(
    name: str, variant: str | None, cache: Path, batch: int = 128, facts: FederationFacts | None = None
) -> PrivacyPlan:
    settings = cases.plan_settings(SOUND, 20, 1, cache, batch)
    return make_plan(mechanism(name, variant, SOUND), facts or cases.federation(1, 1), settings)


def bound(claimed: PrivacyPlan, executed: PrivacyPlan, audited: Algorithm, runs: int = 60_000) -> float:
    """The audit of ``audited`` executing one plan while another is claimed."""
    worlds = [World(0, "planted", present, runs) for present in (True, False)]
    present, absent = (world_scores(audited, executed, likelihood_ratios(claimed), world) for world in worlds)
    return split_bound(present, absent, cases.DELTA).epsilon


def test_half_the_noise(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    plan, audited = sound_plan("higrad_avg_dp", "v3", cache), algorithm("higrad_avg_dp", "v3")
    assert bound(plan, plan, audited) < 3
    monkeypatch.setattr(noise, "add_gaussian", half_noise)
    assert bound(plan, plan, audited) > 4


@pytest.mark.slow
def test_half_the_noise_on_updates(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    plan, audited = updates(cache), algorithm("joint_noise")
    assert 1 < bound(plan, plan, audited, 20_000) < 3
    monkeypatch.setattr(noise, "add_gaussian", half_noise)
    assert bound(plan, plan, audited, 20_000) > 4


def test_updates_that_are_not_clipped(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    plan = updates(cache)
    monkeypatch.setattr(vector.VectorStep, "clip", lambda step, update: update)
    assert bound(plan, plan, algorithm("joint_noise"), 2_000) > 4


@pytest.mark.slow
def test_one_noise_for_the_updates_of_all_silos(cache: Path) -> None:
    """The sum of clipped updates with the noise of a single silo: √N too little."""
    plan, audited = updates(cache), algorithm("joint_noise")
    loud, *others = plan.silos
    quiet = (loud, *(replace(silo, noise_multiplier=0.0) for silo in others))
    assert bound(plan, replace(plan, silos=quiet), audited, 20_000) > 4


@pytest.mark.slow
def test_an_item_accounted_as_if_one_step_drew_it(cache: Path) -> None:
    """Accounted with q instead of 1 - (1 - q)^S, an item's ε is below what the very same rounds show."""
    plan, audited = updates(cache, PrivacyUnit.ITEM), algorithm("joint_noise")
    silos = tuple(replace(silo, steps_per_round=1) for silo in plan.silos)
    right, wrong = (
        unit_epsilon(p, PrivacyUnit.ITEM, every_silo=False) for p in (plan, replace(plan, silos=silos))
    )
    assert wrong < bound(plan, plan, audited, 20_000) < right


@pytest.mark.slow
def test_a_sampler_that_takes_too_many(cache: Path) -> None:
    plan, audited = sound_plan("local_group_dp", None, cache), algorithm("local_group_dp")
    silo = replace(plan.silos[0], sampling_probability=8 * plan.silos[0].sampling_probability)
    assert bound(plan, plan, audited) < 3
    assert bound(plan, replace(plan, silos=(silo,)), audited) > 4


def test_a_step_that_forgets_the_mean_over_a_subject(cache: Path) -> None:
    facts = FederationFacts((400,), (50,), (8,), True, 8, 1)
    plan, audited = sound_plan("higrad_avg_dp", "v3", cache, 120, facts), algorithm("higrad_avg_dp", "v3")

    def forgets(step: Any) -> Tensor:
        batch = step.sample_batch()
        return step.add_noise(step.clipped_sum(batch), step.noise_multiplier(batch)) / step.divisor(batch)

    assert bound(plan, plan, audited) < 3
    assert bound(plan, plan, with_step(audited, forgets)) > 4


def test_a_subject_with_more_items_than_the_cap(cache: Path) -> None:
    plan, audited = sound_plan("local_group_dp", None, cache), algorithm("local_group_dp")
    silo = replace(plan.silos[0], max_items_per_subject=64)
    assert bound(plan, replace(plan, silos=(silo,)), audited) > 4


def test_noise_after_the_division(cache: Path) -> None:
    """More noise than needed is no flaw that an audit could find: it must not cry wolf."""
    plan, audited = sound_plan("local_group_dp", None, cache), algorithm("local_group_dp")

    def outside(step: Any) -> Tensor:
        batch = step.sample_batch()
        return step.add_noise(step.clipped_sum(batch) / step.divisor(batch), step.noise_multiplier(batch))

    assert bound(plan, plan, with_step(audited, outside)) < 1


@pytest.mark.long
@pytest.mark.parametrize("planted", [False, True])
def test_half_the_noise_in_the_training_loop(
    planted: bool, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """The training loop's own sampler, engine, noise and averaging, attacked by 100,000 canaries at once.

    Their contributions are independent (Poisson sampling, constant noise and divisor, an axis each), so that they
    count as so many runs.
    """
    setup = generated_setup(0, subjects=50)
    canaries = Canaries(100_000, 8, (0,), 0, "planted")
    places = canaries.planned_facts(setup.facts).items[0]
    settings = cases.plan_settings(SOUND, 20, 1, cache, round(0.05 * places))
    if planted:
        monkeypatch.setattr(silo_step, "add_gaussian", half_noise)
    result = audit_training(mechanism("higrad_avg_dp", "v3", SOUND), setup, canaries, settings, 2000)
    found = split_bound(result.scores[result.members], result.scores[~result.members], cases.DELTA).epsilon
    assert found > 4 if planted else found < 3
