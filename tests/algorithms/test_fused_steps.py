"""Fused local steps (arXiv 2407.19286, eqs. 26 and 27): what a silo does, what is claimed of it, and what holds."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from accounting import plans
from algorithms import tiny
from algorithms.test_joint_noise import joint_plan, silo_average
from subjectdp.accounting import published, sound
from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import MixtureSteps, sampled_gaussian
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.plan_run import plan_from_dict
from subjectdp.accounting.statements import privacy_statements
from subjectdp.algorithms import joint_noise
from subjectdp.auditing.lower_bounds import counts_epsilon
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import AccountingMode, PrivacyPlan, PrivacyUnit

FUSED = (1, 2, 3)
Q = 0.1


def fused_plan(steps: int = 1, noise: float = 0.0, fused: tuple[int, ...] = FUSED) -> PrivacyPlan:
    plan = joint_plan(steps, noise)
    silos = [replace(silo, fused_steps=k) for silo, k in zip(plan.silos, fused, strict=True)]
    return replace(plan, silos=tuple(silos))


@pytest.mark.parametrize("steps", [1, 2])
def test_a_round_is_equation_26(steps: int) -> None:
    """Silo i takes k_i steps for each of the others' and clips each item's gradient to C/k_i."""
    plan = fused_plan(steps)
    assert torch.allclose(tiny.after_a_round(plan), silo_average(plan), atol=1e-5)
    assert not torch.allclose(silo_average(plan), silo_average(fused_plan(steps, fused=(1, 1, 1))), atol=1e-3)


def test_the_last_of_k_steps_alone_is_noised_with_the_noise_of_the_whole_clip_norm() -> None:
    plan = fused_plan(1, 2.0)
    std = tiny.RATE / tiny.BATCH / 3 * math.sqrt(3 * (2.0 * tiny.CLIP) ** 2)
    noise = tiny.noise_of_a_round(plan)
    assert [tiny.fits(noise, std * factor) for factor in (0.8, 1.0, 1.25)] == [False, True, False]
    run = tiny.tiny_run(fused_plan(2, 2.0))
    run.run_round(1)
    assert [row.noise_multiplier for row in run.rows] == [2.0, 2.0] + [0.0, 2.0] * 2 + [0.0, 0.0, 2.0] * 2


def planned(fused: tuple[int, ...], items: int = 460, batch: int = 46) -> PrivacyPlan:
    """The paper's claim of ε = 1 for 20 rounds of one noised step."""
    silos = len(fused)
    facts = replace(plans.facts(silos), items=(items,) * silos)
    mode = AccountingMode.AS_PUBLISHED
    schedule = {"rounds": 20, "local_steps": 1, "batch_size": batch, "fused_steps": fused}
    return make_plan(replace(plans.JOINT, mode=mode), facts, plans.settings(mode=mode, epsilon=1.0, **schedule))


def test_the_claim_takes_a_fused_step_for_one_of_sensitivity_c() -> None:
    """Drawn with probability 1 - (1 - q)^k, and all silos' noise counts."""
    plan = planned((1, 1, 2, 4))
    sigma = plan.silos[0].noise_multiplier * math.sqrt(4)
    claim = MixtureSteps(sigma, sampled_gaussian(1 - (1 - Q) ** 4), 20)
    assert epsilon_of((claim,), plan.settings.delta) == pytest.approx(published.published_epsilon(plan))
    assert published.published_epsilon(plan) == pytest.approx(1.0, rel=2e-3)
    assert planned((1, 1, 1, 1)).silos[0].noise_multiplier < plan.silos[0].noise_multiplier


def test_no_epsilon_is_given_beside_the_claim() -> None:
    fused, plain = planned((1, 1, 2, 2)), planned((1, 1, 1, 1))
    assert sound.unit_epsilon(plain, PrivacyUnit.ITEM, False) == pytest.approx(1.0, rel=2e-3)
    with pytest.raises(PrivacyError, match="2 local steps without noise in between"):
        sound.unit_epsilon(fused, PrivacyUnit.ITEM, False)
    stated = privacy_statements(fused)
    assert "without noise in between" in str(stated)
    assert plan_from_dict(fused.to_dict()) == fused


MIRRORS, SILOS, RUNS = 50, 10, 20_000


class _Round:
    """``RUNS`` independent rounds of a model of one number: silo 0 fuses two steps, the others' gradients are zero."""

    def __init__(self, sigma: float, target: bool) -> None:
        self.sigma, self.target, self.silo_count = sigma, target, SILOS
        self.random = np.random.default_rng([7, target])
        self.model = self.released = torch.zeros(RUNS, dtype=torch.float64)

    def models(self) -> Any:
        for silo in range(SILOS):
            theta = self.model.clone()
            for step in range(2 if silo == 0 else 1):
                local: Any = _Step(self, silo, theta, last=silo > 0 or step == 1)
                theta -= joint_noise.local_step(local)
            yield theta

    def set_model(self, model: Tensor) -> None:
        self.released = model


class _Step:
    """In clip norms of 1, each item drawn in every step.

    Silo 0 has 50 items of loss |θ|/2, one of gradient 1/4 that decides where the first step goes, and the target of
    gradient -1/2, which decides otherwise.
    """

    def __init__(self, round_: _Round, silo: int, theta: Tensor, last: bool) -> None:
        self.round, self.silo, self.theta, self.last = round_, silo, theta, last

    def sample_batch(self) -> None:
        return None

    def clipped_sum(self, batch: None) -> Tensor:
        if self.silo > 0:
            return torch.zeros(RUNS, dtype=torch.float64)
        gradients = MIRRORS * 0.5 * self.theta.sign() + 0.25
        return gradients - 0.5 if self.round.target else gradients

    def noise_multiplier(self, batch: None) -> float:
        return self.round.sigma if self.last else 0.0

    def add_noise(self, total: Tensor, noise_multiplier: float) -> Tensor:
        return total + noise_multiplier * torch.from_numpy(self.round.random.standard_normal(RUNS))

    def divisor(self, batch: None) -> float:
        return 1.0


def test_an_attack_on_one_round_refutes_the_claim_for_twenty() -> None:
    """One item turns the gradients of fifty others before any noise is added."""
    plan = planned((2,) + (1,) * (SILOS - 1), items=MIRRORS + 2, batch=MIRRORS + 2)
    released = []
    for target in (False, True):
        rounds: Any = _Round(plan.silos[0].noise_multiplier, target)
        joint_noise.aggregate(rounds, rounds.models())
        released.append(rounds.released * -SILOS)
    absent, present = released
    assert float(present.mean() - absent.mean()) == pytest.approx(MIRRORS - 1, rel=0.05)
    hits, alarms = int((present > 0).sum()), int((absent > 0).sum())
    proven = counts_epsilon(hits, RUNS, alarms, RUNS, plan.settings.delta)
    assert published.published_epsilon(plan) < 1.01 < 2 < proven
