"""Properties of losses and calibrations, by hypothesis. SUBJECTDP_FULL_TESTS=1 runs the long versions."""

import os
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounting.plans import CLIPPINGS, FIXED, HIGRAD_V1, POISSON, SUBJECT, plan
from subjectdp.accounting.calibration import calibrate_many, calibrate_noise_multiplier
from subjectdp.accounting.epsilon import SEARCH, epsilon_of
from subjectdp.accounting.events import MixtureSteps, Shift, unit_shift, with_noise
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.plan.plan import Clipping

pytestmark = pytest.mark.slow

FULL = os.environ.get("SUBJECTDP_FULL_TESTS") == "1"
CLIPPING = st.sampled_from(CLIPPINGS)
few = settings(max_examples=500 if FULL else 15, deadline=None)
fewer = settings(max_examples=200 if FULL else 8, deadline=None)


@st.composite
def shifts(draw: st.DrawFn) -> Shift:
    k = draw(st.integers(1, 12))
    if draw(st.booleans()):
        return unit_shift(draw(CLIPPING), SUBJECT, POISSON, draw(st.floats(5e-4, 0.9)), k, 10_000)
    batch = draw(st.integers(5, 9_000))  # a fixed mini-batch has a whole number of items
    return unit_shift(draw(CLIPPING), SUBJECT, FIXED, batch / 10_000, k, 10_000)


@pytest.mark.parametrize(("accountant", "steps"), [("pld", (40, 41, 300)), ("rdp", (40,))])
def test_many_silos_are_calibrated_as_each_is(accountant: str, steps: tuple[int, ...]) -> None:
    """Silos with the same sampling probability and all items at once are among them; the order is that of the silos."""
    sampled = [0.3, 0.01, 0.011, 1.0, 0.012, 0.02, 0.01]
    losses = [(MixtureSteps(1.0, Shift.of((0.0, 1.0), (1 - q, q)), n),) for n in steps for q in sampled]
    losses.append((MixtureSteps(1.0, Shift.of((0.0, 2.0), (0.7, 0.3)), steps[-1]),))
    for loss, sigma in zip(losses, calibrate_many(losses, 3.0, 1e-5, accountant), strict=True):
        reached = epsilon_of(with_noise(loss, sigma), 1e-5, accountant)
        assert 0.998 * 3.0 <= reached <= 3.0


@few
@example(shift=Shift((0.0, 2.0), (0.9995, 0.0005)), steps=1, epsilon=1.0, exponent=-3.0)
@given(shift=shifts(), steps=st.integers(1, 20_000), epsilon=st.floats(0.1, 12.0), exponent=st.floats(-9.0, -3.0))
def test_calibration_never_overshoots_and_comes_within_one_percent(
    shift: Shift, steps: int, epsilon: float, exponent: float
) -> None:
    delta = 10.0**exponent
    loss = (MixtureSteps(1.0, shift, steps),)
    sigma = calibrate_noise_multiplier(loss, epsilon, delta)
    reached = epsilon_of((MixtureSteps(sigma, shift, steps),), delta)
    assert reached <= epsilon
    assert reached >= 0.99 * epsilon or reached == 0.0, "or δ covers the event, whatever the noise"


@fewer
@given(
    clipping=CLIPPING,
    q=st.floats(1e-3, 0.3),
    k=st.integers(1, 10),
    sigma=st.floats(2.0, 20.0),
    steps=st.integers(1, 2000),
)
def test_epsilon_grows_with_cap_steps_and_rate(clipping: Clipping, q: float, k: int, sigma: float, steps: int) -> None:
    def epsilon(q: float, k: int, steps: int) -> float:
        shift = unit_shift(clipping, SUBJECT, POISSON, q, k, 10_000)
        return epsilon_of((MixtureSteps(sigma, shift, steps),), 1e-5, resolution=SEARCH)

    base = epsilon(q, k, steps)
    slack = 2e-3 * base + 1e-6
    assert epsilon(q, k + 1, steps) >= base - slack
    assert epsilon(q, k, 2 * steps) >= base - slack
    assert epsilon(1.3 * q, k, steps) >= base - slack


@fewer
@given(silos=st.integers(1, 6), q=st.floats(5e-3, 0.2), k=st.integers(1, 8), sigma=st.floats(3.0, 20.0))
def test_epsilon_grows_with_the_silos_of_a_subject(silos: int, q: float, k: int, sigma: float) -> None:
    run = plan(HIGRAD_V1, sigma, silos=silos + 1, q=q, k=k, rounds=10, steps=5, held=silos)
    more = replace(run, silos_per_subject=silos + 1)
    assert unit_epsilon(more, SUBJECT, True) >= unit_epsilon(run, SUBJECT, True) * (1 - 1e-3)
    assert unit_epsilon(run, SUBJECT, True) >= unit_epsilon(run, SUBJECT, False) * (1 - 1e-3)
