"""ε of mechanisms that no other check crosses, by a numerical composition of its own.

It knows nothing of this project's accounting or of dp-accounting: privacy losses on a grid, Fourier transforms, and the
laws of the shifts written down from the algorithms' pseudo-code.
"""

from __future__ import annotations

from dataclasses import replace
from math import comb

import numpy as np
import pytest

from accounting.plans import CENTRAL, ITEM, JOINT, LOCAL_GROUP, SUBJECT, plan, settings, sound
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.plan.plan import FederationFacts, PrivacyPlan

DELTA, BINS, REACH = 1e-5, 2**18, 40.0  # losses on a grid of width 3e-4, from -40 to 40


def composed(shifts: np.ndarray, sigma: float, steps: int) -> float:
    """ε at δ of ``steps`` releases that a unit shifts by j with probability ``shifts[j]``, noise N(0, σ²)."""
    y = np.linspace(-12 * sigma, len(shifts) - 1 + 12 * sigma, 100_001)
    base = np.exp(-0.5 * (y / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi)) * (y[1] - y[0])
    ratio = sum(p * np.exp((j * y - j * j / 2) / sigma**2) for j, p in enumerate(shifts))
    with_unit, loss = base * ratio, np.log(ratio)
    return max(smallest(with_unit, loss, steps), smallest(base, -loss, steps))


def smallest(mass: np.ndarray, loss: np.ndarray, steps: int) -> float:
    """The ε at which the composed loss has hockey-stick divergence δ; each loss is split between two grid points."""
    width = 2 * REACH / BINS
    place = (loss + REACH) / width
    low = np.floor(place).astype(int)
    share = place - low
    one = np.bincount(low, mass * (1 - share), BINS) + np.bincount(low + 1, mass * share, BINS)
    # index 0 is the loss -REACH: shifted to 0 before the transform, and back
    total = np.fft.irfft(np.fft.rfft(np.roll(one, -BINS // 2)) ** steps, BINS)
    losses, masses = np.arange(BINS) * width - REACH, np.roll(total, BINS // 2)

    def divergence(epsilon: float) -> float:
        above = losses > epsilon
        return float(np.sum(masses[above] * -np.expm1(epsilon - losses[above])))

    low_end, high_end = 0.0, REACH / 2
    for _ in range(30):
        middle = (low_end + high_end) / 2
        low_end, high_end = (middle, high_end) if divergence(middle) > DELTA else (low_end, middle)
    return high_end


def binomial(n: int, q: float) -> np.ndarray:
    return np.array([comb(n, j) * q**j * (1 - q) ** (n - j) for j in range(n + 1)])


def test_the_composition_knows_the_gaussian() -> None:
    """20 releases with σ = 6 are one with μ = √20/6."""
    from statistics import NormalDist

    mu, phi = 20**0.5 / 6, NormalDist().cdf
    epsilon = composed(np.array([0.0, 1.0]), 6.0, 20)
    reached = phi(mu / 2 - epsilon / mu) - np.exp(epsilon) * phi(-mu / 2 - epsilon / mu)
    assert reached == pytest.approx(DELTA, rel=1e-2)


def small(silos: int, k: int) -> FederationFacts:
    return FederationFacts((800,) * silos, (100,) * silos, (k,) * silos, True, k, silos)


@pytest.mark.parametrize("before_average", [False, True])
def test_central_sub_dp_as_published(before_average: bool) -> None:
    """θ moves by the mean over S silos of (Σ Clip)/B + N(0, σ²C²); placed before the average, the noise is divided too.

    In units of C/(SB) a subject shifts it by its items in all mini-batches, Bin(Sk, q), and the noise is σB√S or σ√S.
    """
    silos, k, batch, rounds, effective = 4, 2, 40, 30, 2.0
    sigma = effective / silos**0.5 / (1 if before_average else batch)
    made = make_plan(
        CENTRAL,
        small(silos, k),
        settings(
            rounds=rounds,
            batch_size=batch,
            local_steps=1,
            noise_multiplier=sigma,
            noise_before_average=before_average,
        ),
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
    one_item = np.array([0.95, 0.05])
    assert unit_epsilon(joint(False), ITEM, False) == pytest.approx(composed(one_item, 1.5, 20), rel=2e-3)
    assert unit_epsilon(joint(True), ITEM, False) == pytest.approx(composed(one_item, 3.0, 20), rel=2e-3)
