"""ULDP-FL: a round against a float64 loop, what a user moves, the account, and what is read."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from accounting import plans
from accounting.test_subject_plans import facts, gaussian_epsilon, release, settings
from algorithms import tiny
from algorithms.test_sensitivity import check
from algorithms.test_subject_release import SECURE, SOUND, SubjectReference, after_a_round, moves
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.privacy_report import report_text
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.accounting.statements import privacy_statements
from subjectdp.config import load_run
from subjectdp.config.resolve import mechanism_of, plan_settings
from subjectdp.errors import ConfigError
from subjectdp.plan.plan import BudgetWeights, Clipping, PrivacyPlan, SubjectSettings

PAPER = (BudgetWeights.FIXED, BudgetWeights.PROPORTIONAL)  # ULDP-AVG and ULDP-AVG-w
RUN = {"algorithm": "uldp_fl", "privacy": {"mode": "sound"}}


def tiny_uldp(rule: BudgetWeights, steps: int = 3) -> PrivacyPlan:
    return tiny.tiny_plan("uldp_fl", None, SOUND, 1, 0.0, SubjectSettings(weights=rule, local_steps=steps))


@pytest.mark.parametrize("rule", PAPER)
def test_a_round_is_the_float64_loop(rule: BudgetWeights) -> None:
    reference = SubjectReference(rule, SECURE, steps=3)
    expected = reference.start + reference.total(True, np.ones(51, bool)) / (3 * 4.5)
    assert torch.allclose(after_a_round(tiny_uldp(rule)), expected, atol=3e-6)
    assert float((expected - reference.start).norm()) > 0.01


def test_a_user_moves_all_silos_releases_by_as_much_where_each_is_seen() -> None:
    """The bound is reached by a user at one silo: under local trust each silo needs the whole noise."""
    check(moves(tiny_uldp(BudgetWeights.PROPORTIONAL, steps=1), side_by_side=True), 10, tight=0.99)


@pytest.mark.parametrize(("joint", "counted"), [({}, 16), ({"colluding_silos": 12}, 4), ({"own_noise_only": True}, 1)])
def test_the_noise_of_silos_that_tell_it_does_not_count(joint: dict[str, Any], counted: int) -> None:
    run = load_run({**RUN, "partition": {"silos": 16}, "joint": joint})
    plan = make_plan(mechanism_of(run), facts(), plan_settings(run))
    hidden = plan.silos[0].noise_multiplier * math.sqrt(counted)
    assert gaussian_epsilon(math.sqrt(plan.rounds) / hidden) == pytest.approx(4.0, abs=5e-3)
    seen = "every noisy step of every silo" if counted == 1 else "the sum over the silos of each round"
    assert seen in report_text(plan, privacy_statements(plan, over_rounds=False))


@pytest.mark.parametrize("q", [1.0, 0.2])
def test_the_account_is_that_of_a_release_of_updates_in_a_secure_sum(q: float) -> None:
    subject = SubjectSettings(q, weights=BudgetWeights.PROPORTIONAL)
    plan = make_plan(plans.sound(plans.ULDP_FL), facts(), settings(subject))
    same = release(SECURE, sampling_probability=q, weights=BudgetWeights.PROPORTIONAL)
    same = replace(same, mechanism=replace(same.mechanism, clipping=Clipping.PER_SUBJECT_UPDATE))
    assert [silo.noise_multiplier for silo in plan.silos] == [silo.noise_multiplier for silo in same.silos]
    assert unit_epsilon(plan, plans.SUBJECT, True) == pytest.approx(4.0, abs=5e-3)
    if q == 1:  # σ²/S at each silo
        assert plan.silos[0].noise_multiplier == pytest.approx(10.812 / 4, abs=1e-3)


def test_its_trust_is_its_own() -> None:
    assert mechanism_of(load_run(RUN)).trust is SECURE
    with pytest.raises(ConfigError, match="subject.trust .*'secure_aggregation'"):
        load_run({**RUN, "subject": {"trust": "secure_aggregation"}})
    weighted = load_run({**RUN, "subject": {"weights": "proportional"}, "training": {"local_steps": 5}})
    assert weighted.subject.weights is BudgetWeights.PROPORTIONAL and weighted.training.local_steps == 5
