"""Joint noise under the silos' local optimisers, one local step: Adam turns each noisy gradient into its sign.

Every silo but the first has a sum far longer than its noise, so that its sign is known and none of its noise is in what
secure aggregation releases. The first silo holds the target, an item with the gradient C, and nothing else.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from accounting import plans
from algorithms import tiny
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.auditing.lower_bounds import split_bound
from subjectdp.config.sections import OptimizerConfig
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import AccountingMode, PrivacyPlan
from subjectdp.training.federation import Optimiser

SILOS, RUNS, FAR = 200, 20_000, 1000.0
BATCH = 25_375  # of a silo's 25,375 items: everybody takes part


def plan_of(optimiser: str, **changes: object) -> PrivacyPlan:
    """One round of one step in which all items take part, (1, 1e-5) for an item."""
    one: dict[str, Any] = {"mode": plans.SOUND, "epsilon": 1.0, "rounds": 1, "local_steps": 1, "batch_size": BATCH}
    settings = plans.settings(**one, linear_updates=optimiser != "adam", **changes)
    return make_plan(plans.sound(plans.JOINT), plans.facts(SILOS), settings)


def released(optimiser: str, sigma: float, present: bool) -> Tensor:
    """(runs,) minus the sum of the silos' updates along the target's axis, from a model at zero."""
    settings = OptimizerConfig.model_validate({"name": optimiser, "learning_rate": 1.0})
    generator = torch.Generator().manual_seed(int(present))
    total = torch.zeros(RUNS)
    for silo in range(SILOS):
        un_noised = float(present) if silo == 0 else FAR * (-1.0) ** silo
        noisy = un_noised + sigma * torch.randn(RUNS, generator=generator)
        theta = torch.zeros(RUNS)
        Optimiser(settings).step(theta, noisy)
        total -= theta
    return total


def bound(optimiser: str, sigma: float) -> float:
    present, absent = (released(optimiser, sigma, there).numpy() for there in (True, False))
    return split_bound(present, absent, plans.DELTA).epsilon


@pytest.mark.slow
def test_adam_leaves_a_silo_with_its_own_noise_alone() -> None:
    joint = plan_of("sgd")
    sigma = joint.silos[0].noise_multiplier
    assert unit_epsilon(joint, plans.ITEM, every_silo=True) == pytest.approx(1.0, rel=1e-3)
    assert bound("adam", sigma) > 5.0
    assert bound("sgd", sigma) < 1.0
    assert bound("momentum", sigma) < 1.0


def test_sound_joint_noise_refuses_adam() -> None:
    with pytest.raises(PrivacyError, match="sum of noisy gradients"):
        plan_of("adam")


def test_each_silos_own_noise_may_carry_adam() -> None:
    plan = plan_of("adam", own_noise_only=True)
    sigma = plan.silos[0].noise_multiplier
    assert sigma == pytest.approx(SILOS**0.5 * plan_of("sgd").silos[0].noise_multiplier, rel=1e-6)
    assert bound("adam", sigma) < 1.0


def test_no_federation_runs_adam_where_its_plan_counts_on_sums() -> None:
    plan = tiny.tiny_plan("joint_noise", None, AccountingMode.SOUND, 1, 1.0)
    run, adam = tiny.tiny_run(plan), OptimizerConfig(name="adam")
    with pytest.raises(PrivacyError, match="sgd or momentum"):
        run.change(optimiser=adam)
    run.change(plan=replace(plan, settings=replace(plan.settings, linear_updates=False)), optimiser=adam)
