"""ε of a private selection: against dp-accounting's own accountant, and what the theorem demands of it."""

from typing import Any

import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from accounting.plans import DELTA, FED_AVG, HIGRAD_V3, ITEM, LOCAL_ITEM, RELEASE, SUBJECT, plan
from subjectdp.accounting.private_selection import SHAPES, PrivateSelection, selection_curve
from subjectdp.accounting.renyi import ORDERS
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import PrivacyPlan, SamplingMethod


def selection(distribution: Any = "poisson", mean: float = 3.0, noise: float = 5.0) -> PrivateSelection:
    return PrivateSelection(distribution, mean, noise)


def release(noise: float = 10.0, rounds: int = 20) -> PrivacyPlan:
    return plan(RELEASE, noise, silos=2, rounds=rounds, q=1.0, sampling=SamplingMethod.POISSON_SUBJECTS)


def epsilon(plans: list[PrivacyPlan], chosen: PrivateSelection, unit: Any = SUBJECT) -> float:
    return selection_curve(plans, chosen, unit, unit is SUBJECT).epsilon(DELTA)


def by_dp_accounting(run: dp_event.DpEvent, chosen: PrivateSelection) -> float:
    score = dp_event.GaussianDpEvent(chosen.score_noise_multiplier)
    one = dp_event.ComposedDpEvent([run, score])
    accountant = RdpAccountant(list(ORDERS))
    shape = SHAPES[chosen.distribution]
    accountant.compose(dp_event.RepeatAndSelectDpEvent(one, chosen.mean, shape))
    return float(accountant.get_epsilon(DELTA))


@pytest.mark.parametrize("distribution", ["poisson", "geometric", "logarithmic"])
@pytest.mark.parametrize("mean", [1.0, 2.5, 10.0])
def test_the_accountant_of_dp_accounting_agrees(distribution: str, mean: float) -> None:
    chosen = selection(distribution, mean)
    rounds = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(10.0), 20)
    assert epsilon([release()], chosen) == pytest.approx(by_dp_accounting(rounds, chosen), rel=1e-9)


def test_sampled_items_agree_with_dp_accounting() -> None:
    chosen, one = selection(noise=8.0), plan(LOCAL_ITEM, 1.2, rounds=4, steps=10, q=0.02)
    step = dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.2))
    expected = by_dp_accounting(dp_event.SelfComposedDpEvent(step, 40), chosen)
    assert epsilon([one], chosen, ITEM) == pytest.approx(expected, rel=1e-9)


def test_the_worst_setting_counts_drawn_or_not() -> None:
    both = epsilon([release(10.0), release(4.0)], selection())
    assert both == pytest.approx(epsilon([release(4.0)], selection()), rel=1e-12)


@pytest.mark.parametrize(("bad", "reason"), [(FED_AVG, "adds no noise"), (HIGRAD_V3, "distinct subjects")])
def test_a_run_without_an_epsilon_has_no_selection(bad: Any, reason: str) -> None:
    with pytest.raises(PrivacyError, match=reason):
        epsilon([release(), plan(bad, 9.0, rounds=2)], selection())
