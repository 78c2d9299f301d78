"""Audits of sampled subjects: the attacked canary is the training loop's, and planted flaws are seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import tiny
from subjectdp.algorithms.registry import algorithm
from subjectdp.auditing import cases
from subjectdp.auditing.cases import Case
from subjectdp.auditing.lower_bounds import split_bound
from subjectdp.auditing.monte_carlo import likelihood_ratios, world_scores
from subjectdp.auditing.vector import SubjectFederation, VectorFederation, World, federation_of
from subjectdp.data.partition import Partition
from subjectdp.noise import gaussian as noise
from subjectdp.noise import subject_weights
from subjectdp.plan.plan import AccountingMode, BudgetWeights, PrivacyPlan, SubjectSettings, TrustModel

SOUND = AccountingMode.SOUND
add_gaussian = noise.add_gaussian


def plan_of(
    subject: SubjectSettings = SubjectSettings(),  # noqa: B008 - frozen
    trust: TrustModel = TrustModel.LOCAL,
    name: str = "subject_release",
    silos: int = 4,
    updates: bool = False,
) -> PrivacyPlan:
    case = Case(name, None, SOUND, silos, silos, 16, 1, 0, "planted", None, updates, subject, trust)
    return case.plan()


def bound(claimed: PrivacyPlan, executed: PrivacyPlan, runs: int = 60_000) -> float:
    audited = algorithm(claimed.mechanism.algorithm)
    worlds = [World(0, "planted", present, runs) for present in (True, False)]
    present, absent = (world_scores(audited, executed, likelihood_ratios(claimed), world) for world in worlds)
    return split_bound(present, absent, cases.DELTA).epsilon


def with_subject(plan: PrivacyPlan, **changes: Any) -> PrivacyPlan:
    """The plan with other settings of subjects, but the noise that it has."""
    settings = replace(plan.settings, subject=replace(plan.settings.subject, **changes))
    q = settings.subject.sampling_probability
    silos = tuple(replace(silo, sampling_probability=q) for silo in plan.silos)
    return replace(plan, settings=settings, silos=silos)


@pytest.mark.slow
def test_whole_plans_are_not_refuted_and_halved_noise_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """All trust models, gradients and updates; the same flaw in each."""
    kinds = [
        plan_of(),
        plan_of(trust=TrustModel.CENTRAL),
        plan_of(trust=TrustModel.SECURE_AGGREGATION, name="uldp_fl"),
        plan_of(SubjectSettings(0.3), TrustModel.SECURE_AGGREGATION),
        plan_of(SubjectSettings(0.3), name="subject_sampling"),
    ]
    for plan in kinds:
        assert 1.0 < bound(plan, plan) < 4.0
    monkeypatch.setattr(noise, "add_gaussian", lambda total, std, key: add_gaussian(total, std / 2.5, key))
    for plan in kinds:
        assert bound(plan, plan) > 4.0


@pytest.mark.slow
def test_a_budget_that_every_silo_takes_for_itself_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full clip norms at 9 silos: √9 times the sensitivity where each sum is seen, 9 times where their sum is."""

    def everywhere(counts: Any, *rule: Any) -> Any:
        return (counts > 0).astype(float)

    local, summed = plan_of(silos=9), plan_of(trust=TrustModel.SECURE_AGGREGATION, silos=9)
    assert bound(local, local) < 4 and bound(summed, summed) < 4
    monkeypatch.setattr(subject_weights, "budget_weights", everywhere)
    assert bound(local, local) > 4
    assert bound(summed, summed) > 4


def test_weights_of_the_sums_length_where_each_sum_is_seen_are_safe_and_the_other_way_round_is_not() -> None:
    """Σ w ≤ 1 bounds less than Σ w² ≤ 1 does: one rule for both trust models would be wasteful or wrong."""
    plan = plan_of(trust=TrustModel.SECURE_AGGREGATION, silos=9)
    weights = subject_weights.budget_weights(
        np.ones((9, 1), np.int64), BudgetWeights.UNIFORM, TrustModel.LOCAL, 9
    )
    executed = SubjectFederation(algorithm("subject_release"), plan, World(0, "w", True, 4))
    assert sum(executed.weights) == pytest.approx(1.0)
    assert weights.sum() == pytest.approx(3.0)
    executed.weights = weights[:, 0].tolist()
    quiet = replace(plan, silos=tuple(replace(silo, noise_multiplier=0.0) for silo in plan.silos))
    executed.plan = quiet
    assert next(executed.releases())[1][0] == pytest.approx(3.0)


@pytest.mark.slow
def test_a_subject_that_is_there_more_often_than_claimed_is_seen() -> None:
    rare = plan_of(SubjectSettings(0.15))
    assert bound(rare, with_subject(rare, sampling_probability=1.0)) > 4


def test_the_attacked_canary_is_the_training_loops() -> None:
    """Same weights and, from far beyond the clip norm, contributions of exactly these lengths."""
    for trust in (TrustModel.LOCAL, TrustModel.SECURE_AGGREGATION):
        for rule in BudgetWeights:
            plan = tiny.tiny_plan("subject_release", None, SOUND, subject=SubjectSettings(weights=rule))
            plan = replace(plan, mechanism=replace(plan.mechanism, trust=trust))
            attacked = SubjectFederation(algorithm("subject_release"), plan, World(0, "c", True, 3))
            run = tiny.tiny_run(plan, canary_partition())
            run.federation.data.inputs.mul_(1e4)  # type: ignore[attr-defined]
            for silo in range(3):
                step = run.step(1, silo, 0)
                length = float(step.subject_sum(step.sample_batch()).norm())
                vector = attacked.step(1, silo, 0)
                found = vector.subject_sum(vector.sample_batch())
                assert length == pytest.approx(attacked.weights[silo] * tiny.CLIP, rel=1e-4)
                assert torch.allclose(found, torch.full((3,), length), rtol=1e-4)


def canary_partition() -> Partition:
    """One subject with two items at each of three silos."""
    empty = np.zeros(0, np.int32)
    counts = {"counts": {"subjects": 1}}
    return Partition(
        np.arange(6, dtype=np.int32), np.zeros(6, np.int32), np.array([0, 2, 4, 6]), empty, empty, counts
    )


def test_coins_are_one_for_all_silos_of_a_release() -> None:
    shared = SubjectFederation(
        algorithm("subject_release"), plan_of(SubjectSettings(0.5)), World(0, "s", True, 1000)
    )
    own = SubjectFederation(
        algorithm("subject_sampling"),
        plan_of(SubjectSettings(0.5), name="subject_sampling"),
        World(0, "s", True, 1000),
    )
    assert torch.equal(shared.coins(1, 0, 0), shared.coins(1, 3, 0))
    assert not torch.equal(shared.coins(1, 0, 0), shared.coins(2, 0, 0))
    assert not torch.equal(own.coins(1, 0, 0), own.coins(1, 3, 0))
    assert not torch.equal(own.coins(1, 0, 0), own.coins(1, 0, 1))
    assert float(shared.coins(1, 0, 0).mean()) == pytest.approx(0.5, abs=0.06)
    absent = replace(shared.world, present=False)
    assert not SubjectFederation(algorithm("subject_release"), shared.plan, absent).coins(1, 0, 0).any()


def test_plans_that_sample_items_keep_their_federation() -> None:
    plan = Case("capped_item_dp", None, SOUND, 1, 1, 5, 1, 0, "x").plan()
    made = federation_of(algorithm("capped_item_dp"), plan, World(0, "x", True, 5))
    assert type(made) is VectorFederation
