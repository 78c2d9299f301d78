"""One noise for silos of very different sizes: enough for every choice of a subject's silos, and hardly more."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from accounting.plans import settings
from subjectdp.accounting.epsilon import SEARCH
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.algorithms.registry import mechanism
from subjectdp.plan.plan import AccountingMode, FederationFacts, Horizontal, PrivacyUnit, SiloSchedule

OF_SUBJECTS = replace(mechanism("local_item_dp", None, AccountingMode.SOUND), claimed_unit=PrivacyUnit.SUBJECT)
SETTINGS = settings(mode=AccountingMode.SOUND, horizontal=Horizontal.SOUND, rounds=50, batch_size=32)

# silos, silos of a subject, cap, ε, rounds, spread of the sizes' logarithms
CASES = [(8, 4, 3, 2.0, 5, 1.2), (16, 4, 7, 8.0, 50, 1.2), (40, 2, 6, 0.5, 5, 1.2), (120, 3, 4, 8.0, 50, 0.5)]


@pytest.mark.parametrize(("silos", "held", "cap", "epsilon", "rounds", "spread"), CASES)
def test_noise_is_enough_and_not_more(
    silos: int, held: int, cap: int, epsilon: float, rounds: int, spread: float
) -> None:
    sizes = 100 + 300 * np.exp(np.random.default_rng(silos).normal(size=silos) * spread)
    facts = federation(sizes, np.full(silos, cap), held)
    plan = make_plan(OF_SUBJECTS, facts, replace(SETTINGS, epsilon=epsilon, rounds=rounds))
    reached = unit_epsilon(plan, PrivacyUnit.SUBJECT, every_silo=True)
    assert 0.99 * epsilon <= reached <= epsilon


def test_a_sum_is_accounted_for_its_worst_pair_of_silos() -> None:
    draws = np.random.default_rng(4)
    facts = federation(100 + 300 * np.exp(draws.normal(size=30)), draws.choice([1, 2, 3, 4, 6, 8, 12, 16], 30), 2)
    joint = replace(mechanism("joint_noise", None, AccountingMode.SOUND), claimed_unit=PrivacyUnit.SUBJECT)
    plan = make_plan(joint, facts, replace(SETTINGS, local_steps=1, noise_multiplier=14.0))
    own = 14.0 / math.sqrt(2)  # of two silos that have the noise of all between them

    def of_pair(pair: tuple[SiloSchedule, SiloSchedule]) -> float:
        silos = tuple(replace(silo, noise_multiplier=own) for silo in pair)
        return unit_epsilon(replace(plan, silos=silos), PrivacyUnit.SUBJECT, every_silo=True, resolution=SEARCH)

    worst = max(map(of_pair, combinations(sorted(plan.silos, key=reach)[-12:], 2)))
    stated = unit_epsilon(plan, PrivacyUnit.SUBJECT, every_silo=True, resolution=SEARCH)
    assert worst * (1 - 1e-9) <= stated <= 1.02 * worst


def reach(silo: SiloSchedule) -> float:
    return silo.sampling_probability * silo.max_items_per_subject**2


def federation(sizes: np.ndarray, caps: np.ndarray, held: int) -> FederationFacts:
    items = tuple(map(int, sizes))
    subjects = tuple(count // 5 for count in items)
    return FederationFacts(items, subjects, tuple(map(int, caps)), True, None, held, sum(subjects))
