"""200 random plans against a reference written apart from the accountant (``reference.py``).

Each kind of plan has its law written down here from what the algorithm does. The accountant must not be below the
reference, and not far above it.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from math import comb
from statistics import NormalDist

import numpy as np
import pytest

from accounting import plans
from accounting.plans import CENTRAL, ITEM, LOCAL_GROUP, SUBJECT, plan, settings, sound
from accounting.reference import DELTA, STILL, Release, added, binomial, composed, epsilon, sampled
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.plan.plan import BudgetWeights, PrivacyPlan, SamplingMethod, SiloChoice, SubjectSettings, TrustModel

pytestmark = pytest.mark.slow

SUBJECTS = SamplingMethod.POISSON_SUBJECTS
Random = np.random.Generator
Case = tuple[PrivacyPlan, plans.PrivacyUnit, bool, list[list[Release]], float]
"""Plan, unit, whether at all silos, every choice of silos' releases, and how far above the largest is not too far."""


def _noise(random: Random, q: float, steps: int) -> float:
    """Noise for an ε of about 0.3 to 12 of a unit that moves the sum by 1."""
    return float(max(0.6, q * np.sqrt(steps)) * random.uniform(0.7, 3.0))


def item_of_capped_silos(random: Random) -> Case:
    q, steps, silos = random.uniform(0.01, 0.6), int(random.integers(2, 30)), int(random.integers(1, 5))
    sigma = _noise(random, q, steps)
    made = plan(sound(plans.LOCAL_ITEM), sigma, silos=silos, rounds=steps, steps=1, q=q)
    return made, ITEM, False, [[Release(sampled(q), sigma, steps, STILL)]], 1.01


def subject_at_unequal_silos(random: Random) -> Case:
    """One epoch a round of B items: small silos draw often, large ones take more steps."""
    silos, held, k = int(random.integers(2, 6)), 0, int(random.integers(1, 4))
    held = int(random.integers(1, silos + 1))
    sizes = random.integers(20, 400, silos)
    steps, rounds = [int(-(-size // 20)) for size in sizes], int(random.integers(1, 5))
    sigma = _noise(random, k * 20 / sizes.min(), rounds * held * 3)
    made = plan(sound(plans.CAPPED), sigma, silos=silos, rounds=rounds, k=k, held=held)
    rows = zip(made.silos, sizes, steps, strict=True)
    each = tuple(replace(s, sampling_probability=20 / n, steps_per_round=t) for s, n, t in rows)
    releases = [Release(binomial(k, 20 / n), sigma, rounds * t, STILL) for n, t in zip(sizes, steps, strict=True)]
    return replace(made, silos=each), SUBJECT, True, [list(c) for c in combinations(releases, held)], 1.02


def subject_of_joint_noise(random: Random) -> Case:
    silos, q, steps, k = int(random.integers(2, 5)), random.uniform(0.02, 0.3), 12, int(random.integers(1, 3))
    held, own = int(random.integers(1, silos + 1)), _noise(random, q * k, steps)
    made = plan(sound(plans.JOINT), own, silos=silos, rounds=steps, steps=1, q=q, k=k, held=held)
    whole = added(*[binomial(k, q)] * held)
    return made, SUBJECT, True, [[Release(whole, own * silos**0.5, steps, STILL)]], 1.01


def silos_in_turn_under_joint_noise(random: Random) -> Case:
    silos, together, q = int(random.integers(3, 6)), 2, random.uniform(0.05, 0.5)
    held, rounds = int(random.integers(1, silos + 1)), int(random.integers(3, 12))
    own = _noise(random, q, rounds)
    made = plan(sound(plans.JOINT), own, silos=silos, rounds=rounds, steps=1, q=q, k=1, held=held)
    made = replace(made, settings=replace(made.settings, silos_per_round=together))
    choices = []
    for some in combinations(range(silos), held):
        met = [len({(t * together + i) % silos for i in range(together)} & set(some)) for t in range(rounds)]
        counts = [(n, met.count(n)) for n in (1, 2) if n in met]
        choices.append([Release(added(*[sampled(q)] * n), own * together**0.5, m, STILL) for n, m in counts])
    return made, SUBJECT, True, choices, 1.01


def drawn_silos(random: Random) -> Case:
    """In each round some of the silos are drawn, and everybody knows which."""
    silos, rounds, steps = int(random.integers(2, 8)), int(random.integers(3, 20)), int(random.integers(1, 4))
    together, q = int(random.integers(1, silos)), random.uniform(0.05, 0.9)
    sigma = _noise(random, q, rounds)
    made = plan(sound(plans.LOCAL_ITEM), sigma, silos=silos, rounds=rounds, steps=steps, q=q)
    drawn = replace(made.settings, silos_per_round=together, silo_choice=SiloChoice.RANDOM)
    release = Release(sampled(q), sigma, rounds, STILL, chance=together / silos, at_once=steps)
    return replace(made, settings=drawn), ITEM, False, [[release]], 1.01


def item_of_a_drawn_subject(random: Random) -> Case:
    """One coin for the subject; its item turns what it releases around."""
    q, steps = random.uniform(0.02, 0.95), int(random.integers(2, 30))
    sigma = 2 * _noise(random, q, steps)
    made = plan(sound(plans.SUBJECT_SAMPLING), sigma, rounds=steps, steps=1, q=q, sampling=SUBJECTS)
    return made, ITEM, False, [[Release(sampled(q), sigma, steps, sampled(q, -1.0))]], 1.01


def item_in_a_sum_of_drawn_silos(random: Random) -> Case:
    """Everybody knows whether its silo is drawn for the sum, and nobody whether its subject is."""
    silos, rounds, q = int(random.integers(2, 6)), int(random.integers(3, 30)), random.uniform(0.02, 0.95)
    together, own = int(random.integers(1, silos)), 2 * _noise(random, q, rounds)
    summed = replace(plans.SUBJECT_SAMPLING, trust=TrustModel.SECURE_AGGREGATION)
    drawn = {"silos_per_round": together, "silo_choice": SiloChoice.RANDOM}
    made = plan(sound(summed), own, silos=silos, rounds=rounds, steps=1, q=q, sampling=SUBJECTS, **drawn)
    release = Release(sampled(q), own * together**0.5, rounds, sampled(q, -1.0), chance=together / silos)
    return made, ITEM, False, [[release]], 1.01


def item_beside_others_of_its_subject(random: Random) -> Case:
    q, steps, k = random.uniform(0.02, 0.3), int(random.integers(2, 30)), int(random.integers(2, 6))
    sigma, alone = 2 * _noise(random, q, steps), (1 - q) ** (k - 1)
    clipped = replace(plans.CAPPED, clipping=plans.Clipping.PER_SUBJECT)
    made = plan(sound(clipped), sigma, rounds=steps, steps=1, q=q, k=k)
    # told by a move so long that nobody takes one for the other
    far = 60 * sigma
    there = {0.0: alone * (1 - q), 1.0: alone * q, far: (1 - alone) * (1 - q), far + 2: (1 - alone) * q}
    return made, ITEM, False, [[Release(there, sigma, steps, {0.0: alone, far: 1 - alone})]], 1.01


def _budget(random: Random, weights: BudgetWeights, trust: TrustModel) -> tuple[PrivacyPlan, float, float, int]:
    silos, q, rounds = int(random.integers(2, 9)), random.uniform(0.05, 0.9), int(random.integers(3, 40))
    whole = _noise(random, q, rounds)
    mechanism = replace(plans.RELEASE, trust=trust)
    own = whole / silos**0.5 if trust is TrustModel.SECURE_AGGREGATION else whole
    made = plan(sound(mechanism), own, silos=silos, rounds=rounds, steps=1, q=q, sampling=SUBJECTS)
    subject = SubjectSettings(q, weights=weights)
    return replace(made, settings=replace(made.settings, subject=subject)), whole, q, rounds


def subject_with_one_budget(random: Random) -> Case:
    made, sigma, q, rounds = _budget(random, BudgetWeights.PROPORTIONAL, random.choice(list(TrustModel)[:2]))
    return made, SUBJECT, True, [[Release(sampled(q), sigma, rounds, STILL)]], 1.01


def item_under_fixed_weights(random: Random) -> Case:
    """The subject's parts at m silos add up to 1; the item turns one of them around, on the subject's coin."""
    made, sigma, q, rounds = _budget(random, BudgetWeights.FIXED, TrustModel.SECURE_AGGREGATION)
    turned = sampled(q, 1 - 2 / len(made.silos))
    return made, ITEM, False, [[Release(sampled(q), sigma, rounds, turned)]], 1.3


def one_silo_under_fixed_weights(random: Random) -> Case:
    made, sigma, q, rounds = _budget(random, BudgetWeights.FIXED, TrustModel.SECURE_AGGREGATION)
    gone = sampled(q, 1 - 1 / len(made.silos))
    return made, SUBJECT, False, [[Release(sampled(q), sigma, rounds, gone)]], 1.3


def one_silo_under_weights_by_items(random: Random) -> Case:
    """Nearly all items are at the silo that goes: the few that stay elsewhere, opposed to it, take the whole budget."""
    made, sigma, q, rounds = _budget(random, BudgetWeights.PROPORTIONAL, TrustModel.SECURE_AGGREGATION)
    return made, SUBJECT, False, [[Release(sampled(q), sigma, rounds, sampled(q, -1.0))]], 1.01


def subject_before_a_colluder(random: Random) -> Case:
    """Every silo knows the common coin, and a colluder's noise does not count."""
    made, sigma, q, rounds = _budget(random, BudgetWeights.UNIFORM, TrustModel.SECURE_AGGREGATION)
    made = replace(made, settings=replace(made.settings, colluding_silos=1))
    honest = sigma * ((len(made.silos) - 1) / len(made.silos)) ** 0.5
    return made, SUBJECT, True, [[Release({1.0: 1.0}, honest, rounds, STILL, chance=q)]], 1.01


def drawn_silos_of_a_subject_under_joint_noise(random: Random) -> Case:
    """Of its silos a hypergeometric number is in a round's sum, and everybody knows how many."""
    silos, held, together = 5, int(random.integers(2, 6)), int(random.integers(1, 5))
    rounds, q = int(random.integers(1, 10)), random.uniform(0.1, 0.9)
    own = _noise(random, q, rounds)
    made = plan(sound(plans.JOINT), own, silos=silos, rounds=rounds, steps=1, q=q, k=1, held=held)
    drawn = replace(made.settings, silos_per_round=together, silo_choice=SiloChoice.RANDOM)
    sigma, there, gone = own * together**0.5, {}, {}
    for met in range(max(0, together + held - silos), min(held, together) + 1):
        chance = comb(held, met) * comb(silos - held, together - met) / comb(silos, together)
        gone[met * 60 * sigma] = chance  # told by a move so long that nobody takes one number for another
        for move, p in binomial(met, q).items():
            there[met * 60 * sigma + move] = chance * p
    release = Release(there, sigma, rounds, gone)
    return replace(made, settings=drawn), SUBJECT, True, [[release]], 1.01


def drawn_unequal_silos_of_a_subject(random: Random) -> Case:
    """One silo takes part in a round, everybody knows which; each draws and noises in its own way."""
    silos, rounds, k = int(random.integers(2, 6)), int(random.integers(3, 12)), int(random.integers(1, 4))
    held, each = int(random.integers(2, silos + 1)), random.uniform(0.02, 0.9, silos)
    sigma = _noise(random, k * each.max(), rounds)
    made = plan(sound(plans.CAPPED), sigma, silos=silos, rounds=rounds, steps=1, k=k, held=held)
    drawn = replace(made.settings, silos_per_round=1, silo_choice=SiloChoice.RANDOM)
    kinds = list(zip(each, random.uniform(1.0, 1.5, silos), strict=True))  # and its noise over the least
    unequal = tuple(replace(made.silos[0], sampling_probability=q, noise_multiplier=sigma * r) for q, r in kinds)
    choices, far = [], 60 * sigma  # a move so long that nobody takes one silo for another
    for some in combinations(kinds, held):
        gone = {i * far: 1 / silos if i else 1 - held / silos for i in range(held + 1)}
        laws = {i * far: (binomial(k, q), r) for i, (q, r) in enumerate(some, 1)}
        there = {i + move / r: p / silos for i, (law, r) in laws.items() for move, p in law.items()}
        choices.append([Release({0.0: gone[0.0]} | there, sigma, rounds, gone)])
    return replace(made, settings=drawn, silos=unequal), SUBJECT, True, choices, 1.01


KINDS: tuple[Callable[[Random], Case], ...] = (
    item_of_capped_silos,
    subject_at_unequal_silos,
    subject_of_joint_noise,
    silos_in_turn_under_joint_noise,
    drawn_silos,
    item_of_a_drawn_subject,
    item_beside_others_of_its_subject,
    subject_with_one_budget,
    item_under_fixed_weights,
    one_silo_under_fixed_weights,
    one_silo_under_weights_by_items,
    subject_before_a_colluder,
    drawn_silos_of_a_subject_under_joint_noise,
    drawn_unequal_silos_of_a_subject,
    item_in_a_sum_of_drawn_silos,
)
PLANS = 16 if os.environ.get("SUBJECTDP_FULL_TESTS") == "1" else 1  # of each kind: 240 in all


@pytest.mark.parametrize("number", range(PLANS))
@pytest.mark.parametrize("kind", KINDS)
def test_no_epsilon_is_below_the_reference_or_far_above(kind: Callable[[Random], Case], number: int) -> None:
    random = np.random.default_rng([number, KINDS.index(kind)])
    for _ in range(20):
        made, unit, every, choices, loose = kind(random)
        expected = max(epsilon(choice) for choice in choices)
        if 0.02 < expected < 15:  # where the reference's grid is fine
            break
    found = unit_epsilon(made, unit, every)
    assert expected * (1 - 1e-3) - 1e-3 <= found <= expected * loose + 2e-3


def test_the_composition_knows_the_gaussian() -> None:
    """20 releases with σ = 6 are one with μ = √20/6."""
    mu, phi = 20**0.5 / 6, NormalDist().cdf
    epsilon = composed({1.0: 1.0}, 6.0, 20)
    reached = phi(mu / 2 - epsilon / mu) - np.exp(epsilon) * phi(-mu / 2 - epsilon / mu)
    assert reached == pytest.approx(DELTA, rel=1e-2)


def small(silos: int, k: int) -> plans.FederationFacts:
    return plans.FederationFacts((800,) * silos, (100,) * silos, (k,) * silos, True, k, silos)


def test_central_sub_dp_as_published() -> None:
    """θ moves by the mean over S silos of (Σ Clip)/B + N(0, σ²C²).

    In units of C/(SB) a subject shifts it by its items in all mini-batches, Bin(Sk, q), and the noise is σB√S.
    """
    silos, k, batch, rounds, effective = 4, 2, 40, 30, 2.0
    sigma = effective / silos**0.5 / batch
    chosen = settings(rounds=rounds, batch_size=batch, local_steps=1, noise_multiplier=sigma)
    made = make_plan(CENTRAL, small(silos, k), chosen)
    expected = composed(binomial(silos * k, batch / 800), effective, made.rounds)
    assert unit_epsilon(made, SUBJECT, every_silo=True) == pytest.approx(expected, rel=2e-3)


def test_local_group_dp_as_published() -> None:
    """Every silo adds N(0, σ²C²) to the sum of its clipped gradients in each step, and every step is seen."""
    silos, k, batch, steps = 2, 3, 40, 4
    chosen = settings(rounds=10, batch_size=batch, local_steps=steps, noise_multiplier=2.5)
    made = make_plan(LOCAL_GROUP, small(silos, k), chosen)
    assert made.rounds == 7, "floor(10/√2) rounds, as its paper composes"
    everywhere = composed(binomial(k, batch / 800), 2.5, silos * steps * made.rounds)
    assert unit_epsilon(made, SUBJECT, every_silo=True) == pytest.approx(everywhere, rel=2e-3)
    one = composed(binomial(k, batch / 800), 2.5, steps * made.rounds)
    assert unit_epsilon(made, SUBJECT, every_silo=False) == pytest.approx(one, rel=2e-3)
