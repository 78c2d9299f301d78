"""ε of mechanisms that no other check crosses, by a numerical composition of its own (``reference.py``)."""

from dataclasses import replace

import numpy as np
import pytest

from accounting.plans import CENTRAL, ITEM, JOINT, LOCAL_GROUP, SUBJECT, plan, settings, sound
from accounting.reference import DELTA, Law, Release, binomial, epsilon, sampled
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.plan.plan import FederationFacts, PrivacyPlan


def composed(law: Law, sigma: float, steps: int) -> float:
    return epsilon([Release(law, sigma, steps, {0.0: 1.0})])


def test_the_composition_knows_the_gaussian() -> None:
    """20 releases with σ = 6 are one with μ = √20/6."""
    from statistics import NormalDist

    mu, phi = 20**0.5 / 6, NormalDist().cdf
    epsilon = composed({1.0: 1.0}, 6.0, 20)
    reached = phi(mu / 2 - epsilon / mu) - np.exp(epsilon) * phi(-mu / 2 - epsilon / mu)
    assert reached == pytest.approx(DELTA, rel=1e-2)


def small(silos: int, k: int) -> FederationFacts:
    return FederationFacts((800,) * silos, (100,) * silos, (k,) * silos, True, k, silos)


def test_central_sub_dp_as_published() -> None:
    """θ moves by the mean over S silos of (Σ Clip)/B + N(0, σ²C²).

    In units of C/(SB) a subject shifts it by its items in all mini-batches, Bin(Sk, q), and the noise is σB√S.
    """
    silos, k, batch, rounds, effective = 4, 2, 40, 30, 2.0
    sigma = effective / silos**0.5 / batch
    made = make_plan(
        CENTRAL, small(silos, k), settings(rounds=rounds, batch_size=batch, local_steps=1, noise_multiplier=sigma)
    )
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


def joint(linear: bool) -> PrivacyPlan:
    made = plan(sound(JOINT), 1.5, silos=4, steps=1, rounds=20, q=0.05)
    return replace(made, settings=replace(made.settings, linear_updates=linear))


def test_adam_at_the_silos_leaves_an_item_its_own_silos_noise() -> None:
    """Adam's first step is a sign: what other silos add does not hide it. With SGD the sum has twice the noise."""
    one_item = sampled(0.05)
    assert unit_epsilon(joint(False), ITEM, False) == pytest.approx(composed(one_item, 1.5, 20), rel=2e-3)
    assert unit_epsilon(joint(True), ITEM, False) == pytest.approx(composed(one_item, 3.0, 20), rel=2e-3)
