"""Plans of joint noise: colluding silos, own noise alone, integer noise."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from accounting import plans
from subjectdp.accounting import published, sound
from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import MixtureSteps, sampled_gaussian, update_shift
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.renyi import SkellamMechanism, best_epsilon, sampled_divergences
from subjectdp.accounting.statements import privacy_statements
from subjectdp.algorithms.registry import algorithm
from subjectdp.noise.skellam import Grid
from subjectdp.plan.plan import Accountant, AccountingMode, Mechanism, NoiseDistribution, PrivacyPlan, PrivacyUnit

pytestmark = pytest.mark.slow

SILOS = 4
STEPS, Q = 20, 0.1


def planned(mechanism: Mechanism, **changes: object) -> PrivacyPlan:
    facts = replace(plans.facts(SILOS), items=(5_120,) * SILOS)
    return make_plan(mechanism, facts, plans.settings(mode=mechanism.mode, **{"rounds": STEPS, **changes}))


def joint(mode: AccountingMode, **changes: object) -> PrivacyPlan:
    return planned(replace(plans.JOINT, mode=mode), **{"local_steps": 1, "accountant": "rdp", **changes})


@pytest.mark.parametrize("mode", list(AccountingMode))
@pytest.mark.parametrize("colluding", [0, 1, 2])
def test_the_noise_of_all_honest_silos_together_meets_the_target(mode: AccountingMode, colluding: int) -> None:
    plan = joint(mode, colluding_silos=colluding)
    together = plan.silos[0].noise_multiplier * math.sqrt(SILOS - colluding)
    loss = (MixtureSteps(together, sampled_gaussian(Q), STEPS),)
    reached = epsilon_of(loss, plans.DELTA, "rdp")
    assert reached == pytest.approx(4.0, rel=2e-3) and reached <= 4.0 + 1e-9
    assert sound.unit_epsilon(plan, PrivacyUnit.ITEM, False) == pytest.approx(reached)
    assert published.published_epsilon(plan) == pytest.approx(reached)


# --- whole updates, clipped and noised once -----------------------------------------------------------------------


def of_updates(**changes: object) -> PrivacyPlan:
    mechanism = algorithm("joint_noise").of_updates
    assert mechanism is not None
    return planned(mechanism, **{"local_steps": 7, **changes})


def test_updates_are_calibrated_for_the_silo_in_closed_form() -> None:
    """Two silos' data are 2C apart, R releases, N noises: σ = 2 √R / (μ(4, 1e-5) √N), whatever the local steps."""
    for steps in (1, 7, None):
        plan = of_updates(local_steps=steps)
        expected = 2 * math.sqrt(STEPS / SILOS) / 0.924931
        assert plan.silos[0].noise_multiplier == pytest.approx(expected, rel=1e-5)
        assert sound.unit_epsilon(plan, PrivacyUnit.SILO, False) == pytest.approx(4.0, rel=1e-6)
    colluding = of_updates(colluding_silos=1).silos[0].noise_multiplier
    assert colluding == pytest.approx(2 * math.sqrt(STEPS / (SILOS - 1)) / 0.924931, rel=1e-5)
    alone = of_updates(own_noise_only=True).silos[0].noise_multiplier
    assert alone == pytest.approx(2 * math.sqrt(STEPS) / 0.924931, rel=1e-5)


@pytest.mark.parametrize(("sampling", "q", "k"), [(plans.POISSON, 0.3, 2), (plans.FIXED, 0.4, 2)])
def test_a_unit_takes_part_in_an_update_as_often_as_enumeration_says(
    sampling: plans.SamplingMethod, q: float, k: int
) -> None:
    """All outcomes of two mini-batches of a silo of five items."""
    items, steps = 5, 2
    subsets = [s for n in range(items + 1) for s in itertools.combinations(range(items), n)]
    if sampling is plans.POISSON:
        law = {s: q ** len(s) * (1 - q) ** (items - len(s)) for s in subsets}
    else:
        whole = [s for s in subsets if len(s) == round(q * items)]
        law = dict.fromkeys(whole, 1 / len(whole))
    chance = sum(p1 * p2 for s1, p1 in law.items() for s2, p2 in law.items() if any(j in s1 + s2 for j in range(k)))
    shift = update_shift(PrivacyUnit.SUBJECT, sampling, q, k, items, steps)
    assert shift.sensitivities == (0.0, 2.0)
    assert shift.probabilities[-1] == pytest.approx(chance, rel=1e-12)


def test_what_an_update_gives_items_and_subjects() -> None:
    """An item: 2C with 1 - (1-q)^S. A subject: at one silo at most the silo's ε; its silos' shifts add up."""
    plan = of_updates()
    sigma = plan.silos[0].noise_multiplier * math.sqrt(SILOS)
    (item,) = sound.unit_losses(plan, PrivacyUnit.ITEM, False)
    assert (item[0].noise_multiplier, item[0].steps) == (pytest.approx(sigma), STEPS)
    assert item[0].shift.sensitivities == (0.0, 2.0)
    assert item[0].shift.probabilities[1] == pytest.approx(1 - (1 - Q) ** 7, rel=1e-12)
    one = sound.unit_epsilon(plan, PrivacyUnit.SUBJECT, False)
    silo = sound.unit_epsilon(plan, PrivacyUnit.SILO, False)
    assert sound.unit_epsilon(plan, PrivacyUnit.ITEM, False) < one <= silo * (1 + 1e-3)
    ((everywhere,),) = sound.unit_losses(plan, PrivacyUnit.SUBJECT, True)
    taking_part = 1 - (1 - Q) ** (8 * 7)
    law = stats.binom.pmf(range(SILOS + 1), SILOS, taking_part)
    assert everywhere.shift.sensitivities[-1] == 2.0 * SILOS
    for value, probability in zip(everywhere.shift.sensitivities, everywhere.shift.probabilities, strict=True):
        assert probability == pytest.approx(law[round(value / 2)], rel=1e-9)


@pytest.mark.parametrize(("bits", "dimension"), [(4, 3), (10, 500), (16, 10_250)])
def test_integer_noise_of_a_plan_meets_the_target_by_the_skellam_bound(bits: int, dimension: int) -> None:
    """The noise that training draws, accounted by the published bound of Skellam at the rounded sensitivity."""
    plan = joint(AccountingMode.SOUND, accountant="rdp_integer", noise_distribution=NoiseDistribution.SKELLAM)
    grid = Grid.of_bits(bits, 1.0, dimension)
    total = sum(grid.variance(silo.noise_multiplier) for silo in plan.silos)
    mechanism = SkellamMechanism(math.sqrt(total) / grid.l2, grid.l2, dimension)
    orders = tuple(range(2, 65))
    divergences = STEPS * sampled_divergences(mechanism, Q, orders)
    reached = best_epsilon(np.array(orders, dtype=float), divergences, math.log(plans.DELTA))
    assert 3.5 < reached <= 4.0 + 1e-6
    weaker = SkellamMechanism(0.8 * math.sqrt(total) / grid.l2, grid.l2, dimension)
    more = STEPS * sampled_divergences(weaker, Q, orders)
    assert best_epsilon(np.array(orders, dtype=float), more, math.log(plans.DELTA)) > 4.0


@pytest.mark.parametrize(("steps", "expected"), [(None, 20), (3, 3)])
def test_one_fraction_for_silos_of_very_different_sizes(steps: int | None, expected: int) -> None:
    """Equal rates and a common divisor: every item has the same weight, so ε is that of any one silo."""
    items = (40, 100, 5_000, 20_000)
    facts = replace(plans.facts(SILOS), items=items)
    settings = plans.settings(
        mode=AccountingMode.AS_PUBLISHED, rounds=7, local_steps=steps, accountant="rdp", sampling_fraction=0.05
    )
    plan = make_plan(replace(plans.JOINT, mode=AccountingMode.AS_PUBLISHED), facts, settings)
    assert {silo.sampling_probability for silo in plan.silos} == {0.05}
    assert {silo.steps_per_round for silo in plan.silos} == {expected}
    assert {silo.divisor for silo in plan.silos} == {0.05 * 6_285}
    loss = (MixtureSteps(2 * plan.silos[0].noise_multiplier, sampled_gaussian(0.05), 7 * expected),)
    assert epsilon_of(loss, plans.DELTA, "rdp") == pytest.approx(4.0, rel=2e-3)


@pytest.mark.parametrize(
    ("steps", "sigma", "epsilon"), [(1, 2.1829, 0.6395), (10, 2.8523, 0.7160), (50, 3.7297, 1.0266)]
)
@pytest.mark.parametrize("noise", list(NoiseDistribution))
def test_mironovs_accountant_gives_table_1(steps: int, sigma: float, epsilon: float, noise: NoiseDistribution) -> None:
    """Ten parties; the values by a program of its own, which rounds to the printed 2.18, 2.85 and 3.73."""
    facts = replace(plans.facts(10), items=(5_120,) * 10)
    settings = plans.settings(
        rounds=1,
        local_steps=steps,
        epsilon=epsilon,
        delta=1e-5,
        accountant=Accountant.MIRONOV,
        noise_distribution=noise,
    )
    plan = make_plan(plans.JOINT, facts, settings)
    assert math.sqrt(10) * plan.silos[0].noise_multiplier == pytest.approx(sigma, rel=2e-3)
    statements = privacy_statements(plan, over_rounds=False)
    assert statements["as_published"]["accountant"] == "mironov"
    assert statements["as_published"]["epsilon"] == pytest.approx(epsilon, rel=2e-3)
    held = statements["sound"]["item"]
    integers = noise is NoiseDistribution.SKELLAM
    assert held["accountant"] == ("rdp_integer" if integers else "pld")
    assert (held["epsilon"] > 3) == (steps > 1)
