"""One noise for silos of very different sizes: enough for every choice of a subject's silos, and hardly more."""

from dataclasses import replace

import numpy as np
import pytest

from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.algorithms.registry import mechanism
from subjectdp.plan.plan import (
    AccountingMode,
    FederationFacts,
    Horizontal,
    PlanSettings,
    PrivacyUnit,
    SamplingMethod,
)

# silos, silos of a subject, cap, ε, rounds, spread of the sizes' logarithms
CASES = [(8, 4, 3, 2.0, 5, 1.2), (16, 4, 7, 8.0, 50, 1.2), (40, 2, 6, 0.5, 5, 1.2), (120, 3, 4, 8.0, 50, 0.5)]


@pytest.mark.parametrize(("silos", "held", "cap", "epsilon", "rounds", "spread"), CASES)
def test_noise_is_enough_and_not_more(
    silos: int, held: int, cap: int, epsilon: float, rounds: int, spread: float
) -> None:
    sizes = 100 + 300 * np.exp(np.random.default_rng(silos).normal(size=silos) * spread)
    items = tuple(map(int, sizes))
    subjects = tuple(count // 5 for count in items)
    facts = FederationFacts(items, subjects, (cap,) * silos, True, cap, held, sum(subjects))
    settings = PlanSettings(
        mode=AccountingMode.SOUND,
        horizontal=Horizontal.SOUND,
        sampling=SamplingMethod.POISSON,
        epsilon=epsilon,
        delta=1e-5,
        clip_norm=1.0,
        rounds=rounds,
        local_steps=None,
        batch_size=32,
    )
    of_subjects = replace(mechanism("local_item_dp", None, AccountingMode.SOUND), claimed_unit=PrivacyUnit.SUBJECT)
    reached = unit_epsilon(make_plan(of_subjects, facts, settings), PrivacyUnit.SUBJECT, every_silo=True)
    assert 0.99 * epsilon <= reached <= epsilon
