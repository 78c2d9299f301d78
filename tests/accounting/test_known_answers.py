"""Known answers: published or independently computed values, each with its source."""

import math
from functools import partial

import numpy as np
import pytest

from accounting import plans
from accounting.plans import plan, sound
from subjectdp.accounting import renyi, table1
from subjectdp.accounting.calibration import calibrate_noise_multiplier
from subjectdp.accounting.epsilon import epsilon_of, pld_epsilon
from subjectdp.accounting.events import MixtureSteps, PrivacyLoss, Shift, sampled_gaussian, unit_shift
from subjectdp.accounting.published import group_target
from subjectdp.accounting.renyi import SkellamMechanism, sampled_divergences
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.accounting.table1 import skellam_noise
from subjectdp.plan.plan import Clipping, PrivacyUnit, SamplingMethod

approx = partial(pytest.approx, rel=1e-3)


def sampled(sigma: float, q: float, steps: int) -> PrivacyLoss:
    return (MixtureSteps(sigma, sampled_gaussian(q), steps),)


def subject(sigma: float, clipping: Clipping, k: int, steps: int, sampling: object = plans.POISSON) -> PrivacyLoss:
    shift = unit_shift(clipping, plans.SUBJECT, sampling, plans.Q, k, 25_375)  # type: ignore[arg-type]
    return (MixtureSteps(sigma, shift, steps),)


MIXTURES = (
    MixtureSteps(1.0, Shift.of((0, 1, 2), (0.2, 0.6, 0.2)), 3),
    MixtureSteps(2.0, Shift.of((0, 2, 3), (0.33, 0.34, 0.33)), 2),
)


def jax_privacy(unit: PrivacyUnit, sampling: SamplingMethod, k: int) -> PrivacyLoss:
    """10,000 mini-batches of 1,024 of 50,000 items, of which a user has k."""
    return (MixtureSteps(4.0, unit_shift(Clipping.PER_ITEM, unit, sampling, 1024 / 50_000, k, 50_000), 10_000),)


@pytest.mark.parametrize(
    ("loss", "delta", "epsilon"),
    [
        (sampled(1.5, 0.04, 2250), 1e-5, 6.76879),
        (jax_privacy(plans.ITEM, plans.POISSON, 1), 1e-5, 2.092456),
        (jax_privacy(plans.ITEM, plans.FIXED, 1), 1e-5, 4.890110),
        (jax_privacy(plans.SUBJECT, plans.POISSON, 2), 1e-5, 4.604547),
        (jax_privacy(plans.SUBJECT, plans.FIXED, 2), 1e-5, 11.251446),
        (MIXTURES, 1e-6, 17.193115),
    ],
    ids=["Opacus", "JAX Privacy", "fixed batches", "of users", "of users, fixed", "dp-accounting's mixtures"],
)
def test_epsilon_of_other_projects_tests_and_tutorials(loss: PrivacyLoss, delta: float, epsilon: float) -> None:
    assert epsilon_of(loss, delta) == approx(epsilon)


def test_one_gaussian_in_closed_form() -> None:
    """The analytic Gaussian mechanism (Balle and Wang 2018)."""
    one = sampled(1.0, 1.0, 1)
    assert epsilon_of(one, 1e-5) == pytest.approx(4.377178, abs=1e-6)
    for epsilon, sigma in ((1.0, 3.730632), (4.0, 1.081162)):
        assert calibrate_noise_multiplier(one, epsilon, 1e-5) == pytest.approx(sigma, abs=1e-6)


@pytest.mark.parametrize(("sigma", "epochs", "epsilon"), [(1.3, 15, 1.1921), (1.1, 60, 3.0083), (0.7, 45, 7.1003)])
def test_tensorflow_privacy_tutorial(sigma: float, epochs: int, epsilon: float) -> None:
    """The MNIST tutorial's numbers: integer orders, Mironov's conversion, ⌊epochs·60000/256⌋ steps."""
    assert _mironov(sampled(sigma, 256 / 60_000, epochs * 60_000 // 256)) == pytest.approx(epsilon, abs=2e-3)


def _mironov(loss: PrivacyLoss, top: int = 64) -> float:
    orders = [order for order in renyi.ORDERS if order <= top]
    total = loss[0].steps * renyi.step_divergences(loss[0].noise_multiplier, loss[0].shift)[: len(orders)]
    return renyi.mironov_epsilon(np.asarray(orders), total, math.log(1e-5))[0]


# --- calibrations at the papers' scale (independent reference implementation) --------------------------------------


OF_ITEMS = (1.7091, 3.1868, 4.7055, 6.2355, 7.7705, 9.3065, 10.8454, 12.3851)  # 1 to 8 of them


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clipping", "k", "steps", "sigma"),
    [
        *((Clipping.PER_ITEM, k, 5000, sigma) for k, sigma in enumerate(OF_ITEMS, start=1)),
        (Clipping.PER_ITEM, 8, 80_000, 49.38),
        (Clipping.PER_ITEM, 20, 80_000, 123.4),
        (Clipping.PER_ITEM_SUBJECT_MEAN, 8, 5000, 11.541),
        (Clipping.PER_ITEM_SUBJECT_MEAN, 12, 5000, 16.62),
        (Clipping.PER_ITEM_SUBJECT_MEAN, 20, 5000, 25.62),
        (Clipping.PER_ITEM_SUBJECT_MEAN, 8, 80_000, 46.03),
        (Clipping.PER_ITEM_SUBJECT_MEAN, 20, 80_000, 102.4),
        (Clipping.PER_ITEM_SUBJECT_MEAN, 8, 20_000, 23.03),
        (Clipping.PER_BATCH, 8, 5000, 23.08),
        (Clipping.PER_BATCH, 8, 80_000, 92.05),
    ],
)
def test_sound_noise(clipping: Clipping, k: int, steps: int, sigma: float) -> None:
    assert calibrate_noise_multiplier(subject(1.0, clipping, k, steps), 4.0, plans.DELTA) == approx(sigma)


@pytest.mark.parametrize(("k", "sigma"), [(1, 3.418), (3, 9.411), (8, 24.770)])
def test_sound_noise_of_fixed_batches(k: int, sigma: float) -> None:
    loss = subject(1.0, Clipping.PER_ITEM, k, 5000, plans.FIXED)
    assert calibrate_noise_multiplier(loss, 4.0, plans.DELTA) == approx(sigma)


def test_group_rule_shakespeare() -> None:
    """Reference values on a grid of 1e-4, a quarter of a step's loss here, which overstates ε by half a percent."""
    share, log_delta = group_target(4.0, plans.DELTA, 4)
    loss = sampled(1.8517, 6.758e-4, 296_000)
    assert pld_epsilon(loss, math.exp(log_delta), 1e-4) == approx(share)
    assert 0.99 * 1.8517 < calibrate_noise_multiplier(loss, share, math.exp(log_delta)) < 1.8517


# --- what published noise gives a subject ------------------------------------------------------------------------


OF_GROUPS = (  # σ_2, σ_3 and σ_4 as constants; silos, rounds and ε
    *((3.339, 1, 25, 8.65), (3.339, 1, 100, 20.6), (5.006, 1, 25, 5.22), (5.006, 1, 100, 11.9891)),
    *((5.006, 16, 25, 29.6), (6.684, 1, 100, 8.34), (6.684, 16, 25, 19.9)),
)


@pytest.mark.parametrize(
    ("mechanism", "sigma", "k", "silos", "rounds", "epsilon"),
    [
        (plans.LOCAL_ITEM, 1.709, 8, 1, 100, 57.9),
        (plans.HIGRAD_V1, 1.709, 8, 1, 25, 19.7),
        (plans.HIGRAD_V1, 1.709, 8, 1, 100, 50.4),
        (plans.HIGRAD_V1, 1.709, 8, 16, 25, 144.6),
        (plans.HIGRAD_V1, 1.709, 20, 1, 25, 57.4),
        (plans.HIGRAD_V3, 12.376, 8, 1, 25, 1.69),
        (plans.HIGRAD_V3, 12.376, 8, 1, 100, 3.69),
        (plans.HIGRAD_V3, 12.376, 8, 16, 25, 8.33),
        (plans.HIGRAD_V3, 11.54, 8, 16, 25, 9.08),
        (plans.HIGRAD_V3, 30.870, 20, 16, 25, 7.25),
        (plans.USER_LDP, 76.45, 8, 1, 100, 1.04),
        (plans.USER_LDP, 76.45, 8, 16, 25, 2.25),
        (plans.USER_LDP, 76.45, 8, 16, 100, 4.96),
        *((sound(plans.LOCAL_GROUP), sigma, 8, *rest) for sigma, *rest in OF_GROUPS),
    ],
)
def test_true_epsilon(mechanism: object, sigma: float, k: int, silos: int, rounds: int, epsilon: float) -> None:
    run = plan(mechanism, sigma, silos=silos, rounds=rounds, k=k)  # type: ignore[arg-type]
    assert unit_epsilon(run, plans.SUBJECT, every_silo=True) == pytest.approx(epsilon, rel=3e-3, abs=0.005)


def test_user_ldp_as_local_privacy() -> None:
    assert unit_epsilon(plan(plans.USER_LDP, 76.45), plans.SILO, every_silo=False) == approx(9.0847)


CELLS = [(steps, parties) for steps in (1, 10, 50) for parties in (1, 2, 5, 10)]
TIGHT = (3.67, 1.78, 0.63, 0.31, 3.53, 1.75, 0.79, 0.48, 3.79, 2.15, 1.14, 0.74)


@pytest.fixture(scope="module")
def rows() -> list[table1.Row]:
    return table1.rows()


@pytest.mark.slow
def test_both_printed_decimals_and_tight_values(rows: list[table1.Row]) -> None:
    assert [(row.local_steps, row.parties) for row in rows] == CELLS
    for row in rows:
        assert f"{row.epsilon:.2f}" == f"{row.epsilon_printed:.2f}"
        assert f"{row.sigma_total:.2f}" == f"{row.sigma_printed:.2f}"
    assert [round(row.epsilon_tight, 2) for row in rows] == list(TIGHT)


@pytest.mark.slow
def test_only_one_local_step_gains_from_joint_noise(rows: list[table1.Row]) -> None:
    for row in rows:
        joint = row.local_steps == 1 or row.parties == 1
        assert (row.epsilon_sound == pytest.approx(row.epsilon_tight)) == joint
    assert [row.epsilon_sound for row in rows if row.local_steps == 50] == [pytest.approx(3.79, abs=0.01)] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bits", "sigma"), [(2, 0.95465), (4, 0.90572), (6, 0.90220), (8, 0.90198), (12, 0.90197), (32, 0.90197)]
)
def test_noise_by_quantisation(bits: int, sigma: float) -> None:
    assert skellam_noise(5.0, 1e-5, 0.1, 10, 2.0**bits) == pytest.approx(sigma, abs=2e-5)


def test_a_fine_scale_is_the_gaussian() -> None:
    fine = SkellamMechanism(2.0, scale=2.0**30)
    assert [fine.divergence(j) for j in (2, 10)] == pytest.approx([2 / 8, 10 / 8], rel=1e-6)


def test_sampled_divergence_of_order_two_by_hand() -> None:
    """log(1 - q² + q² e^{ε(2)}) for the second order: (1-q)²·1 + 2q(1-q)·1 + q² e^{ε(2)}."""
    mechanism, q = SkellamMechanism(1.3), 0.2
    expected = math.log(1 - q * q + q * q * math.exp(mechanism.divergence(2)))
    assert sampled_divergences(mechanism, q, (2,))[0] == pytest.approx(expected, rel=1e-12)
