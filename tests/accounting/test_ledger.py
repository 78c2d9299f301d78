"""Several runs together, against closed forms and against one run with all their steps."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_repeat_and_select

from accounting import plans
from accounting.plans import DELTA, ITEM, LOCAL_ITEM, SUBJECT, plan, sound
from subjectdp.accounting.gaussian import gdp_epsilon
from subjectdp.accounting.ledger import LedgerEntry, composed_epsilon
from subjectdp.accounting.private_selection import SHAPES, PrivateSelection, selection_curve
from subjectdp.accounting.renyi import INTEGER_BOUND_ORDERS, ORDERS, integer_bounds
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.errors import ConfigError, PrivacyError
from subjectdp.plan.plan import Mechanism, NoiseDistribution, PrivacyPlan, SamplingMethod, SiloChoice


def release(noise: float = 10.0, rounds: int = 20) -> PrivacyPlan:
    return plan(plans.RELEASE, noise, silos=2, rounds=rounds, q=1.0, sampling=SamplingMethod.POISSON_SUBJECTS)


def entries(*plans: PrivacyPlan, seeds: str = "", partition: str = "") -> list[LedgerEntry]:
    """Runs with a seed and a partition each, unless ``seeds`` and ``partition`` give all of them the same."""
    return [
        LedgerEntry(f"run-{n}", each, seeds or f"seed {n}", partition or f"of seed {n}") for n, each in enumerate(plans)
    ]


@pytest.mark.parametrize("seeds", ["", "seed 0"])
def test_runs_without_sampling_compose_to_one_gaussian(seeds: str) -> None:
    """μ² = Σ R_i/σ_i², whether the runs share a seed or not."""
    runs = entries(release(9.0), release(15.0, rounds=30), release(12.0), seeds=seeds)
    mu = (20 / 81 + 30 / 225 + 20 / 144) ** 0.5
    assert composed_epsilon(runs, SUBJECT, True, DELTA) == pytest.approx(gdp_epsilon(mu, DELTA), rel=1e-9)


def test_five_seeds_of_four_are_more_than_ten() -> None:
    """The number of the review: five published seeds of a run with ε = 4."""
    sigma = 20**0.5 / 0.92519
    assert composed_epsilon(entries(release(sigma)), SUBJECT, True, DELTA) == pytest.approx(4.0, rel=1e-3)
    five = composed_epsilon(entries(*[release(sigma)] * 5), SUBJECT, True, DELTA)
    assert five == pytest.approx(10.42, abs=0.01)


def sampled(noise: float = 1.2, **changes: float) -> PrivacyPlan:
    return plan(LOCAL_ITEM, noise, rounds=4, steps=10, **changes)


def test_runs_of_different_seeds_are_as_many_steps_of_one() -> None:
    together = composed_epsilon(entries(sampled(), sampled()), ITEM, False, DELTA)
    assert together == pytest.approx(unit_epsilon(replace(sampled(), rounds=8), ITEM, False), rel=1e-9)


def test_runs_of_one_seed_share_their_coins() -> None:
    """Both runs see the same mini-batches: as bad as one run with the noise of both, worse than other seeds."""
    runs = entries(sampled(), sampled(2.4), seeds="seed 0", partition="p")
    joint = (1.2**-2 + 2.4**-2) ** -0.5
    together = composed_epsilon(runs, SUBJECT, True, DELTA)
    assert together == pytest.approx(unit_epsilon(sampled(joint), SUBJECT, True), rel=1e-9)
    assert together > composed_epsilon(entries(sampled(), sampled(2.4)), SUBJECT, True, DELTA)


def test_runs_of_one_seed_are_one_run_at_each_silo() -> None:
    """The third silo has the least noise of all runs together, and in none the worst of its respects."""

    def run(*noise: float) -> PrivacyPlan:
        base = sampled(silos=3)
        silos = (
            replace(silo, noise_multiplier=sigma, sampling_probability=q, max_items_per_subject=cap)
            for silo, sigma, q, cap in zip(base.silos, noise, (0.04, 0.02, 0.02), (1, 8, 1), strict=True)
        )
        return replace(base, silos=tuple(silos), silos_per_subject=1)

    together = composed_epsilon(entries(run(1, 9, 1), run(9, 1, 1), seeds="seed 0", partition="p"), ITEM, False, DELTA)
    assert together == pytest.approx(unit_epsilon(sampled(0.5**0.5, q=0.02), ITEM, False), rel=1e-9)


def test_silos_are_compared_at_the_delta_that_is_asked_for() -> None:
    """Rare items of two silos under little noise: what they cost is below δ = 0.09 that the run was planned for."""
    kinds = [*((1.0, 1, 40.0 + n) for n in range(4)), (3e-5, 3, 0.35), (2.4e-5, 4, 0.35)]
    one = (base := plan(LOCAL_ITEM, 1.0, silos=6, held=2, rounds=12, k=1, delta=0.09)).silos[0]
    silos = [replace(one, sampling_probability=q, steps_per_round=n, noise_multiplier=s) for q, n, s in kinds]
    asked = replace(made := replace(base, silos=tuple(silos)), settings=replace(base.settings, delta=1e-7))
    assert composed_epsilon(entries(made), SUBJECT, True, 1e-7) == unit_epsilon(asked, SUBJECT, True) > 4


def test_the_noise_of_a_sum_is_the_least_of_each_run() -> None:
    base = plan(sound(plans.CENTRAL), 1.0, silos=2, steps=1)
    silos = base.silos[0], replace(base.silos[1], noise_multiplier=9.0)
    runs = entries(*(replace(base, silos=each) for each in (silos, silos[::-1])), seeds="seed 0", partition="p")
    with pytest.raises(PrivacyError, match="one local step a round"):
        unit_epsilon(plan(sound(plans.CENTRAL), 1.0, silos=2, steps=2), ITEM, False)
    one = plan(sound(plans.CENTRAL), 0.5**0.5, silos=2, steps=1)
    assert composed_epsilon(runs, ITEM, False, DELTA) == pytest.approx(unit_epsilon(one, ITEM, False), rel=1e-9)


@pytest.mark.parametrize("other", [sampled(q=0.03), sampled(k=4), sampled(q=1.0)])
def test_runs_of_one_seed_that_sample_differently_have_no_epsilon(other: PrivacyPlan) -> None:
    with pytest.raises(PrivacyError, match="run-0, run-1 share draws of one seed"):
        composed_epsilon(entries(sampled(), other, seeds="seed 0", partition="p"), SUBJECT, True, DELTA)


def test_runs_of_one_seed_on_other_partitions_have_no_epsilon() -> None:
    with pytest.raises(PrivacyError, match="give each run its own seed"):
        composed_epsilon(entries(sampled(), sampled(), seeds="seed 0"), ITEM, False, DELTA)


@pytest.mark.parametrize(("bad", "reason"), [(plans.FED_AVG, "adds no noise"), (plans.HIGRAD_V3, "distinct subjects")])
def test_a_run_without_an_epsilon_leaves_none_to_all(bad: Mechanism, reason: str) -> None:
    runs = [sampled(), plan(bad, 9.0, rounds=2)]
    with pytest.raises(PrivacyError, match=reason):
        composed_epsilon(entries(*runs), SUBJECT, True, DELTA)
    with pytest.raises(PrivacyError, match=reason):
        selected_epsilon(runs, selection())


def test_two_runs_at_unequal_silos_are_one_of_all_rounds() -> None:
    """A person at two of five silos, each larger than the one before: ε was that of five as bad as the worst."""

    def run(rounds: int) -> PrivacyPlan:
        base = plan(sound(LOCAL_ITEM), 20.0, silos=5, held=2, rounds=rounds)
        silos = (replace(each, sampling_probability=0.1 / 2**n) for n, each in enumerate(base.silos))
        return replace(base, silos=tuple(silos))

    together = composed_epsilon(entries(run(30), run(20)), SUBJECT, True, DELTA)
    assert together == pytest.approx(unit_epsilon(run(50), SUBJECT, True), rel=1e-3)


def test_many_choices_of_silos_become_the_worst_silo() -> None:
    """Three runs on unequal silos, any of which an item may be at: no more than three runs at the worst of them."""
    silos = tuple(
        replace(sampled().silos[0], sampling_probability=q, steps_per_round=steps)
        for q, steps in ((0.04, 5), (0.03, 7), (0.02, 11))
    )
    uneven = replace(sampled(), silos=silos)
    alone = unit_epsilon(uneven, ITEM, False)
    worst = sampled(q=0.04)
    bound = unit_epsilon(replace(worst, rounds=12, silos=(replace(worst.silos[0], steps_per_round=11),)), ITEM, False)
    assert composed_epsilon(entries(uneven), ITEM, False, DELTA) == pytest.approx(alone, rel=1e-9)
    together = composed_epsilon(entries(uneven, uneven, uneven), ITEM, False, DELTA)
    assert alone < together <= bound * (1 + 1e-9)


@pytest.mark.parametrize("seeds", ["", "seed 0"])
@pytest.mark.parametrize("make", [release, sampled])
def test_nothing_holds_together_with_a_run_without_noise(make: Any, seeds: str) -> None:
    assert composed_epsilon(entries(make(2.0), make(0.0), seeds=seeds, partition="one"), ITEM, False, DELTA) == math.inf


# --- one of several runs, chosen privately: against dp-accounting's own accountant -----------------------------------


def selection(distribution: Any = "poisson", mean: float = 3.0, noise: float = 5.0) -> PrivateSelection:
    return PrivateSelection(distribution, mean, noise)


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        (("geometric", 0.9), "mean to be at least 1"),
        (("poisson", 0.5), "mean to be at least 1"),
        (("poisson", 3.0, 0.0), "score_noise"),
        (("uniform",), "distribution"),
    ],
)
def test_a_selection_that_cannot_be_is_refused(chosen: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        selection(*chosen)


def selected_epsilon(plans: list[PrivacyPlan], chosen: PrivateSelection, unit: Any = SUBJECT) -> float:
    return selection_curve(plans, chosen, unit, unit is SUBJECT).epsilon(DELTA)


def test_a_curve_of_nothing_and_a_delta_that_is_none_are_refused() -> None:
    with pytest.raises(PrivacyError, match="a run without noise"):
        selected_epsilon([release(), release(0.0)], selection())
    with pytest.raises(ConfigError, match="plans to be those of at least one setting"):
        selected_epsilon([], selection())
    for delta in (0.0, 1.0, -1e-5):
        with pytest.raises(ConfigError, match="delta to be above 0 and below 1"):
            selection_curve([release()], selection(), SUBJECT, True).epsilon(delta)


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
    assert selected_epsilon([release()], chosen) == pytest.approx(by_dp_accounting(rounds, chosen), rel=1e-9)


def test_sampled_items_agree_with_dp_accounting() -> None:
    chosen, one = selection(noise=8.0), plan(LOCAL_ITEM, 1.2, rounds=4, steps=10, q=0.02)
    step = dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.2))
    expected = by_dp_accounting(dp_event.SelfComposedDpEvent(step, 40), chosen)
    assert selected_epsilon([one], chosen, ITEM) == pytest.approx(expected, rel=1e-9)


def test_the_worst_setting_counts_drawn_or_not() -> None:
    both = selected_epsilon([release(10.0), release(4.0)], selection())
    assert both == pytest.approx(selected_epsilon([release(4.0)], selection()), rel=1e-12)


def test_runs_and_selections_under_integer_noise_have_its_bounds() -> None:
    integers = {"noise_distribution": NoiseDistribution.SKELLAM, "accountant": "rdp_integer"}
    made, orders = plan(LOCAL_ITEM, 4.0, rounds=2, steps=1, k=3, **integers), np.array(INTEGER_BOUND_ORDERS)
    whole = 2 * integer_bounds(4.0, plans.items(plans.Q, 3)) + orders / (2 * selection().score_noise_multiplier ** 2)
    both = composed_epsilon(entries(made, plan(LOCAL_ITEM, 4.0, rounds=2, steps=1, k=3)), SUBJECT, True, DELTA)
    assert both == unit_epsilon(replace(made, rounds=4), SUBJECT, True)
    repeated = _compute_rdp_repeat_and_select(orders, whole, 3.0, SHAPES["poisson"])
    assert selected_epsilon([made], selection()) == pytest.approx(compute_epsilon(orders, repeated, DELTA)[0], rel=1e-9)


def test_every_silo_counts_in_a_selection() -> None:
    base, noisier = (sampled(noise, silos=2, k=1) for noise in (1.2, 1.3))
    uneven = replace(base, silos=(base.silos[0], noisier.silos[0]))
    less, between, more = (selected_epsilon([each], selection()) for each in (noisier, uneven, base))
    assert less < between < more


def test_all_releases_of_drawn_silos_count() -> None:
    """Two of three silos are drawn, a subject is at two: both of its silos release with 1/3, else one of them does."""
    some = {"silos_per_round": 2, "silo_choice": SiloChoice.RANDOM, "sampling": SamplingMethod.POISSON_SUBJECTS}
    made = plan(sound(plans.SUBJECT_SAMPLING), 4.0, silos=3, held=2, rounds=10, steps=1, q=1.0, k=1, **some)
    chosen, orders = selection(), np.array(ORDERS)
    one = (orders - 1) * orders / (2 * 4.0**2)
    training = 10 * np.logaddexp(np.log(1 / 3) + 2 * one, np.log(2 / 3) + one) / (orders - 1)
    alone, _ = compute_epsilon(orders, training, DELTA)
    assert 0.9 * alone < unit_epsilon(made, SUBJECT, True) <= alone
    whole = training + orders / (2 * chosen.score_noise_multiplier**2)
    repeated = _compute_rdp_repeat_and_select(orders, whole, chosen.mean, SHAPES[chosen.distribution])
    expected, _ = compute_epsilon(orders, repeated, DELTA)
    assert selected_epsilon([made], chosen) == pytest.approx(expected, rel=1e-9)
